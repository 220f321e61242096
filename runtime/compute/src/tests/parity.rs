//! One body, a test on every device and in every type: `on_each_device!`.
//!
//! Tests of other devices are ignored by their own program; `tests/optional` runs them where the device is.

use bytemuck::Pod;
use candle_core::{DType, Device, Tensor, Var, WithDType};

use crate::accelerator::Accelerator;
use crate::fused::reference;
use tunebox_foundation::explain::Explain;

/// Where a test runs, in which type of activations, and how far off it may be.
pub(crate) struct TestDevice {
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    pub(crate) tolerance: f64,
}

impl TestDevice {
    /// Opens the device `name` for a test in type `dtype`. Panics with "absent" if this machine has no such device.
    pub(crate) fn at(name: &str, dtype: DType, tolerance: f64) -> Self {
        let absent = |error: crate::Error| panic!("absent `{name}`: {}", error.why().unwrap_or_default());
        Self { device: crate::device::parse(name).unwrap_or_else(absent), dtype, tolerance }
    }

    /// The type in which products read trained numbers: that of the test on a device, f32 on the CPU.
    pub(crate) fn operands(&self) -> DType {
        if self.device.is_cpu() { DType::F32 } else { self.dtype }
    }

    /// Creates independent normal numbers, seeded by `name`, on the device, rounded to the test's type so that the
    /// reference sees what the device sees.
    pub(crate) fn normal(&self, name: &str, shape: &[usize]) -> Tensor {
        self.place(&reference::normal(name, shape))
    }

    /// Creates independent normal numbers, seeded by `name`, on the device, in f32 whatever the test's type.
    pub(crate) fn single(&self, name: &str, shape: &[usize]) -> Tensor {
        self.put(&reference::normal(name, shape))
    }

    /// Copies a tensor of the CPU to the device, rounded to the test's type.
    pub(crate) fn place(&self, tensor: &Tensor) -> Tensor {
        // Rounded on the CPU: on a device the tensor library has no casts.
        self.put(&tensor.to_dtype(self.dtype).unwrap())
    }

    /// Copies a tensor of the CPU to the device in its own type: f32, bf16, f16 or u32.
    pub(crate) fn put(&self, tensor: &Tensor) -> Tensor {
        let Some(accelerator) = Accelerator::of(&self.device).unwrap() else { return tensor.clone() };
        let flat = tensor.flatten_all().unwrap();
        match tensor.dtype() {
            DType::F32 => up::<f32>(&accelerator, &flat, tensor.dims()),
            DType::BF16 => up::<half::bf16>(&accelerator, &flat, tensor.dims()),
            DType::F16 => up::<half::f16>(&accelerator, &flat, tensor.dims()),
            DType::U32 => up::<u32>(&accelerator, &flat, tensor.dims()),
            other => panic!("{other:?} is not put on a device"),
        }
    }

    /// Copies a tensor to the CPU in f64, as a leaf of an autograd graph.
    pub(crate) fn leaf(&self, tensor: &Tensor) -> Var {
        reference::leaf(&self.back(tensor))
    }

    /// Copies a tensor (f32, bf16, f16 or u32) to the CPU in its own type.
    pub(crate) fn back(&self, tensor: &Tensor) -> Tensor {
        let Some(accelerator) = Accelerator::of(tensor.device()).unwrap() else { return tensor.clone() };
        match tensor.dtype() {
            DType::F32 => down::<f32>(&accelerator, tensor),
            DType::BF16 => down::<half::bf16>(&accelerator, tensor),
            DType::F16 => down::<half::f16>(&accelerator, tensor),
            DType::U32 => down::<u32>(&accelerator, tensor),
            other => panic!("{other:?} does not come back from a device"),
        }
    }

    /// Asserts that a result agrees with its reference within the tolerance of the test. `what` is named on failure.
    pub(crate) fn close(&self, what: &str, found: &Tensor, reference: &Tensor) {
        self.nearly(what, found, reference, 1.0);
    }

    /// Asserts that a result agrees with its reference within `tolerance`, for results that are f32 on every device.
    /// `what` is named on failure.
    pub(crate) fn within(&self, what: &str, found: &Tensor, reference: &Tensor, tolerance: f64) {
        reference::close(what, &self.back(found), reference, tolerance);
    }

    /// Asserts that a result agrees with its reference within `times` the tolerance of the test, for sums over many
    /// rows.
    pub(crate) fn nearly(&self, what: &str, found: &Tensor, reference: &Tensor, times: f64) {
        reference::close(what, &self.back(found), reference, times * self.tolerance);
    }
}

/// Uploads a flat CPU tensor of type `T` in the given shape.
fn up<T: WithDType + Pod>(accelerator: &Accelerator, flat: &Tensor, shape: &[usize]) -> Tensor {
    accelerator.upload(&flat.to_vec1::<T>().unwrap(), shape).unwrap()
}

/// Downloads a tensor of type `T` to the CPU.
fn down<T: WithDType + Pod>(accelerator: &Accelerator, tensor: &Tensor) -> Tensor {
    Tensor::from_vec(accelerator.download::<T>(tensor).unwrap(), tensor.dims(), &Device::Cpu).unwrap()
}

/// Tests of one body. `tolerance` is the share of the largest number in f32 and in bf16.
///
/// ```ignore
/// on_each_device! {
///     /// Against plain operations in f64.
///     fn output_and_gradients_agree_with_autograd(on) tolerance(2e-6, 1e-2) {
///         let x = on.normal("x", &[67, 301]);
///         …
///         on.close("y", &y, &expected);
///     }
/// }
/// ```
macro_rules! on_each_device {
    (@test $test:ident: $device:literal, $dtype:ident, $tolerance:expr $(, $needs:literal)?) => {
        #[test]
        $(#[ignore = $needs])?
        fn $test() {
            check(&$crate::parity::TestDevice::at($device, candle_core::DType::$dtype, $tolerance));
        }
    };
    ($($(#[$attribute:meta])* fn $name:ident($on:ident) tolerance($single:expr, $brain:expr) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "a body may need nothing of its file")]
            use super::*;

            $(#[$attribute])*
            fn check($on: &$crate::parity::TestDevice) $body

            $crate::parity::on_each_device!(@test cpu: "cpu", F32, $single);
            $crate::parity::on_each_device!(@test cpu_bf16: "cpu", BF16, $brain);
            $crate::parity::on_each_device!(@test cuda_f32: "cuda", F32, $single, "needs cuda");
            $crate::parity::on_each_device!(@test cuda_bf16: "cuda", BF16, $brain, "needs cuda");
            $crate::parity::on_each_device!(@test metal_f32: "metal", F32, $single, "needs metal");
            $crate::parity::on_each_device!(@test metal_bf16: "metal", BF16, $brain, "needs metal");
        }
    )*};
}
pub(crate) use on_each_device;

#[cfg(test)]
mod tests {
    use super::*;

    on_each_device! {
        fn numbers_go_there_and_back(on) tolerance(0.0, 0.0) {
            let x = on.normal("x", &[7, 33]);
            assert_eq!((x.dims(), x.dtype()), (&[7, 33][..], on.dtype));
            let rows = x.narrow(0, 2, 3).unwrap();
            let numbers = |tensor: &Tensor| reference::numbers(&on.back(tensor));
            assert_eq!(numbers(&rows), numbers(&x)[2 * 33..5 * 33]);
        }
    }
}
