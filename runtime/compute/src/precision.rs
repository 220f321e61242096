//! What a run keeps in which type on which device.
//!
//! Matrices of a model are kept by it, the optimiser's moments and what is trained are made by it, activations begin by it
//! at the embedding, and forecasts of memory count by it. A fused operation gives what it takes, and sums in f32.

mod asked;

use candle_core::{DType, Device, Tensor};

pub use self::asked::{Asked, Base, Compute};
use crate::error::{Error, Result};
use crate::weight::{Format, Weight};

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
    /// Plain numbers in this type, so that both sides of a product are alike; blocks as in the model's files.
    Plain(DType),
    /// A format of [`Weight`].
    In(Format),
    /// A type of the tensor library.
    As(DType),
}

impl std::fmt::Display for Kept {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AsStored => formatter.write_str("as stored"),
            Self::Plain(dtype) => write!(formatter, "{}, quantized ones as stored", dtype.as_str()),
            Self::In(format) => write!(formatter, "{}", format!("{format:?}").to_lowercase()),
            Self::As(dtype) => formatter.write_str(dtype.as_str()),
        }
    }
}

/// What everything is kept in, on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    asked: Asked,
    /// The type of [`Purpose::Activation`].
    activations: DType,
    /// The type of plain matrices; none leaves them as they are stored.
    plain: Option<DType>,
}

impl Default for Precision {
    fn default() -> Self {
        Self::ORDINARY
    }
}

impl Precision {
    /// That of the CPU where nothing is asked for.
    pub const ORDINARY: Self = Self::of_cpu(Asked { base: Base::Stored, compute: Compute::Auto });

    const fn of_cpu(asked: Asked) -> Self {
        Self { asked, activations: DType::F32, plain: None }
    }

    /// Products of an accelerator take both sides in one type, and its tensor cores take bf16.
    const fn of_accelerator(asked: Asked) -> Self {
        let activations = match asked.compute {
            Compute::Auto | Compute::Bf16 => DType::BF16,
            Compute::F32 => DType::F32,
        };
        Self { asked, activations, plain: Some(activations) }
    }

    /// What a device keeps where nothing is asked for.
    #[must_use]
    pub fn usual(device: &Device) -> Self {
        let asked = Asked::default();
        if device.is_cpu() { Self::of_cpu(asked) } else { Self::of_accelerator(asked) }
    }

    /// What a device keeps of a run.
    ///
    /// # Errors
    /// [`Error::Argument`] where the device does not compute in what is asked for.
    pub fn new(asked: impl Into<Asked>, device: &Device) -> Result<Self> {
        let asked = asked.into();
        match (device.is_cpu(), asked.compute) {
            (true, Compute::Bf16) => Err(Error::argument(
                "the CPU computes in f32, not in bf16; weights that are stored in 16 bits stay so all the same",
            )),
            (true, _) => Ok(Self::of_cpu(asked)),
            (false, _) => Ok(Self::of_accelerator(asked)),
        }
    }

    /// What was asked for.
    #[must_use]
    pub fn asked(self) -> Asked {
        self.asked
    }

    /// How the base was asked for.
    #[must_use]
    pub fn base(self) -> Base {
        self.asked.base
    }

    /// What numbers of some kind are kept in.
    #[must_use]
    pub const fn kept(self, purpose: Purpose) -> Kept {
        match (purpose, self.asked.base, self.plain) {
            (Purpose::Linear, Base::Nf4, _) => Kept::In(Format::NF4),
            (Purpose::Linear | Purpose::Vocabulary, _, Some(dtype)) => Kept::Plain(dtype),
            (Purpose::Linear | Purpose::Vocabulary, _, None) => Kept::AsStored,
            (Purpose::Activation, ..) => Kept::As(self.activations),
            // What many small numbers are added to is never in 16 bits.
            (Purpose::Vector | Purpose::Trained | Purpose::Sum | Purpose::Moment, ..) => Kept::As(DType::F32),
        }
    }

    /// The type of plain numbers of some kind; f32 where they may stay as they are stored.
    #[must_use]
    pub const fn dtype(self, purpose: Purpose) -> DType {
        match self.kept(purpose) {
            Kept::As(dtype) | Kept::Plain(dtype) => dtype,
            Kept::AsStored | Kept::In(_) => DType::F32,
        }
    }

    /// What the plain numbers of a matrix are turned into when it is placed on the device; none leaves them as they are.
    #[must_use]
    pub const fn plain(self) -> Option<DType> {
        self.plain
    }

    /// Bytes of some numbers that are no matrices of the model.
    #[must_use]
    pub fn bytes(self, purpose: Purpose, numbers: u64) -> u64 {
        numbers.saturating_mul(self.dtype(purpose).size_in_bytes() as u64)
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

/// Zeros in the type that numbers of some kind are kept in: one of those that are the same on every device.
///
/// # Errors
/// When the tensor library has no memory for them.
pub fn zeros(purpose: Purpose, count: usize, device: &Device) -> Result<Tensor> {
    Ok(Tensor::zeros(count, Precision::ORDINARY.dtype(purpose), device)?)
}

/// Bytes that the numbers of a tensor take.
#[must_use]
pub fn bytes(tensor: &Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
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
    fn an_accelerator_computes_in_bf16_unless_told_otherwise_and_sums_in_f32() {
        let types = |compute| {
            let precision = Precision::of_accelerator(Asked { compute, ..Asked::default() });
            let all = [Purpose::Linear, Purpose::Activation, Purpose::Vector, Purpose::Trained, Purpose::Moment];
            all.map(|purpose| precision.dtype(purpose))
        };
        let (half, single) = (DType::BF16, DType::F32);
        assert_eq!(types(Compute::Auto), [half, half, single, single, single]);
        assert_eq!(types(Compute::Bf16), types(Compute::Auto));
        assert_eq!(types(Compute::F32), [single; 5]);
        let lines = Precision::of_accelerator(Base::Nf4.into()).lines();
        let kept: Vec<String> = lines.iter().map(|(_, kept)| kept.to_string()).collect();
        assert_eq!(kept[..4], ["nf4", "bf16, quantized ones as stored", "f32", "bf16"]);
    }

    #[test]
    fn the_cpu_computes_in_f32_and_says_so() {
        let precision = |compute| Precision::new(Asked { compute, ..Asked::default() }, &Device::Cpu);
        assert_eq!(precision(Compute::F32).unwrap().dtype(Purpose::Activation), DType::F32);
        assert_eq!(precision(Compute::Auto).unwrap(), Precision::ORDINARY);
        assert!(precision(Compute::Bf16).unwrap_err().to_string().contains("the CPU computes in f32"));
    }

    #[test]
    fn a_quantized_matrix_is_not_quantized_again() {
        let packed = Packed::new(vec![0; 34 * 2].into(), Format::Q8_0, 1, 64).unwrap();
        let error =
            Precision::new(Base::Nf4, &Device::Cpu).unwrap().keep(Weight::Packed(packed.into()), Purpose::Linear);
        assert!(error.unwrap_err().to_string().contains("Q8_0"));
    }
}
