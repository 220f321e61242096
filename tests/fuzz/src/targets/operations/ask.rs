//! Reads wishes off the bytes of an input. Most arguments are near what is allowed, some are far from it.

use arbitrary::{Result, Unstructured};
use tunebox_compute::DType;

use super::wish::{ARITHMETIC, COMPARISONS, LOGIC, Place, REDUCTIONS, SCALAR, SCANS, UNARY, Wish};

const TYPES: [DType; 7] = [DType::F32, DType::U8, DType::U32, DType::I64, DType::F16, DType::BF16, DType::F64];

/// The next wish; `held` tensors are on the table.
pub(super) fn wish(bytes: &mut Unstructured<'_>, held: usize) -> Result<Wish> {
    let choice: u8 = bytes.arbitrary()?;
    if held == 0 || choice.is_multiple_of(4) {
        return fresh(choice / 4, bytes, held);
    }
    let mut reader = Reader { bytes, held };
    let x = reader.place()?;
    Ok(match choice / 4 % 36 {
        0..4 => Wish::Elementwise(reader.below(UNARY.len())?, x),
        4 => Wish::Scalar(reader.below(SCALAR.len())?, x, reader.number()?),
        5 => Wish::Clamp(x, reader.maybe(Reader::number)?, reader.maybe(Reader::number)?),
        6 => Wish::IsFinite(x),
        7 => Wish::Not(x),
        8 => Wish::Detach(x),
        9 => Wish::Cast(x, reader.dtype()?),
        10..13 => Wish::Reduce(reader.below(REDUCTIONS.len())?, x, reader.maybe(Reader::axis)?, reader.flag()?),
        13 => Wish::Masked(reader.flag()?, x, reader.place()?, reader.maybe(Reader::axis)?, reader.flag()?),
        14 => Wish::Scan(reader.below(SCANS.len())?, x, reader.axis()?),
        15 => Wish::Sort(x, reader.axis()?, reader.flag()?),
        16 => Wish::Argsort(x, reader.axis()?, reader.flag()?),
        17 => Wish::Top(x, reader.axis()?, reader.length()?),
        18 => Wish::Quantile(x, reader.number()?),
        19 => Wish::Gather(x, reader.axis()?, reader.place()?),
        20 => Wish::Select(x, reader.axis()?, reader.place()?),
        21 => Wish::AddAt(x, reader.axis()?, reader.place()?, reader.place()?),
        22 => Wish::Segments(x, reader.place()?, reader.length()?),
        23 => reader.shaped(x)?,
        24 | 25 => reader.moved(x)?,
        26..29 => Wish::Arithmetic(reader.below(ARITHMETIC.len())?, x, reader.place()?),
        29 => Wish::Compare(reader.below(COMPARISONS.len())?, x, reader.place()?),
        30 => Wish::Logic(reader.below(LOGIC.len())?, x, reader.place()?),
        31 => Wish::Choose(x, reader.place()?, reader.place()?),
        32 => Wish::Matmul(x, reader.place()?),
        33 if reader.flag()? => Wish::Outer(x, reader.place()?),
        33 => Wish::Dot(x, reader.place()?),
        34 if reader.flag()? => Wish::Concat(reader.places()?, reader.axis()?),
        34 => Wish::Stack(reader.places()?, reader.axis()?),
        _ => match reader.below(8)? {
            0 => Wish::Chain(reader.below(UNARY.len())?, x, reader.bytes.arbitrary()?),
            1..3 => Wish::Leaf(x),
            3 => Wish::Drop(x),
            _ => Wish::Gradient(x, reader.place()?),
        },
    })
}

/// A new tensor.
fn fresh(choice: u8, bytes: &mut Unstructured<'_>, held: usize) -> Result<Wish> {
    let mut reader = Reader { bytes, held };
    Ok(match choice % 12 {
        0 => Wish::Zeros(reader.shape()?, reader.dtype()?),
        1 => Wish::Ones(reader.shape()?, reader.dtype()?),
        2 => Wish::Full(reader.shape()?, reader.number()? as f32),
        3 => Wish::Sequence(reader.number()? as f32, reader.number()? as f32, reader.length()?),
        4 | 5 => {
            let shape = reader.shape()?;
            Wish::Indices(reader.list(&shape, |reader| Ok(u32::from(reader.bytes.arbitrary::<u8>()? % 6)))?, shape)
        }
        6 => Wish::Random(reader.flag()?, reader.shape()?),
        7 => Wish::Permutation(reader.length()?),
        _ => {
            let shape = reader.shape()?;
            Wish::Numbers(reader.list(&shape, |reader| Ok(reader.number()? as f32))?, shape)
        }
    })
}

