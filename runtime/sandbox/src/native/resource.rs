//! Handles of resources in requests: numbers whose kind and existence the resource table checks.

use wasmtime::component::Resource;

use super::codec::{Decode, Encode, Malformed, Reader};
use crate::cause::Cause;

impl<T: 'static> Decode for Resource<T> {
    /// Decodes a handle that the method lends. Whether it exists and is of this kind is checked when it is looked up.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::new_borrow(input.read()?))
    }
}

impl<T: 'static> Encode for Resource<T> {
    /// Writes the handle's number.
    fn encode(&self, output: &mut Vec<u8>) {
        self.rep().encode(output);
    }
}

/// Bytes that are no message of the protocol end the method.
impl From<Malformed> for Cause {
    /// Converts a malformed message into a broken contract, which ends the method.
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed.0)
    }
}

/// Decodes the next value of a message; malformed bytes end the method.
pub(super) fn read<T: Decode>(input: &mut Reader<'_>) -> Result<T, Cause> {
    Ok(input.read()?)
}

/// Decodes a handle whose ownership the method gives away; malformed bytes end the method. Whether it exists and is of
/// this kind is checked when it is looked up.
pub(super) fn read_owned<T: 'static>(input: &mut Reader<'_>) -> Result<Resource<T>, Cause> {
    Ok(Resource::new_own(input.read()?))
}

/// Checks that every byte of a message was read; left-over bytes end the method.
pub(super) fn end(input: &Reader<'_>) -> Result<(), Cause> {
    Ok(input.end()?)
}
