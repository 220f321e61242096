//! The precision settings of a run.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::weight::Format;

/// Number format of the frozen matrices of a model's blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// The format of the model's files.
    #[default]
    Stored,
    /// 4-bit NF4 with double quantization, computed while the model is read; for adapters on a base of unquantized
    /// weights.
    Nf4,
    /// 8-bit Q8_0 of GGUF files, in which 32 numbers share a scale, computed while the model is read: finer than the
    /// int8 of bitsandbytes; for adapters on a base of unquantized weights.
    #[serde(rename = "q8_0")]
    Q8_0,
}

impl Base {
    /// The format to which matrices are quantized while a model is read; `None` if they stay as stored.
    #[must_use]
    pub const fn format(self) -> Option<Format> {
        match self {
            Self::Stored => None,
            Self::Nf4 => Some(Format::NF4),
            Self::Q8_0 => Some(Format::Q8_0),
        }
    }

    /// Whether the matrices keep the format of the model's files.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        *self == Self::Stored
    }
}

impl fmt::Display for Base {
    /// Writes the name that settings files use: `stored`, `nf4` or `q8_0`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// Number format of activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// `bf16`, but `f32` on a CPU that does not multiply bf16 faster than f32, and on any CPU for models of fewer than
    /// ten million weights.
    #[default]
    Auto,
    /// 16 bits, 8 of them exponent, with sums in f32.
    Bf16,
    /// 32 bits.
    F32,
}

/// The precision that a run asks for. Together with the device it determines a [`Precision`](super::Precision).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrecisionRequest {
    /// The number format of the frozen matrices of the model's blocks.
    pub base: Base,
    /// The number format of activations.
    pub compute: Compute,
}

impl From<Base> for PrecisionRequest {
    /// Asks for this format of the base, with [`Compute::Auto`] for activations.
    fn from(base: Base) -> Self {
        Self { base, compute: Compute::Auto }
    }
}