struct Reader<'bytes, 'input> {
    bytes: &'bytes mut Unstructured<'input>,
    held: usize,
}

impl Reader<'_, '_> {
    fn below(&mut self, count: usize) -> Result<usize> {
        Ok(usize::from(self.bytes.arbitrary::<u8>()?) % count.max(1))
    }

    fn flag(&mut self) -> Result<bool> {
        Ok(self.bytes.arbitrary::<u8>()? & 1 == 1)
    }

    fn maybe<T>(&mut self, what: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.flag()? { what(self).map(Some) } else { Ok(None) }
    }

    fn place(&mut self) -> Result<Place> {
        self.below(self.held)
    }

    fn places(&mut self) -> Result<Vec<Place>> {
        let count = match self.below(32)? {
            31 => 1_025,
            count => count % 5,
        };
        let (first, second) = (self.place()?, self.place()?);
        Ok((0..count).map(|number| if number % 2 == 0 { first } else { second }).collect())
    }

    fn dtype(&mut self) -> Result<DType> {
        Ok(TYPES[self.below(TYPES.len())?])
    }

    fn axis(&mut self) -> Result<i32> {
        let byte: u8 = self.bytes.arbitrary()?;
        Ok(match byte {
            0..240 => i32::from(byte % 7) - 3,
            240..248 => i32::from(byte) - 244 + 8,
            248..252 => i32::MIN,
            _ => i32::MAX,
        })
    }

    fn length(&mut self) -> Result<u32> {
        let byte: u8 = self.bytes.arbitrary()?;
        Ok(match byte {
            0..224 => u32::from(byte % 9),
            224..240 => u32::from(byte) * 37,
            240..246 => 1 << (byte - 220),
            246..252 => i32::MAX as u32,
            _ => u32::MAX,
        })
    }

    fn shape(&mut self) -> Result<Vec<u32>> {
        match self.below(40)? {
            39 => return Ok(vec![4, 2_147_418_113, 2_147_549_185]),
            38 => return Ok(vec![65_536, 65_536, 65_536, 65_536]),
            37 => return Ok(vec![1; 9]),
            36 => return Ok(vec![i32::MAX as u32]),
            _ => {}
        }
        let rank = self.below(18)? % 5;
        (0..rank).map(|_| self.length()).collect()
    }

    fn number(&mut self) -> Result<f64> {
        let byte: u8 = self.bytes.arbitrary()?;
        Ok(match byte {
            0..200 => (f64::from(byte) - 100.0) / 8.0,
            200..230 => (f64::from(byte) - 215.0) * 1e5,
            230 => f64::NAN,
            231 => f64::INFINITY,
            232 => f64::NEG_INFINITY,
            233 => 1e308,
            234 => -1e308,
            235 => 1e-45,
            236 => f64::MIN_POSITIVE,
            237 => -0.0,
            238 => f64::from(f32::MAX),
            239 => 65_504.0,
            240 => 16_777_216.0,
            241 => 88.8,
            242 => -104.0,
            _ => f64::from(self.bytes.arbitrary::<f32>()?),
        })
    }

    /// As many numbers as a shape holds, and sometimes one more; few where it holds many.
    fn list<T: Clone>(&mut self, shape: &[u32], mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let held = shape.iter().fold(1_u32, |held, length| held.saturating_mul(*length));
        let count = held.min(64) as usize + usize::from(self.below(50)? == 49);
        let some: Vec<T> = (0..count.min(8)).map(|_| one(self)).collect::<Result<_>>()?;
        Ok(some.iter().cycle().take(if some.is_empty() { 0 } else { count }).cloned().collect())
    }

    fn shaped(&mut self, x: Place) -> Result<Wish> {
        Ok(match self.below(3)? {
            0 => Wish::Reshape(x, self.shape()?),
            1 => Wish::Expand(x, self.shape()?),
            _ => Wish::Unsqueeze(x, self.axis()?),
        })
    }

    fn moved(&mut self, x: Place) -> Result<Wish> {
        Ok(match self.below(6)? {
            0 => Wish::Slice(x, self.axis()?, self.length()?, self.length()?),
            1 => Wish::Chunk(x, self.axis()?, self.length()?),
            2 => Wish::Transpose(x, self.axis()?, self.axis()?),
            3 => Wish::Squeeze(x, self.axis()?),
            4 => Wish::Roll(x, self.axis()?, self.bytes.arbitrary::<i8>()?.into()),
            _ => Wish::Flip(x, self.axis()?),
        })
    }
}
