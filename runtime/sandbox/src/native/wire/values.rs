//! The types of WIT that every interface has: numbers, texts, lists, options, results, tuples and handles.

use wasmtime::component::Resource;

use super::{Decode, Encode, Input, malformed};
use crate::cause::Cause;

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

/// A length; what is longer than 4 GiB fits into no message and is refused there.
fn length(count: usize, output: &mut Vec<u8>) {
    u32::try_from(count).unwrap_or(u32::MAX).encode(output);
}
