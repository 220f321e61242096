//! Opens a CUDA device. Checks first what it needs, in the order in which a user would fix what is missing.

use std::sync::{Arc, Mutex};

use candle_core::CudaDevice;

use super::context::{Allocator, Context};
use super::library::{CallError, folders};
use super::loader::Loader;
use super::{Cuda, FAULT_FREE, compile, launch, sys};

/// The lowest supported compute capability (major, minor). Lower ones have no matrix products in bf16.
const LEAST: (i32, i32) = (8, 0);

/// The lowest major version of CUDA whose libraries are searched for.
const OLDEST: i32 = 12;

/// A version as (major, minor).
type Version = (i32, i32);

/// Opens the CUDA device `ordinal` for the first time in this process: checks, in this order, driver, device, compute
/// capability, NVRTC and cuBLAS, their versions, and sets the device up.
///
/// # Errors
/// Why it cannot be used, and what to do about it.
pub(super) fn open(ordinal: usize) -> Result<Cuda, String> {
    let folders = folders();
    sys::DRIVER.open(&folders)?;
    expect_device(ordinal)?;
    let context = Context::open(ordinal).map_err(driver_error_message)?;
    let capability = expect_capability(context.capability().map_err(to_text)?)?;
    sys::COMPILER.open(&folders)?;
    sys::CUBLAS.open(&folders)?;
    let (driver, compiler) =
        (Context::driver_version().map_err(driver_error_message)?, compile::version().map_err(to_text)?);
    expect_driver(driver, compiler)?;
    expect_architecture(capability, &compile::architectures().unwrap_or_default())?;
    set_up(context, capability, driver, compiler)
}

/// Checks that the driver has a device of this number. The error says which numbers exist.
fn expect_device(ordinal: usize) -> Result<(), String> {
    let found = Context::count_devices().map_err(driver_error_message)?;
    if ordinal < found {
        return Ok(());
    }
    Err(match found {
        0 => NO_DEVICE.into(),
        1 => "this machine has one, `cuda:0`".into(),
        _ => format!("this machine has {found}: `cuda:0` to `cuda:{}`", found - 1),
    })
}

/// The message for a driver that finds no device.
const NO_DEVICE: &str = "the driver is there and finds no GPU; `nvidia-smi` lists those that it sees, and \
    `CUDA_VISIBLE_DEVICES` may hide them";

/// Converts an error of starting the driver into a message with its cause and, where it is known, what to do.
fn driver_error_message(error: CallError) -> String {
    match error.code {
        sys::NO_DEVICE => NO_DEVICE.into(),
        sys::STUB_LIBRARY => "the `libcuda` that is found is the toolkit's for building, not the driver's; take its \
            folder `stubs` out of `LD_LIBRARY_PATH`"
            .into(),
        sys::SYSTEM_DRIVER_MISMATCH => "the driver's library and its kernel module are of different versions; a \
            restart of the machine loads the new one"
            .into(),
        _ => format!("the driver does not start: {error}"),
    }
}

/// Checks that the driver's major CUDA version is at least that of NVRTC, whose machine code it would refuse otherwise.
fn expect_driver(driver: Version, compiler: Version) -> Result<(), String> {
    if driver.0 >= compiler.0 {
        return Ok(());
    }
    let (old, new) = (driver.0, compiler.0);
    if old < OLDEST {
        return Err(format!(
            "the driver is made for CUDA {old}.{}; one for CUDA {OLDEST} or newer is needed",
            driver.1
        ));
    }
    Err(format!(
        "the driver is made for CUDA {old}.{} and the libraries are of CUDA {new}; a newer driver, or \
        `pip install nvidia-cuda-nvrtc-cu{old} nvidia-cublas-cu{old}` in place of them, puts it right",
        driver.1
    ))
}

/// Checks that the compute capability is at least 8.0. Returns it as 80, 90, ….
fn expect_capability((major, minor): (i32, i32)) -> Result<u32, String> {
    if (major, minor) < LEAST {
        return Err(format!("its compute capability is {major}.{minor}; 8.0 is needed, for products in bf16"));
    }
    Ok((major * 10 + minor).unsigned_abs())
}

/// Checks that NVRTC compiles for the device's compute capability. `compiled_for` lists what it compiles for, as 90 for
/// `sm_90`; if the list is empty (NVRTC did not say), nothing is refused here.
fn expect_architecture(capability: u32, compiled_for: &[u32]) -> Result<(), String> {
    if compiled_for.is_empty() || compiled_for.contains(&capability) {
        return Ok(());
    }
    Err(format!(
        "it is an sm_{capability}, for which the NVRTC that is found does not compile; \
        `pip install --upgrade nvidia-cuda-nvrtc nvidia-cublas` in an active environment brings a newer one"
    ))
}

