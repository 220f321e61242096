//! What a run keeps in which type on which device.
//!
//! Matrices of a model are kept by it, the optimiser's moments and what is trained are made by it, and forecasts of memory
//! count by it. The fused operations take and give f32 by themselves, as it says of activations and sums.

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
pub enum Purpose {
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
    pub const fn kept(self, purpose: Purpose) -> Kept {
        match purpose {
            Purpose::Linear => match self.base {
                Base::Stored => Kept::AsStored,
                Base::Nf4 => Kept::In(Format::NF4),
            },
            Purpose::Vocabulary => Kept::AsStored,
            Purpose::Vector | Purpose::Activation | Purpose::Trained | Purpose::Sum | Purpose::Moment => {
                Kept::As(DType::F32)
            }
        }
    }

    /// The type of numbers that are no matrices of the model: one of [`Purpose::Vector`] and what follows it.
    #[must_use]
    pub const fn dtype(purpose: Purpose) -> DType {
        match Self::ORDINARY.kept(purpose) {
            Kept::As(dtype) => dtype,
            Kept::AsStored | Kept::In(_) => DType::F32,
        }
    }

    /// Bytes of some numbers that are no matrices of the model.
    #[must_use]
    pub fn bytes(purpose: Purpose, numbers: u64) -> u64 {
        numbers.saturating_mul(Self::dtype(purpose).size_in_bytes() as u64)
    }

    /// Whether a matrix of so many columns is quantised when it is read. One that NF4 cannot hold, its rows being no whole
    /// blocks, stays as it is stored.
    #[must_use]
    pub fn quantises(self, purpose: Purpose, columns: usize) -> bool {
        self.kept(purpose) == Kept::In(Format::NF4) && Format::NF4.bytes(1, columns).is_some()
    }

    /// A frozen matrix of a model as it is kept.
    ///
    /// # Errors
    /// When it is to be quantised and is already, in its file, or a number of it is not finite.
    pub fn keep(self, weight: Weight, purpose: Purpose) -> Result<Weight> {
        let columns = match &weight {
            Weight::Tensor(tensor) => tensor.dims().last().copied().unwrap_or(0),
            Weight::Packed(packed) => packed.columns(),
        };
        if !self.quantises(purpose, columns) {
            return Ok(weight);
        }
        match &weight {
            Weight::Packed(packed) if packed.format().block() > 1 => {
                Err(twice_quantised(&format!("{:?}", packed.format())))
            }
            _ => weight.to_nf4(),
        }
    }

    /// Each kind of number with what it is kept in, in words, for people.
    #[must_use]
    pub fn lines(self) -> Vec<(&'static str, Kept)> {
        [
            ("linear weights", Purpose::Linear),
            ("embedding and head", Purpose::Vocabulary),
            ("norms and biases", Purpose::Vector),
            ("activations", Purpose::Activation),
            ("what is trained", Purpose::Trained),
            ("sums", Purpose::Sum),
            ("optimiser", Purpose::Moment),
        ]
        .map(|(name, purpose)| (name, self.kept(purpose)))
        .to_vec()
    }
}

/// The error of a base that is quantised in its file already and is to be quantised again.
#[must_use]
pub fn twice_quantised(format: &str) -> Error {
    Error::argument(format!(
        "a matrix in {format} is quantized already, and NF4 is made of plain numbers: leave `model.precision` \
         (`--precision`, `--base-precision`) out, the base is small as it is"
    ))
}

/// Zeros in the type that numbers of some kind are kept in.
///
/// # Errors
/// When the tensor library has no memory for them.
pub fn zeros(purpose: Purpose, count: usize, device: &Device) -> Result<Tensor> {
    Ok(Tensor::zeros(count, Precision::dtype(purpose), device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::Packed;

    #[test]
    fn nf4_is_for_the_linear_layers_alone() {
        let precision = Precision::new(Base::Nf4, &Device::Cpu).unwrap();
        let kept = |purpose| precision.kept(purpose).to_string();
        assert_eq!(kept(Purpose::Linear), "nf4");
        assert_eq!((kept(Purpose::Vocabulary), kept(Purpose::Activation)), ("as stored".into(), "f32".into()));
        let plain = |columns| Weight::from(Tensor::ones((2, columns), DType::BF16, &Device::Cpu).unwrap());
        let bytes = |weight: Weight, purpose| precision.keep(weight, purpose).unwrap().bytes();
        assert_eq!(bytes(plain(128), Purpose::Linear), 2 * 2 * 33 + 8);
        assert_eq!(bytes(plain(128), Purpose::Vocabulary), 2 * 2 * 128);
        assert_eq!(bytes(plain(100), Purpose::Linear), 2 * 2 * 100);
    }

    #[test]
    fn a_quantized_matrix_is_not_quantized_again() {
        let packed = Packed::new(vec![0; 34 * 2].into(), Format::Q8_0, 1, 64).unwrap();
        let error =
            Precision::new(Base::Nf4, &Device::Cpu).unwrap().keep(Weight::Packed(packed.into()), Purpose::Linear);
        assert!(error.unwrap_err().to_string().contains("Q8_0"));
    }
}
