//! Values of the contract as bytes, and back: the order is that of WIT, numbers are little-endian at their width.
//!
//! A string is its length (`u32`) and UTF-8, a list its count and its items, an option and a result one byte and what
//! is there, an enum and a variant the number of the case, flags one bit each of a `u32`, a record its fields, a handle
//! its number. What comes in was written by another process: every length is held against the bytes that are there before
//! anything is allocated for it.

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

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Decode for $number {
            const LEAST: usize = size_of::<Self>();

            fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
                Ok(Self::from_le_bytes(input.array()?))
            }
        }

        impl Encode for $number {
            fn encode(&self, output: &mut Vec<u8>) {
                output.extend_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

impl Decode for bool {
    const LEAST: usize = 1;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        match input.take::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(format!("a truth value is 0 or 1, this is {other}"))),
        }
    }
}

impl Encode for bool {
    fn encode(&self, output: &mut Vec<u8>) {
        output.push(u8::from(*self));
    }
}

impl Decode for char {
    const LEAST: usize = 4;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        let number = input.take::<u32>()?;
        Self::from_u32(number).ok_or_else(|| malformed(format!("{number} is no character")))
    }
}

impl Encode for char {
    fn encode(&self, output: &mut Vec<u8>) {
        u32::from(*self).encode(output);
    }
}

impl Decode for String {
    const LEAST: usize = 4;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        let length = input.count(1)?;
        let text = std::str::from_utf8(input.bytes(length)?).map_err(|error| malformed(error.to_string()))?;
        Ok(text.to_owned())
    }
}

impl Encode for String {
    fn encode(&self, output: &mut Vec<u8>) {
        self.as_str().encode(output);
    }
}

impl Encode for str {
    fn encode(&self, output: &mut Vec<u8>) {
        length(self.len(), output);
        output.extend_from_slice(self.as_bytes());
    }
}

impl<T: Decode> Decode for Vec<T> {
    const LEAST: usize = 4;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        let count = input.count(T::LEAST)?;
        let mut items = Self::with_capacity(count);
        for _ in 0..count {
            items.push(input.take()?);
        }
        Ok(items)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.as_slice().encode(output);
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, output: &mut Vec<u8>) {
        length(self.len(), output);
        self.iter().for_each(|item| item.encode(output));
    }
}

impl<T: Decode> Decode for Option<T> {
    const LEAST: usize = 1;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        if input.take::<bool>()? { input.take().map(Some) } else { Ok(None) }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.is_some().encode(output);
        self.iter().for_each(|item| item.encode(output));
    }
}

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    const LEAST: usize = 1;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        if input.take::<bool>()? { input.take().map(Err) } else { input.take().map(Ok) }
    }
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.is_err().encode(output);
        match self {
            Ok(value) => value.encode(output),
            Err(error) => error.encode(output),
        }
    }
}

impl Decode for () {
    const LEAST: usize = 0;

    fn decode(_: &mut Input<'_>) -> Result<Self, Cause> {
        Ok(())
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Vec<u8>) {}
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, output: &mut Vec<u8>) {
        self.0.encode(output);
        self.1.encode(output);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;

    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        Ok((input.take()?, input.take()?))
    }
}

impl<T: 'static> Decode for Resource<T> {
    const LEAST: usize = 4;

    /// The table behind the handles knows what kind each is, and which are there.
    fn decode(input: &mut Input<'_>) -> Result<Self, Cause> {
        Ok(Self::new_borrow(input.take()?))
    }
}

impl<T: 'static> Encode for Resource<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.rep().encode(output);
    }
}

/// A length; what is longer than 4 GiB fits into no frame and is refused there.
fn length(count: usize, output: &mut Vec<u8>) {
    u32::try_from(count).unwrap_or(u32::MAX).encode(output);
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