/// Sets up a device whose context is open: makes its memory pool keep freed memory, opens cuBLAS, allocates and clears
/// the fault word, and creates candle's device with [`Allocator`]. `capability` is the compute capability as 80, 90, …;
/// `driver` and `compiler` are the CUDA versions of driver and NVRTC.
///
/// # Errors
/// A message for users if the driver has no memory pools, or if a CUDA or cuBLAS call fails.
fn set_up(context: Arc<Context>, capability: u32, driver: Version, compiler: Version) -> Result<Cuda, String> {
    let number = |which| context.attribute(which).map_err(to_text);
    let processors = number(sys::MULTIPROCESSOR_COUNT)?.unsigned_abs();
    let shared = number(sys::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.unsigned_abs();
    if number(sys::MEMORY_POOLS_SUPPORTED)? == 0 {
        return Err(
            "its driver has no pools of memory; those for physical machines have had them since CUDA 11.2".into()
        );
    }
    // By default the pool returns freed memory to the driver at every synchronization, and later allocations are slow.
    context.set_pool_attribute(sys::POOL_RELEASE_THRESHOLD, u64::MAX).map_err(to_text)?;
    let (blas, version) = launch::open_cublas(&context).map_err(to_text)?;
    let fault = context.allocate(size_of::<u64>()).map_err(to_text)?;
    fault.write(0, &FAULT_FREE).map_err(to_text)?;
    let versions =
        [("driver for CUDA", driver), ("NVRTC", compiler), ("cuBLAS", (version / 10_000, version % 10_000 / 100))];
    let device = CudaDevice::new_with_stream(context.ordinal).map_err(to_text)?;
    device.cuda_stream().set_allocator(Arc::new(Allocator(Arc::clone(&context))));
    Ok(Cuda {
        device,
        loader: Loader::new(Arc::clone(&context), capability, compiler, shared),
        processors,
        warpgroups: capability == compile::WARPGROUPS,
        blas: Mutex::new(blas),
        fault_address: fault.address(),
        fault: Mutex::new(fault),
        software: versions.map(|(name, (major, minor))| format!("{name} {major}.{minor}")).join(", "),
        context,
    })
}

/// Converts an error to its message.
fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_older_than_the_libraries_is_refused_with_what_fits_it() {
        let why = expect_driver((12, 4), (13, 0)).unwrap_err();
        assert!(why.contains("CUDA 12.4") && why.contains("nvidia-cublas-cu12"), "{why}");
        // The libraries of CUDA 11 have names that are not looked for.
        let why = expect_driver((11, 8), (12, 4)).unwrap_err();
        assert!(why.contains("CUDA 11.8; one for CUDA 12 or newer") && !why.contains("pip install"), "{why}");
        expect_driver((13, 0), (13, 0)).unwrap();
        expect_driver((13, 0), (12, 8)).unwrap();
        // Machine code of the same major version runs on every driver of it.
        expect_driver((12, 2), (12, 9)).unwrap();
    }

    #[test]
    fn a_gpu_without_products_in_bf16_is_refused() {
        assert!(expect_capability((7, 5)).unwrap_err().contains("7.5; 8.0"));
        assert_eq!(expect_capability((8, 0)), Ok(80));
        assert_eq!(expect_capability((12, 1)), Ok(121));
    }

    #[test]
    fn a_compiler_that_is_older_than_the_gpu_is_refused_with_what_brings_a_newer_one() {
        let why = expect_architecture(120, &[80, 86, 90]).unwrap_err();
        assert!(why.contains("sm_120") && why.contains("--upgrade nvidia-cuda-nvrtc"), "{why}");
        expect_architecture(90, &[80, 86, 90]).unwrap();
        // One that does not say is asked by the first kernel.
        expect_architecture(120, &[]).unwrap();
    }

    #[test]
    fn what_the_driver_finds_at_its_start_is_said_in_words() {
        let why = driver_error_message(CallError { library: &sys::DRIVER, code: sys::NO_DEVICE });
        assert!(why.contains("finds no GPU"), "{why}");
        let why = driver_error_message(CallError { library: &sys::DRIVER, code: sys::STUB_LIBRARY });
        assert!(why.contains("LD_LIBRARY_PATH"), "{why}");
    }
}
