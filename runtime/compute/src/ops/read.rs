//! Copies elements from the device to the host, as `f32` or `u32`. The caller must charge [`read_bytes`] to a budget
//! first.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result, ensure};

/// The number of bytes that [`list`] and [`indices`] return for a tensor: 4 for each element.
#[must_use]
pub fn read_bytes(x: &Tensor) -> u64 {
    x.elem_count() as u64 * 4
}

/// Returns all elements of a `u32` or `u8` tensor in row-major order. Waits for the device.
///
/// # Errors
/// [`Error::Dtype`] for another element type, and failures of the device.
pub fn indices(x: &Tensor) -> Result<Vec<u32>> {
    let is_whole = matches!(x.dtype(), DType::U32 | DType::U8);
    ensure(is_whole, || Error::dtype(format!("indices are u32 or u8, this tensor is {}", x.dtype().as_str())))?;
    Ok(x.detach().contiguous()?.flatten_all()?.to_dtype(DType::U32)?.to_vec1::<u32>()?)
}

/// Returns the only element as `f32`. Waits for the device.
///
/// # Errors
/// [`Error::Shape`] if there is more than one, and failures of the device.
pub fn item(x: &Tensor) -> Result<f32> {
    let several = || Error::shape(format!("one element is read, {:?} holds {}", x.dims(), x.elem_count()));
    ensure(x.elem_count() == 1, several)?;
    let number = list(x)?;
    number.first().copied().ok_or_else(|| Error::shape("no element"))
}

/// Returns all elements as `f32` in row-major order. Waits for the device.
///
/// # Errors
/// Failures of the device.
pub fn list(x: &Tensor) -> Result<Vec<f32>> {
    Ok(x.detach().contiguous()?.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?)
}
