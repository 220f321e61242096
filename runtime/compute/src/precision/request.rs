//! What a run may ask for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the frozen matrices of a model's blocks are kept in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Base {
    /// The format of the model's files.
    #[default]
    Stored,
    /// NF4 with double quantization, made while the model is read.
    Nf4,
}

/// Number format of activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// `f32` on the CPU, `bf16` on other devices.
    #[default]
    Auto,
    /// 16 bits, 8 of them exponent; on accelerators only.
    Bf16,
    /// 32 bits.
    F32,
}

/// What a run asks for; the device decides the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrecisionRequest {
    /// What the frozen matrices of blocks are kept in.
    pub base: Base,
    /// What activations are computed in.
    pub compute: Compute,
}

impl From<Base> for PrecisionRequest {
    fn from(base: Base) -> Self {
        Self { base, compute: Compute::Auto }
    }
}
