//! The precision settings of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number format of the frozen matrices of a model's blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// The format of the model's files.
    #[default]
    Stored,
    /// 4-bit NF4 with double quantization, computed while the model is read; for adapters on a base of unquantized weights.
    Nf4,
}

impl Base {
    /// Whether the matrices keep the format of the model's files.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        *self == Self::Stored
    }
}

/// Number format of activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// `bf16`, but `f32` on a CPU that does not multiply bf16 faster than f32, and on any CPU for models of fewer than ten
    /// million weights.
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
