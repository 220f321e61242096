//! Compiles the sources of kernels to machine code with NVRTC, which needs no CUDA toolkit, headers or C++ compiler.
#![expect(unsafe_code, reason = "NVRTC takes addresses")]

use std::ffi::{CStr, CString, c_char, c_int};

use super::library::CallError;
use super::sys::{self, Handle};

/// The compute capability whose tensor cores take products from four warps together and from shared memory.
pub(super) const WARPGROUPS: u32 = 90;

/// The file name that NVRTC's error messages give to every source.
const NAME: &CStr = c"tunebox.cu";

/// The options for NVRTC to compile for a compute capability (80, 90, …): to machine code (not to PTX, which a driver
/// older than NVRTC refuses), as C++17, with functions and lambdas that have no execution space marked as device code.
/// For [`WARPGROUPS`] the architecture is `sm_90a`, whose instructions no other capability has, and the macro
/// `WARPGROUPS` is 1.
pub(super) fn options(capability: u32) -> Vec<String> {
    let suffix = if capability == WARPGROUPS { "a" } else { "" };
    let mut options = vec![format!("--gpu-architecture=sm_{capability}{suffix}")];
    options.extend(["--std=c++17".into(), "--device-as-default-execution-space".into()]);
    options.extend((capability == WARPGROUPS).then(|| "-DWARPGROUPS=1".into()));
    options
}

/// The version of NVRTC as (major, minor).
pub(super) fn version() -> Result<(i32, i32), CallError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: room for two numbers.
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }?;
    Ok((major, minor))
}

/// The compute capabilities that NVRTC compiles for, as 90 for `sm_90`, in the order that NVRTC gives.
pub(super) fn architectures() -> Result<Vec<u32>, CallError> {
    let mut count = 0;
    // SAFETY: room for one number.
    unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }?;
    let mut found = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: room for as many numbers as NVRTC says that there are.
    unsafe { sys::nvrtcGetSupportedArchs(found.as_mut_ptr()) }?;
    Ok(found.into_iter().map(c_int::unsigned_abs).collect())
}

/// Compiles the CUDA C++ source `source` to machine code (a CUBIN image).
///
/// # Errors
/// The error of NVRTC with its compile log, as text; also for a zero byte in the source or an option.
pub(super) fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, String> {
    let program = compile_program(source, options)?;
    program.output(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN).map_err(|error| error.to_string())
}

/// Compiles a source and returns the program, which holds machine code and log. Fails as [`compile`] does.
fn compile_program(source: &str, options: &[String]) -> Result<Program, String> {
    let terminated = |text: &str| CString::new(text).map_err(|_| "a text of kernels holds a zero byte".to_owned());
    let text = terminated(source)?;
    let options: Vec<CString> = options.iter().map(|option| terminated(option)).collect::<Result<_, _>>()?;
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let (mut handle, none) = (0, std::ptr::null::<*const c_char>());
    // SAFETY: room for one handle, and two texts that end and live longer than the program.
    unsafe { sys::nvrtcCreateProgram(&raw mut handle, text.as_ptr(), NAME.as_ptr(), 0, none, none) }
        .map_err(|error| error.to_string())?;
    let program = Program(handle);
    // SAFETY: as many options as are named, which end and live until the call returns.
    let compiled = unsafe { sys::nvrtcCompileProgram(handle, pointers.len() as c_int, pointers.as_ptr()) };
    match compiled {
        Ok(()) => Ok(program),
        Err(error) => Err(format!("{error}: {}", program.log())),
    }
}

/// An NVRTC program. Dropping it destroys it.
struct Program(Handle);

impl Program {
    /// The compiler's log; empty if it cannot be read.
    fn log(&self) -> String {
        let log = self.output(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog).unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }

    /// Reads a result of the program, such as its log or its CUBIN: `size` returns the number of bytes and `write`
    /// fills a buffer of that size.
    fn output(
        &self,
        size: unsafe fn(Handle, *mut usize) -> Result<(), CallError>,
        write: unsafe fn(Handle, *mut c_char) -> Result<(), CallError>,
    ) -> Result<Vec<u8>, CallError> {
        let mut length = 0;
        // SAFETY: room for one number, of a program that is there.
        unsafe { size(self.0, &raw mut length) }?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: room for as many bytes as NVRTC asked for.
        unsafe { write(self.0, bytes.as_mut_ptr().cast()) }?;
        Ok(bytes)
    }
}

impl Drop for Program {
    /// Destroys the program. Ignores a failure.
    fn drop(&mut self) {
        // SAFETY: the only end of a program that was created.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests;
