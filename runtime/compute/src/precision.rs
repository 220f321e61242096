//! What a run keeps in which type on which device: the one place that says so.
//!
//! Whoever makes a buffer or loads a matrix asks here, and so does whoever foretells how much memory that takes.

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, Result};
use crate::weight::{Format, Weight};

/// What the frozen matrices of a model's blocks are kept in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Base {
    /// The format of the model's files.
    #[default]
    Stored,
    /// NF4 with double quantisation, made while the model is read.
    Nf4,
}

/// What a number is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The matrix of a linear layer of a block, frozen.
    Linear,
    /// The embedding of tokens and the head, frozen; one matrix where a model ties them.
    Vocabulary,
    /// Weights of norms, and biases.
    Vector,
    /// What goes through the blocks, and what is kept of it.
    Activation,
    /// What is trained, an adapter or all weights, and its gradient.
    Trained,
    /// Sums of products and of losses, on their way.
    Sum,
    /// The moments of the optimiser.
    Moment,
}

/// What numbers are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The format of the model's files; one that no product reads is widened to f32.
    AsStored,
    /// A format of [`Weight`].
    In(Format),
    /// A type of the tensor library.
    As(DType),
}

impl std::fmt::Display for Kept {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AsStored => formatter.write_str("as stored"),
            Self::In(format) => write!(formatter, "{}", format!("{format:?}").to_lowercase()),
            Self::As(dtype) => formatter.write_str(dtype.as_str()),
        }
    }
}

/// What everything is kept in, on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Precision {
    base: Base,
}

impl Precision {
    /// Everything but frozen matrices: they do not depend on what a run asks for.
    pub const ORDINARY: Self = Self { base: Base::Stored };

    /// What a device keeps of a run whose base is asked for in some way.
    ///
    /// # Errors
    /// When products of the device do not read such a base.
    pub fn new(base: Base, device: &Device) -> Result<Self> {
        if base == Base::Nf4 && !device.is_cpu() {
            let device = crate::device::describe(device);
            return Err(Error::Unavailable { device, why: "products in NF4 run on the CPU alone".to_owned() });
        }
        Ok(Self { base })
    }

    /// How the base was asked for.
    #[must_use]
    pub fn base(self) -> Base {
        self.base
    }

    /// What numbers of some kind are kept in.
    #[must_use]
    pub const fn kept(self, role: Role) -> Kept {
        match role {
            Role::Linear => match self.base {
                Base::Stored => Kept::AsStored,
                Base::Nf4 => Kept::In(Format::NF4),
            },
            Role::Vocabulary => Kept::AsStored,
            Role::Vector | Role::Activation | Role::Trained | Role::Sum | Role::Moment => Kept::As(DType::F32),
        }
    }

    /// The type of numbers that are no matrices of the model: one of [`Role::Vector`] and what follows it.
    #[must_use]
    pub const fn dtype(role: Role) -> DType {
        match Self::ORDINARY.kept(role) {
            Kept::As(dtype) => dtype,
            Kept::AsStored | Kept::In(_) => DType::F32,
        }
    }

    /// Bytes of some numbers that are no matrices of the model.
    #[must_use]
    pub fn bytes(role: Role, numbers: u64) -> u64 {
        numbers.saturating_mul(Self::dtype(role).size_in_bytes() as u64)
    }

    /// A frozen matrix of a model as it is kept; one that NF4 cannot hold, its rows being no whole blocks, stays as it
    /// is stored.
    ///
    /// # Errors
    /// When it is quantized in its file already, or a number of it is not finite.
    pub fn keep(self, weight: Weight, role: Role) -> Result<Weight> {
        let columns = match &weight {
            Weight::Tensor(tensor) => tensor.dims().last().copied().unwrap_or(0),
            Weight::Packed(packed) => packed.columns(),
        };
        match self.kept(role) {
            Kept::In(Format::NF4) if Format::NF4.bytes(1, columns).is_some() => {
                if let Weight::Packed(packed) = &weight
                    && packed.format().block() > 1
                {
                    let found = packed.format();
                    return Err(Error::argument(format!(
                        "a matrix in {found:?} is quantized already; NF4 is made of plain numbers"
                    )));
                }
                weight.to_nf4()
            }
            _ => Ok(weight),
        }
    }

    /// Each kind of number with what it is kept in, in words, for people.
    #[must_use]
    pub fn lines(self) -> Vec<(&'static str, Kept)> {
        [
            ("linear weights", Role::Linear),
            ("embedding and head", Role::Vocabulary),
            ("norms and biases", Role::Vector),
            ("activations", Role::Activation),
            ("what is trained", Role::Trained),
            ("sums", Role::Sum),
            ("optimiser", Role::Moment),
        ]
        .map(|(name, role)| (name, self.kept(role)))
        .to_vec()
    }
}

/// Zeros in the type that numbers of some kind are kept in.
///
/// # Errors
/// When the tensor library has no memory for them.
pub fn zeros(role: Role, count: usize, device: &Device) -> Result<Tensor> {
    Ok(Tensor::zeros(count, Precision::dtype(role), device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::Packed;

    #[test]
    fn nf4_is_for_the_linear_layers_alone() {
        let precision = Precision::new(Base::Nf4, &Device::Cpu).unwrap();
        let kept = |role| precision.kept(role).to_string();
        assert_eq!(kept(Role::Linear), "nf4");
        assert_eq!((kept(Role::Vocabulary), kept(Role::Activation)), ("as stored".into(), "f32".into()));
        let plain = |columns| Weight::from(Tensor::ones((2, columns), DType::BF16, &Device::Cpu).unwrap());
        let bytes = |weight: Weight, role| precision.keep(weight, role).unwrap().bytes();
        assert_eq!(bytes(plain(128), Role::Linear), 2 * 2 * 33 + 8);
        assert_eq!(bytes(plain(128), Role::Vocabulary), 2 * 2 * 128);
        assert_eq!(bytes(plain(100), Role::Linear), 2 * 2 * 100);
    }

    #[test]
    fn a_quantized_matrix_is_not_quantized_again() {
        let packed = Packed::new(vec![0; 34 * 2].into(), Format::Q8_0, 1, 64).unwrap();
        let error = Precision::new(Base::Nf4, &Device::Cpu).unwrap().keep(Weight::Packed(packed.into()), Role::Linear);
        assert!(error.unwrap_err().to_string().contains("Q8_0"));
    }
}
