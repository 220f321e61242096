//! In which type a run stores each kind of number on each device.
//!
//! This decides how the model's matrices are kept, in which type trained weights and the optimizer's moments are
//! created, in which type the embedding returns activations, and how many bytes memory estimates count. A fused
//! operation returns the type of its input, and sums in f32.

mod request;

use candle_core::{DType, Device, Tensor};

pub use self::request::{Base, Compute, PrecisionRequest};
use crate::error::{Error, Result};
use crate::fused::bf16_is_faster;
use crate::weight::{Format, Weight};

/// What numbers are used for, which decides how they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The matrix of a linear layer of a block, frozen.
    Linear,
    /// The token embedding and the output head, frozen; one matrix where a model ties them.
    Vocabulary,
    /// Weights of norms, and biases.
    Vector,
    /// Activations between the operations of the model, and those that are saved for the backward pass.
    Activation,
    /// Temporary buffers of operations, and the key-value cache of generation.
    Scratch,
    /// Trained weights, of an adapter or all of the model, and their gradients.
    Trained,
    /// Sums, as of matrix products and losses, while they are computed.
    Sum,
    /// The moments of the optimizer.
    Moment,
}

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The format of the model's files; a format that no product reads is converted to f32.
    AsStored,
    /// Unquantized numbers in this type, so that both operands of a product have one type; quantized blocks as in the
    /// model's files.
    Plain(DType),
    /// A format of [`Weight`].
    Format(Format),
    /// This element type.
    Dtype(DType),
}

impl std::fmt::Display for Storage {
    /// Writes text for users: `as stored` for [`AsStored`](Self::AsStored), the type and `, quantized ones as stored`
    /// for [`Plain`](Self::Plain), else the lower-case name of the format or element type, such as `nf4`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AsStored => formatter.write_str("as stored"),
            Self::Plain(dtype) => write!(formatter, "{}, quantized ones as stored", dtype.as_str()),
            Self::Format(format) => write!(formatter, "{}", format!("{format:?}").to_lowercase()),
            Self::Dtype(dtype) => formatter.write_str(dtype.as_str()),
        }
    }
}

/// The number of weights from which on [`Compute::Auto`] selects bf16 on a CPU that multiplies bf16 faster than f32.
/// Training steps of the bundled model, with half a million weights, are no faster in bf16.
pub const SMALL_MODEL: u64 = 10_000_000;

/// How each kind of number is stored on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// The request that this precision follows from.
    asked: PrecisionRequest,
    /// The type of activations.
    activations: DType,
    /// The type of unquantized matrices on an accelerator, the same as that of activations. `None` on the CPU, which
    /// leaves matrices as they are stored.
    plain: Option<DType>,
}

impl Default for Precision {
    /// Returns [`Precision::CPU_DEFAULT`]: the CPU, in f32, with matrices as stored.
    fn default() -> Self {
        Self::CPU_DEFAULT
    }
}

impl Precision {
    /// The precision of the CPU in f32.
    pub const CPU_DEFAULT: Self = Self {
        asked: PrecisionRequest { base: Base::Stored, compute: Compute::Auto },
        activations: DType::F32,
        plain: None,
    };

    /// The precision that follows from a request on an accelerator. Activations and plain matrices share one type,
    /// since products take both operands in one: bf16 unless f32 is asked for.
    const fn of_accelerator(asked: PrecisionRequest) -> Self {
        let activations = match asked.compute {
            Compute::Auto | Compute::Bf16 => DType::BF16,
            Compute::F32 => DType::F32,
        };
        Self { asked, activations, plain: Some(activations) }
    }

