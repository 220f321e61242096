//! Weights on an accelerator: blocks as the bytes that they are, plain numbers in the one type that its products take.

use bytemuck::Pod;
use candle_core::{CpuStorage, DType, Device, Storage, Tensor, WithDType};
use half::{bf16, f16};

use super::{Format, Numbers, Packed, Scales, Weight};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};

/// Numbers that are uploaded at once where the device then converts them to another type.
const PIECE: usize = 1 << 24;

/// The blocks of a matrix on an accelerator, and what they share.
#[derive(Debug)]
pub(crate) struct DeviceBlocks {
    /// All blocks, `[bytes]` u8.
    pub(crate) blocks: Tensor,
    /// `NF4`: the largest magnitude of each group of 256 blocks, f32.
    pub(crate) groups: Option<Tensor>,
    /// `NF4`: the 256 values of a magnitude in 8 bits, f32.
    pub(crate) dynamic: Option<Tensor>,
    /// `NF4`: the mean of all magnitudes.
    pub(crate) mean: f32,
}

impl DeviceBlocks {
    /// Copies the blocks of a matrix to the accelerator; for `NF4` also its scales and the table of magnitudes.
    fn new(accelerator: &Accelerator, blocks: &[u8], scales: Option<&Scales>) -> Result<Self> {
        let single = |numbers: &[f32]| accelerator.upload(numbers, &[numbers.len()]);
        Ok(Self {
            blocks: accelerator.upload(blocks, &[blocks.len()])?,
            groups: scales.map(|scales| single(&scales.groups)).transpose()?,
            dynamic: scales.map(|_| single(&crate::dynamic::SIGNED)).transpose()?,
            mean: scales.map_or(0.0, |scales| scales.mean),
        })
    }

    /// Bytes that blocks and shared scales take. The table of magnitudes of `NF4` is the same for every matrix and not
    /// counted.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.elem_count() + self.groups.as_ref().map_or(0, |groups| 4 * (groups.elem_count() + 1))
    }
}

impl Packed {
    /// The device that holds the bytes of the matrix.
    pub(crate) fn device(&self) -> &Device {
        match &self.numbers {
            Numbers::Host { .. } => &Device::Cpu,
            Numbers::Device(placed) => placed.blocks.device(),
        }
    }

    /// Whether the bytes of the matrix are on an accelerator.
    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self.numbers, Numbers::Device(_))
    }

    /// The blocks on their accelerator.
    ///
    /// # Errors
    /// [`Error::Argument`] when the matrix is on the CPU.
    pub(crate) fn device_blocks(&self) -> Result<&DeviceBlocks> {
        match &self.numbers {
            Numbers::Host { .. } => Err(Error::argument("the blocks of a weight are on `cpu`, not on a device")),
            Numbers::Device(placed) => Ok(placed),
        }
    }
}

impl Weight {
    /// Copies the weight to `device`.
    ///
    /// - To an accelerator: quantized blocks stay as they are, plain numbers become a tensor of the type `plain`. A
    ///   weight that is on `device` already is not copied, except a tensor of another type, which is converted.
    /// - To the CPU: a weight of the CPU is returned as it is, one of an accelerator is copied by
    ///   [`Weight::to_tensor`]; `plain` is not used.
    ///
    /// # Errors
    /// When the device has no memory for it, or, to an accelerator, when a tensor has gaps, another type than f32, bf16
    /// and f16, or is on another accelerator.
    pub fn to_device(&self, device: &Device, plain: DType) -> Result<Self> {
        let Some(accelerator) = Accelerator::of(device)? else {
            return if self.device().is_cpu() { Ok(self.clone()) } else { Ok(self.to_tensor()?.into()) };
        };
        match self {
            Self::Tensor(tensor) if tensor.device().same_device(device) => Ok(accelerator.cast(tensor, plain)?.into()),
            Self::Packed(packed) if packed.device().same_device(device) => Ok(self.clone()),
            Self::Tensor(tensor) => Ok(upload_tensor(&accelerator, tensor, plain)?.into()),
            Self::Packed(packed) => upload_packed(&accelerator, packed, plain),
        }
    }

