//! How values are written for the host and read from it.
//!
//! In the order of the contract, without gaps: integers and floats little-endian at their width, `bool` as a byte,
//! `char` as 32 bits; a text as its length in bytes and UTF-8, a list as its count and its items; an option as a byte and
//! perhaps the item, a result as a byte (0 when it went well) and the item of that case, if it has one; an enum or a
//! variant as the number of the case in a byte and what it carries; flags as 32 bits; records and tuples as their fields.

/// A value that can be written.
pub trait Encode {
    /// Writes it behind what is there.
    fn encode(&self, bytes: &mut Vec<u8>);
}

/// A value that can be read.
pub trait Decode: Sized {
    /// Reads it from the front. Errors: bytes that are not such a value.
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// What is left to read of a message.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The whole message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Asserts that nothing is left. Errors: something is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a message that goes on after its end")) }
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(u32::decode(self)?).map_err(|_| SHORT)
    }
}

const SHORT: Malformed = Malformed("a message that ends too early");

macro_rules! numbers {
    ($($kind:ty)+) => {
        $(
            impl Encode for $kind {
                fn encode(&self, bytes: &mut Vec<u8>) {
                    bytes.extend_from_slice(&self.to_le_bytes());
                }
            }

            impl Decode for $kind {
                fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
                    let (number, rest) = bytes.0.split_first_chunk().ok_or(SHORT)?;
                    bytes.0 = rest;
                    Ok(Self::from_le_bytes(*number))
                }
            }
        )+
    };
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

/// A count of items. What is longer than it can say is longer than a frame may be, and is refused there.
fn encode_count(count: usize, bytes: &mut Vec<u8>) {
    u32::try_from(count).unwrap_or(u32::MAX).encode(bytes);
}

/// A byte that says which of two cases it is.
fn decode_either(bytes: &mut Reader<'_>) -> Result<bool, Malformed> {
    match u8::decode(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed("a byte that should be 0 or 1")),
    }
}

impl Encode for bool {
    fn encode(&self, bytes: &mut Vec<u8>) {
        u8::from(*self).encode(bytes);
    }
}

impl Decode for bool {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        decode_either(bytes)
    }
}

impl Encode for char {
    fn encode(&self, bytes: &mut Vec<u8>) {
        u32::from(*self).encode(bytes);
    }
}

impl Decode for char {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        char::from_u32(u32::decode(bytes)?).ok_or(Malformed("a number that is no character"))
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Vec<u8>) {}
}

impl Decode for () {
    fn decode(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl Encode for str {
    fn encode(&self, bytes: &mut Vec<u8>) {
        encode_count(self.len(), bytes);
        bytes.extend_from_slice(self.as_bytes());
    }
}

impl Encode for String {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_str().encode(bytes);
    }
}

impl Decode for String {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = bytes.count()?;
        let text = std::str::from_utf8(bytes.take(count)?);
        text.map(str::to_owned).map_err(|_| Malformed("a text that is not UTF-8"))
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, bytes: &mut Vec<u8>) {
        encode_count(self.len(), bytes);
        self.iter().for_each(|item| item.encode(bytes));
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_slice().encode(bytes);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = bytes.count()?;
        // A count that lies costs no memory: every item of the contract is a byte at least.
        if count > bytes.0.len() {
            return Err(SHORT);
        }
        (0..count).map(|_| T::decode(bytes)).collect()
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, bytes: &mut Vec<u8>) {
        (**self).encode(bytes);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.is_some().encode(bytes);
        self.iter().for_each(|item| item.encode(bytes));
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        if decode_either(bytes)? { T::decode(bytes).map(Some) } else { Ok(None) }
    }
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.is_err().encode(bytes);
        match self {
            Ok(value) => value.encode(bytes),
            Err(error) => error.encode(bytes),
        }
    }
}

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
        if decode_either(bytes)? { E::decode(bytes).map(Err) } else { T::decode(bytes).map(Ok) }
    }
}

macro_rules! tuples {
    ($(($($name:ident $place:tt)+))+) => {
        $(
            impl<$($name: Encode),+> Encode for ($($name,)+) {
                fn encode(&self, bytes: &mut Vec<u8>) {
                    $(self.$place.encode(bytes);)+
                }
            }

            impl<$($name: Decode),+> Decode for ($($name,)+) {
                fn decode(bytes: &mut Reader<'_>) -> Result<Self, Malformed> {
                    Ok(($($name::decode(bytes)?,)+))
                }
            }
        )+
    };
}

tuples! { (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) }