    /// The precision that follows from the request `asked` on `device`, for a model of `weights` numbers. On an
    /// accelerator, activations and unquantized matrices are in bf16, or in f32 if [`Compute::F32`] is asked for. On
    /// the CPU, unquantized matrices keep the type of the files. Activations are in bf16 on the CPU for
    /// [`Compute::Bf16`], and for [`Compute::Auto`] if the model has at least [`SMALL_MODEL`] numbers and this CPU
    /// multiplies bf16 faster than f32; else in f32.
    #[must_use]
    pub fn of(asked: impl Into<PrecisionRequest>, device: &Device, weights: u64) -> Self {
        let asked = asked.into();
        let is_faster = || weights >= SMALL_MODEL && bf16_is_faster();
        match asked.compute {
            _ if !device.is_cpu() => Self::of_accelerator(asked),
            Compute::Bf16 => Self { asked, activations: DType::BF16, plain: None },
            Compute::Auto if is_faster() => Self { asked, activations: DType::BF16, plain: None },
            Compute::Auto | Compute::F32 => Self { asked, ..Self::CPU_DEFAULT },
        }
    }

    /// The request that this precision was made from.
    #[must_use]
    pub fn request(self) -> PrecisionRequest {
        self.asked
    }

    /// The format that the request asks for, of the frozen linear matrices. Does not depend on how they are stored.
    #[must_use]
    pub fn base(self) -> Base {
        self.asked.base
    }

    /// Returns how numbers of some purpose are stored. Linear matrices are in the format that the request names. All
    /// other matrices keep the format of the files, except that unquantized ones take the type of activations on an
    /// accelerator. Activations, and scratch on an accelerator, are in the type of activations. The rest is in f32.
    #[must_use]
    pub const fn storage(self, purpose: Purpose) -> Storage {
        match (purpose, self.asked.base.format(), self.plain) {
            (Purpose::Linear, Some(format), _) => Storage::Format(format),
            (Purpose::Linear | Purpose::Vocabulary, _, Some(dtype)) => Storage::Plain(dtype),
            (Purpose::Linear | Purpose::Vocabulary, _, None) => Storage::AsStored,
            (Purpose::Activation, ..) | (Purpose::Scratch, _, Some(_)) => Storage::Dtype(self.activations),
            // Never 16 bits: a small number that is added to a large one would be lost.
            (Purpose::Scratch | Purpose::Vector | Purpose::Trained | Purpose::Sum | Purpose::Moment, ..) => {
                Storage::Dtype(DType::F32)
            }
        }
    }

    /// The element type of plain numbers of some purpose; f32 where they are stored as in the model's files or
    /// quantized.
    #[must_use]
    pub const fn dtype(self, purpose: Purpose) -> DType {
        match self.storage(purpose) {
            Storage::Dtype(dtype) | Storage::Plain(dtype) => dtype,
            Storage::AsStored | Storage::Format(_) => DType::F32,
        }
    }

    /// The type to which a matrix of plain numbers is converted when it is placed on the device. `None` on the CPU,
    /// which leaves matrices as they are stored.
    #[must_use]
    pub const fn plain(self) -> Option<DType> {
        self.plain
    }

    /// Bytes of `numbers` numbers of some purpose in [`dtype`](Self::dtype), saturating. Not for matrices of the model,
    /// whose storage may be quantized.
    #[must_use]
    pub fn bytes(self, purpose: Purpose, numbers: u64) -> u64 {
        numbers.saturating_mul(self.dtype(purpose).size_in_bytes() as u64)
    }

    /// Returns the format to which a matrix of this purpose is quantized when the model is read: for a linear matrix,
    /// the format that the request names. `None` if the matrix stays as it is stored, as it does if `columns`, the
    /// length of a row, is no multiple of the block size.
    #[must_use]
    pub fn target_format(self, purpose: Purpose, columns: usize) -> Option<Format> {
        match self.storage(purpose) {
            Storage::Format(format) => format.bytes(1, columns).map(|_| format),
            _ => None,
        }
    }

    /// Quantizes a frozen matrix of the CPU if [`target_format`](Self::target_format) gives a format for it, else
    /// returns it as it is.
    ///
    /// # Errors
    /// Only for a matrix that is to be quantized: [`Error::Argument`] when it is quantized already or a number of it is
    /// not finite, [`Error::Shape`] when it does not have two axes; also when it is on an accelerator.
    pub fn convert(self, weight: Weight, purpose: Purpose) -> Result<Weight> {
        let columns = match &weight {
            Weight::Tensor(tensor) => tensor.dims().last().copied().unwrap_or(0),
            Weight::Packed(packed) => packed.columns(),
        };
        let Some(format) = self.target_format(purpose, columns) else { return Ok(weight) };
        match &weight {
            Weight::Packed(packed) if packed.format().block() > 1 => {
                Err(already_quantized(&format!("{:?}", packed.format())))
            }
            _ => weight.quantize(format),
        }
    }

