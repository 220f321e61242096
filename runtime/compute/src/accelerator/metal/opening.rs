//! A device is opened: what must hold is looked at first, in the order in which a person would put it right.

use candle_core::Device;
use candle_metal_kernels::metal::{Device as Found, MetalDeviceType};
use objc2_metal::{MTLDevice as _, MTLGPUFamily};

use super::loader::Loader;
use super::pool::{Pool, SHARED};
use super::{Metal, clear_fault};

/// Opens the Metal device `ordinal` for the first time in this process: only device 0, and only an Apple GPU (M1 or
/// later) with unified memory. Creates its fault word and the buffer that stands for a null pointer.
///
/// # Errors
/// Why it cannot be used, and what to do about it.
pub(super) fn open(ordinal: usize) -> Result<Metal, String> {
    if ordinal > 0 {
        return Err("a Mac that the kernels are for has one GPU, `metal:0`".into());
    }
    let mut found = Found::all();
    if found.is_empty() {
        return Err("Metal finds no GPU on this machine; a virtual machine may have none".into());
    }
    let raw = found.swap_remove(ordinal);
    // Matrices of SIMD groups, and memory that processor and GPU share.
    if !raw.as_ref().supportsFamily(MTLGPUFamily::Apple7) || !raw.as_ref().hasUnifiedMemory() {
        let name = raw.as_ref().name();
        return Err(format!("`{name}` is no GPU of Apple's own (M1 or later), for which the kernels are written"));
    }
    let Device::Metal(device) = Device::new_metal(ordinal).map_err(|error| first_line(&error.to_string()))? else {
        return Err("the tensor library opened another device".into());
    };
    let small = |bytes| {
        let buffer = device.metal_device().new_buffer(bytes, SHARED);
        buffer.map_err(|error| first_line(&error.to_string()))
    };
    let (fault, nothing) = (small(8)?, small(16)?);
    device.register_buffers([&fault, &nothing]);
    clear_fault(&fault);
    Ok(Metal {
        loader: Loader::new(device.metal_device().clone(), ordinal),
        pool: Pool::default(),
        ordinal,
        processors: processors(device.metal_device()),
        fault,
        nothing,
        device,
    })
}

/// An upper bound of the GPU's core count by its product line, since Metal does not report the count. Sizes of grids
/// depend on it, results do not.
fn processors(device: &Found) -> u32 {
    match device.device_type() {
        MetalDeviceType::Phone => 6,
        MetalDeviceType::BasePro | MetalDeviceType::Medium => 20,
        MetalDeviceType::Max => 40,
        MetalDeviceType::Ultra => 80,
    }
}

/// The first line of an error message of candle, whose other lines are a backtrace. Empty for an empty text.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
