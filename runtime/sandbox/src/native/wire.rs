//! Values of the contract as bytes, and back: the order is that of WIT, numbers are little-endian at their width.
//!
//! A string is its length (`u32`) and UTF-8, a list its count and its items, an option and a result one byte and what
//! is there, an enum and a variant the number of the case, flags one bit each of a `u32`, a record its fields, a handle
//! its number. What comes in was written by another process: every length is held against the bytes that are there before
//! anything is allocated for it.

mod values;

use wasmtime::component::Resource;

use crate::cause::Cause;

/// What came in, read from front to back.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of it is still to be read.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next value.
    pub(crate) fn take<T: Decode>(&mut self) -> Result<T, Cause> {
        T::decode(self)
    }

    /// The next value, which is a handle that the method gives away.
    pub(crate) fn own<T: 'static>(&mut self) -> Result<Resource<T>, Cause> {
        Ok(Resource::new_own(self.take()?))
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Cause> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(malformed(format!("{left} bytes follow the last value"))),
        }
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// So many bytes.
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Cause> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(malformed(format!("{count} bytes were announced, {} are there", self.rest.len())));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes of a number.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Cause> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| malformed("a number is cut off".into()))
    }

    /// A count of things that take at least so many bytes each.
    fn count(&mut self, least: usize) -> Result<usize, Cause> {
        let count = self.take::<u32>()? as usize;
        match count.checked_mul(least.max(1)) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(malformed(format!("{count} items were announced, {} bytes are there", self.rest.len()))),
        }
    }
}

/// Bytes that stand for nothing.
pub(crate) fn malformed(what: String) -> Cause {
    Cause::Protocol(what)
}

/// The number of a case that there is none of.
pub(crate) fn no_case(kind: &str, number: u8) -> Cause {
    malformed(format!("`{kind}` has no case {number}"))
}

/// A value that can be read.
pub(crate) trait Decode: Sized {
    /// The bytes that it takes at least.
    const LEAST: usize;

    /// Reads it.
    fn decode(input: &mut Input<'_>) -> Result<Self, Cause>;
}

/// A value that can be written.
pub(crate) trait Encode {
    /// Appends it.
    fn encode(&self, output: &mut Vec<u8>);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: &(impl Encode + ?Sized)) -> Vec<u8> {
        let mut output = Vec::new();
        value.encode(&mut output);
        output
    }

    fn read<T: Decode>(bytes: &[u8]) -> Result<T, Cause> {
        let mut input = Input::new(bytes);
        let value = input.take()?;
        input.end()?;
        Ok(value)
    }

    #[test]
    fn values_are_written_as_the_contract_says_and_read_back() {
        assert_eq!(bytes("a€"), [4, 0, 0, 0, b'a', 0xe2, 0x82, 0xac]);
        assert_eq!(bytes(&Some(-2_i32)), [1, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(bytes(&Ok::<_, String>(7_u8)), [0, 7]);
        assert_eq!(bytes(&Err::<(), _>("x".to_owned())), [1, 1, 0, 0, 0, b'x']);

        let list = vec![(1.5_f32, true), (f32::from_bits(0x7fc0_0001), false)];
        let back: Vec<(f32, bool)> = read(&bytes(&list)).unwrap();
        let bits =
            |list: &[(f32, bool)]| list.iter().map(|(number, mark)| (number.to_bits(), *mark)).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&list));
    }

    #[test]
    fn lengths_are_held_against_what_is_there() {
        let huge = u32::MAX.to_le_bytes();
        assert!(read::<String>(&huge).is_err() && read::<Vec<f32>>(&huge).is_err() && read::<Vec<()>>(&huge).is_err());
        assert!(read::<Vec<u32>>(&[2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]).is_err());
    }

    #[test]
    fn bytes_that_stand_for_nothing_are_refused() {
        assert!(read::<bool>(&[2]).is_err() && read::<char>(&0xd800_u32.to_le_bytes()).is_err());
        assert!(read::<String>(&[1, 0, 0, 0, 0xff]).is_err() && read::<u8>(&[1, 2]).is_err());
        assert!(read::<Option<u8>>(&[1]).is_err() && read::<Result<(), u8>>(&[]).is_err());
    }
}
