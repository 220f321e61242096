//! Handles of resources in requests: a number whose kind and existence the table behind the handles checks.

use wasmtime::component::Resource;

use super::codec::{Decode, Encode, Malformed, Reader};
use crate::cause::Cause;

impl<T: 'static> Decode for Resource<T> {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::new_borrow(input.read()?))
    }
}

impl<T: 'static> Encode for Resource<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.rep().encode(output);
    }
}

/// Bytes that are no message of the protocol end the method.
impl From<Malformed> for Cause {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed.0)
    }
}

/// Reads the next value of a request.
pub(super) fn read<T: Decode>(input: &mut Reader<'_>) -> Result<T, Cause> {
    Ok(input.read()?)
}

/// Reads a handle that the method gives away.
pub(super) fn read_owned<T: 'static>(input: &mut Reader<'_>) -> Result<Resource<T>, Cause> {
    Ok(Resource::new_own(input.read()?))
}

/// Checks that every byte of a request was read.
pub(super) fn end(input: &Reader<'_>) -> Result<(), Cause> {
    Ok(input.end()?)
}
