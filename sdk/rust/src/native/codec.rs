//! The bytes of values of the contract. The host's end of the connection compiles this file as well.
//!
//! In the order of the contract, without gaps: numbers little-endian at their width, `bool` as a byte, `char` as 32
//! bits; a text as its length in bytes (`u32`) and UTF-8, a list as its count and its items; an option as a byte and
//! perhaps the item, a result as a byte (0 for success) and the item of that case, if it has one; an enum or a variant
//! as the number of the case in a byte and what it carries; flags as bits of a `u32`; records and tuples as their
//! fields; a handle as its number (`u32`).

use std::fmt;

/// A value that can be written.
pub trait Encode {
    /// Appends the value to `output`.
    fn encode(&self, output: &mut Vec<u8>);
}

/// A value that can be read.
pub trait Decode: Sized {
    /// Reads the value from the front of `input`. Errors: bytes that are no such value.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Why bytes are no value of the expected type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The unread rest of a message. Another process wrote it: every length is compared with the bytes that are there
/// before memory is allocated for it.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the next value and advances. Errors: bytes that are no such value.
    pub fn read<T: Decode>(&mut self) -> Result<T, Malformed> {
        T::decode(self)
    }

    /// Fails if bytes are left to read.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Malformed(format!("{left} bytes follow the last value"))),
        }
    }

    /// Returns all bytes that are left and leaves the reader empty.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Reads the next `count` bytes. Errors: fewer are left, and none is read.
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let short = || Malformed(format!("{count} bytes were announced, {} are there", self.0.len()));
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a count of items. Every item takes at least a byte, so a count above the number of bytes left is an error.
    fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.read::<u32>()? as usize;
        let short = || Malformed(format!("{count} items were announced, {} bytes are there", self.0.len()));
        if count <= self.0.len() { Ok(count) } else { Err(short()) }
    }
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Encode for $number {
            fn encode(&self, output: &mut Vec<u8>) {
                output.extend_from_slice(&self.to_le_bytes());
            }
        }

        impl Decode for $number {
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                let (number, rest) = input.0.split_first_chunk().ok_or_else(|| Malformed("a number is cut off".into()))?;
                input.0 = rest;
                Ok(Self::from_le_bytes(*number))
            }
        }
    )+};
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

/// Writes a length as `u32`. One above 4 GiB is written as the largest `u32`: a frame refuses such a message anyway.
fn encode_length(length: usize, output: &mut Vec<u8>) {
    u32::try_from(length).unwrap_or(u32::MAX).encode(output);
}

impl Encode for bool {
    fn encode(&self, output: &mut Vec<u8>) {
        output.push(u8::from(*self));
    }
}

impl Decode for bool {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.read::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed(format!("a truth value is 0 or 1, this is {other}"))),
        }
    }
}

impl Encode for char {
    fn encode(&self, output: &mut Vec<u8>) {
        u32::from(*self).encode(output);
    }
}

impl Decode for char {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = input.read::<u32>()?;
        Self::from_u32(number).ok_or_else(|| Malformed(format!("{number} is no character")))
    }
}

impl Encode for str {
    fn encode(&self, output: &mut Vec<u8>) {
        encode_length(self.len(), output);
        output.extend_from_slice(self.as_bytes());
    }
}

impl Encode for String {
    fn encode(&self, output: &mut Vec<u8>) {
        self.as_str().encode(output);
    }
}

impl Decode for String {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = input.count()?;
        let text = std::str::from_utf8(input.bytes(length)?);
        text.map(str::to_owned).map_err(|error| Malformed(error.to_string()))
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, output: &mut Vec<u8>) {
        encode_length(self.len(), output);
        self.iter().for_each(|item| item.encode(output));
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.as_slice().encode(output);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = input.count()?;
        // As many as the bytes would fill: a count of large items that lies reserves no more memory than the message
        // has.
        let mut items = Self::with_capacity(count.min(input.0.len() / size_of::<T>().max(1)));
        for _ in 0..count {
            items.push(input.read()?);
        }
        Ok(items)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, output: &mut Vec<u8>) {
        (**self).encode(output);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, output: &mut Vec<u8>) {
        self.is_some().encode(output);
        self.iter().for_each(|item| item.encode(output));
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        if input.read()? { input.read().map(Some) } else { Ok(None) }
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

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        if input.read()? { input.read().map(Err) } else { input.read().map(Ok) }
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt)*))+) => {$(
        impl<$($name: Encode),*> Encode for ($($name,)*) {
            #[allow(unused_variables, reason = "the empty tuple writes nothing")]
            fn encode(&self, output: &mut Vec<u8>) {
                $(self.$index.encode(output);)*
            }
        }

        impl<$($name: Decode),*> Decode for ($($name,)*) {
            #[allow(unused_variables, clippy::unused_unit, reason = "the empty tuple reads nothing")]
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(($($name::decode(input)?,)*))
            }
        }
    )+};
}

tuples! { () (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) }

/// Implements both for a record of the contract: its fields, in order.
macro_rules! record {
    ($record:ty { $($field:ident)* }) => {
        impl Encode for $record {
            fn encode(&self, output: &mut ::std::vec::Vec<u8>) {
                $(self.$field.encode(output);)*
            }
        }

        impl Decode for $record {
            fn decode(input: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                ::std::result::Result::Ok(Self { $($field: input.read()?),* })
            }
        }
    };
}

/// Implements both for an enum or a variant of the contract: the number of the case in a byte, then what it carries.
macro_rules! cases {
    ($choice:ty { $($number:literal $case:ident $(($carried:ident))?)* }) => {
        impl Encode for $choice {
            fn encode(&self, output: &mut ::std::vec::Vec<u8>) {
                match self {
                    $(Self::$case $(($carried))? => ($number, $($carried)?).encode(output),)*
                }
            }
        }

        impl Decode for $choice {
            fn decode(input: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                ::std::result::Result::Ok(match input.read::<u8>()? {
                    $($number => Self::$case $(({ let $carried = input.read()?; $carried }))?,)*
                    _ => return ::std::result::Result::Err(Malformed("a case that the contract does not have".into())),
                })
            }
        }
    };
}

pub(crate) use {cases, record};
