//! Reads requests off the bytes of an input. Most arguments are near what is allowed, some are far from it.

use arbitrary::{Result, Unstructured};
use tunebox_compute::DType;

use super::request::{ARITHMETIC, COMPARISONS, Index, LOGIC, REDUCTIONS, Request, SCALAR, SCANS, UNARY};

const TYPES: [DType; 7] = [DType::F32, DType::U8, DType::U32, DType::I64, DType::F16, DType::BF16, DType::F64];

/// The next request; `held` tensors are on the table.
pub(super) fn request(bytes: &mut Unstructured<'_>, held: usize) -> Result<Request> {
    let choice: u8 = bytes.arbitrary()?;
    if held == 0 || choice.is_multiple_of(4) {
        return fresh(choice / 4, bytes, held);
    }
    let mut reader = Reader { bytes, held };
    let x = reader.index()?;
    Ok(match choice / 4 % 36 {
        0..4 => Request::Elementwise(reader.below(UNARY.len())?, x),
        4 => Request::Scalar(reader.below(SCALAR.len())?, x, reader.number()?),
        5 => Request::Clamp(x, reader.maybe(Reader::number)?, reader.maybe(Reader::number)?),
        6 => Request::IsFinite(x),
        7 => Request::Not(x),
        8 => Request::Detach(x),
        9 => Request::Cast(x, reader.dtype()?),
        10..13 => Request::Reduce(reader.below(REDUCTIONS.len())?, x, reader.maybe(Reader::axis)?, reader.flag()?),
        13 => Request::Masked(reader.flag()?, x, reader.index()?, reader.maybe(Reader::axis)?, reader.flag()?),
        14 => Request::Scan(reader.below(SCANS.len())?, x, reader.axis()?),
        15 => Request::Sort(x, reader.axis()?, reader.flag()?),
        16 => Request::Argsort(x, reader.axis()?, reader.flag()?),
        17 => Request::Topk(x, reader.axis()?, reader.length()?),
        18 => Request::Quantile(x, reader.number()?),
        19 => Request::Gather(x, reader.axis()?, reader.index()?),
        20 => Request::Select(x, reader.axis()?, reader.index()?),
        21 => Request::AddAt(x, reader.axis()?, reader.index()?, reader.index()?),
        22 => Request::Segments(x, reader.index()?, reader.length()?),
        23 => reader.shaped(x)?,
        24 | 25 => reader.moved(x)?,
        26..29 => Request::Arithmetic(reader.below(ARITHMETIC.len())?, x, reader.index()?),
        29 => Request::Compare(reader.below(COMPARISONS.len())?, x, reader.index()?),
        30 => Request::Logic(reader.below(LOGIC.len())?, x, reader.index()?),
        31 => Request::Where(x, reader.index()?, reader.index()?),
        32 => Request::Matmul(x, reader.index()?),
        33 if reader.flag()? => Request::Outer(x, reader.index()?),
        33 => Request::Dot(x, reader.index()?),
        34 if reader.flag()? => Request::Concat(reader.indices()?, reader.axis()?),
        34 => Request::Stack(reader.indices()?, reader.axis()?),
        _ => match reader.below(8)? {
            0 => Request::Chain(reader.below(UNARY.len())?, x, reader.bytes.arbitrary()?),
            1..3 => Request::Leaf(x),
            3 => Request::Drop(x),
            _ => Request::Gradient(x, reader.index()?),
        },
    })
}

/// A new tensor.
fn fresh(choice: u8, bytes: &mut Unstructured<'_>, held: usize) -> Result<Request> {
    let mut reader = Reader { bytes, held };
    Ok(match choice % 12 {
        0 => Request::Zeros(reader.shape()?, reader.dtype()?),
        1 => Request::Ones(reader.shape()?, reader.dtype()?),
        2 => Request::Full(reader.shape()?, reader.number()? as f32),
        3 => Request::Arange(reader.number()? as f32, reader.number()? as f32, reader.length()?),
        4 | 5 => {
            let shape = reader.shape()?;
            Request::Indices(reader.list(&shape, |reader| Ok(u32::from(reader.bytes.arbitrary::<u8>()? % 6)))?, shape)
        }
        6 => Request::Random(reader.flag()?, reader.shape()?),
        7 => Request::Permutation(reader.length()?),
        _ => {
            let shape = reader.shape()?;
            Request::Numbers(reader.list(&shape, |reader| Ok(reader.number()? as f32))?, shape)
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

    fn index(&mut self) -> Result<Index> {
        self.below(self.held)
    }

    fn indices(&mut self) -> Result<Vec<Index>> {
        let count = match self.below(32)? {
            31 => 1_025,
            count => count % 5,
        };
        let (first, second) = (self.index()?, self.index()?);
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

    fn shaped(&mut self, x: Index) -> Result<Request> {
        Ok(match self.below(3)? {
            0 => Request::Reshape(x, self.shape()?),
            1 => Request::Expand(x, self.shape()?),
            _ => Request::Unsqueeze(x, self.axis()?),
        })
    }

    fn moved(&mut self, x: Index) -> Result<Request> {
        Ok(match self.below(6)? {
            0 => Request::Slice(x, self.axis()?, self.length()?, self.length()?),
            1 => Request::Chunk(x, self.axis()?, self.length()?),
            2 => Request::Transpose(x, self.axis()?, self.axis()?),
            3 => Request::Squeeze(x, self.axis()?),
            4 => Request::Roll(x, self.axis()?, self.bytes.arbitrary::<i8>()?.into()),
            _ => Request::Flip(x, self.axis()?),
        })
    }
}