    /// Returns (name, storage) for each purpose but [`Purpose::Scratch`], in the order in which they are displayed.
    #[must_use]
    pub fn lines(self) -> Vec<(&'static str, Storage)> {
        [
            ("linear weights", Purpose::Linear),
            ("embedding and head", Purpose::Vocabulary),
            ("norms and biases", Purpose::Vector),
            ("activations", Purpose::Activation),
            ("what is trained", Purpose::Trained),
            ("sums", Purpose::Sum),
            ("optimizer", Purpose::Moment),
        ]
        .map(|(name, purpose)| (name, self.storage(purpose)))
        .to_vec()
    }
}

/// The error of quantizing a matrix that is already quantized, in `format`.
#[must_use]
pub fn already_quantized(format: &str) -> Error {
    Error::argument(format!(
        "a matrix in {format} is quantized already, and only plain numbers are quantized while a model is read: leave \
         `model.precision` (`--precision`, `--base-precision`) out, the base is small as it is"
    ))
}

/// Returns the bytes that the elements of a tensor take, their number times the size of their type: of a view only
/// those that it shows.
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
        let precision = Precision::of(Base::Nf4, &Device::Cpu, 0);
        let kept = |purpose| precision.storage(purpose).to_string();
        assert_eq!(kept(Purpose::Linear), "nf4");
        assert_eq!((kept(Purpose::Vocabulary), kept(Purpose::Activation)), ("as stored".into(), "f32".into()));
        let plain = |columns| Weight::from(Tensor::ones((2, columns), DType::BF16, &Device::Cpu).unwrap());
        let bytes = |weight: Weight, purpose| precision.convert(weight, purpose).unwrap().bytes();
        assert_eq!(bytes(plain(128), Purpose::Linear), 2 * 2 * 33 + 8);
        assert_eq!(bytes(plain(128), Purpose::Vocabulary), 2 * 2 * 128);
        assert_eq!(bytes(plain(100), Purpose::Linear), 2 * 2 * 100);
    }

    #[test]
    fn an_accelerator_computes_in_bf16_unless_told_otherwise_and_sums_in_f32() {
        let types = |compute| {
            let precision = Precision::of_accelerator(PrecisionRequest { compute, ..PrecisionRequest::default() });
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
    fn the_cpu_computes_in_the_type_asked_for_and_leaves_matrices_as_stored() {
        let precision = |compute, weights| {
            Precision::of(PrecisionRequest { compute, ..PrecisionRequest::default() }, &Device::Cpu, weights)
        };
        let activations = |compute, weights| precision(compute, weights).dtype(Purpose::Activation);
        assert_eq!(activations(Compute::F32, u64::MAX), DType::F32);
        assert_eq!(precision(Compute::Auto, SMALL_MODEL - 1), Precision::CPU_DEFAULT);
        let natively = if bf16_is_faster() { DType::BF16 } else { DType::F32 };
        assert_eq!(activations(Compute::Auto, SMALL_MODEL), natively);
        let half = precision(Compute::Bf16, 0);
        assert_eq!((half.dtype(Purpose::Activation), half.storage(Purpose::Linear)), (DType::BF16, Storage::AsStored));
        assert_eq!(half.dtype(Purpose::Trained), DType::F32);
    }

    #[test]
    fn a_quantized_matrix_is_not_quantized_again() {
        let packed = Packed::new(vec![0; 34 * 2].into(), Format::Q8_0, 1, 64).unwrap();
        let error = Precision::of(Base::Nf4, &Device::Cpu, 0).convert(Weight::Packed(packed.into()), Purpose::Linear);
        assert!(error.unwrap_err().to_string().contains("Q8_0"));
    }
}