    /// Returns the tensor of a vector (a bias or the weight of a norm) in f32, on the device where it is; as it is if
    /// it is f32 already. Does not check its shape.
    ///
    /// # Errors
    /// [`Error::Argument`] for a packed weight, which is always a matrix. On an accelerator also for a tensor that has
    /// gaps or a type other than f32, bf16 and f16.
    pub fn vector(&self) -> Result<Tensor> {
        let Self::Tensor(tensor) = self else {
            return Err(Error::argument("a vector is not kept in blocks"));
        };
        match Accelerator::of(tensor.device())? {
            None => Ok(tensor.to_dtype(DType::F32)?),
            Some(accelerator) => accelerator.cast(tensor, DType::F32),
        }
    }
}

/// Copies a contiguous tensor (bf16, f16 or f32) of an accelerator to the CPU in its type, and waits for the device.
/// Fails for gaps or another type. Returns a tensor of the CPU as it is.
pub(super) fn to_cpu(tensor: &Tensor) -> Result<Tensor> {
    let Some(accelerator) = Accelerator::of(tensor.device())? else { return Ok(tensor.clone()) };
    let (sides, cpu) = (tensor.dims(), &Device::Cpu);
    Ok(match tensor.dtype() {
        DType::BF16 => Tensor::from_vec(accelerator.download::<bf16>(tensor)?, sides, cpu)?,
        DType::F16 => Tensor::from_vec(accelerator.download::<f16>(tensor)?, sides, cpu)?,
        _ => Tensor::from_vec(accelerator.download::<f32>(tensor)?, sides, cpu)?,
    })
}

/// Copies a packed matrix of the CPU to the accelerator: quantized blocks as they are, plain numbers as a tensor of the
/// type `plain`.
fn upload_packed(accelerator: &Accelerator, packed: &Packed, plain: DType) -> Result<Weight> {
    let sides = packed.sides();
    // `Packed::new` has checked that plain numbers can be read.
    let tensor = match packed.format {
        Format::F32 => upload_numbers(accelerator, packed.plain::<f32>().unwrap_or(&[]), &sides, plain)?,
        Format::F16 => upload_numbers(accelerator, packed.plain::<f16>().unwrap_or(&[]), &sides, plain)?,
        Format::BF16 => upload_numbers(accelerator, packed.plain::<bf16>().unwrap_or(&[]), &sides, plain)?,
        format => {
            let placed = DeviceBlocks::new(accelerator, packed.raw(), packed.scales())?;
            let [rows, columns] = sides;
            let packed = Packed { numbers: Numbers::Device(placed), format, rows, columns };
            return Ok(Weight::Packed(packed.into()));
        }
    };
    Ok(tensor.into())
}

/// Copies a contiguous tensor of the CPU (f32, bf16 or f16) to the accelerator, converted to the type `plain`. Fails
/// for another type, for gaps, and for a tensor that is not on the CPU.
fn upload_tensor(accelerator: &Accelerator, tensor: &Tensor, plain: DType) -> Result<Tensor> {
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        let device = crate::device::describe(tensor.device());
        return Err(Error::argument(format!("a weight on `{device}` {:?} has gaps or is elsewhere", tensor.dims())));
    };
    let sides = tensor.dims();
    match storage {
        CpuStorage::F32(numbers) => upload_numbers(accelerator, &numbers[start..end], sides, plain),
        CpuStorage::BF16(numbers) => upload_numbers(accelerator, &numbers[start..end], sides, plain),
        CpuStorage::F16(numbers) => upload_numbers(accelerator, &numbers[start..end], sides, plain),
        _ => {
            let found = tensor.dtype().as_str();
            Err(Error::dtype(format!("a weight is {found}; f32, bf16 or f16 is needed")))
        }
    }
}

/// Copies `numbers` to the accelerator as a tensor of shape `sides` and type `dtype`. If they have another type,
/// uploads [`PIECE`] of them at a time and converts each piece on the accelerator.
fn upload_numbers<N: WithDType + Pod>(
    accelerator: &Accelerator,
    numbers: &[N],
    sides: &[usize],
    dtype: DType,
) -> Result<Tensor> {
    if N::DTYPE == dtype {
        return accelerator.upload(numbers, sides);
    }
    let to = accelerator.empty(&[numbers.len()], dtype)?;
    for (number, piece) in numbers.chunks(PIECE).enumerate() {
        let from = accelerator.upload(piece, &[piece.len()])?;
        accelerator.cast_into(&to.narrow(0, number * PIECE, piece.len())?, &from)?;
    }
    Ok(to.reshape(sides)?)
}
