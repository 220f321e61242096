//! The formats that products read: how many numbers lie in how many bytes.

use candle_core::DType;

use super::nf4;

/// How numbers are stored in bytes. The quantized formats but the last are those of GGML: blocks of 32 or 256 numbers
/// of one row that share a scale. `NF4` is in no file; it is computed when a model is read: see
/// [`Weight::to_nf4`](super::Weight::to_nf4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names that the field gives the formats")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
    NF4,
}

impl Format {
    /// (numbers, bytes) of a block.
    fn layout(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            Self::NF4 => (nf4::BLOCK, nf4::BLOCK_BYTES),
        }
    }

    /// The number of numbers in a block, the smallest unit that can be read. 1 for plain formats.
    #[must_use]
    pub fn block(self) -> usize {
        self.layout().0
    }

    /// The number of bytes of a block. For `NF4` without the scales that blocks share.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.layout().1
    }

    /// The element type that holds the format's numbers exactly: f16 and bf16 for themselves, f32 for all others.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            _ => DType::F32,
        }
    }

    /// Bytes of `rows` rows of `columns` numbers. `None` if a row is not whole blocks, or the count overflows.
    #[must_use]
    pub fn bytes(self, rows: usize, columns: usize) -> Option<usize> {
        let blocks = columns.is_multiple_of(self.block()).then_some(columns / self.block())?;
        rows.checked_mul(blocks)?.checked_mul(self.block_bytes())
    }
}
