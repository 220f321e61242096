//! What a run may ask for.

/// What the frozen matrices of a model's blocks are kept in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Base {
    /// The format of the model's files.
    #[default]
    Stored,
    /// NF4 with double quantization, made while the model is read.
    Nf4,
}

/// What activations are computed in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compute {
    /// What is best on the device: f32 on the CPU, bf16 on an accelerator.
    #[default]
    Auto,
    /// bf16, on accelerators.
    Bf16,
    /// f32, everywhere.
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
