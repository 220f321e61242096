//! The compiler of kernels.
#![allow(non_snake_case, reason = "NVRTC's names")]

use std::ffi::{CString, c_char, c_int, c_void};

use crate::library::{Library, functions};

static LIBRARY: Library = Library::new(&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]);

type Program = *mut c_void;

/// What a call comes to where NVRTC lacks the function.
const ABSENT: c_int = -1;

functions! { LIBRARY, ABSENT;
    /// Its version.
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int;
    /// How many architectures it compiles for.
    fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> c_int;
    /// Those architectures, as 90 for `sm_90`.
    fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> c_int;
    /// A text to be compiled.
    fn nvrtcCreateProgram(
        program: *mut Program,
        text: *const c_char,
        name: *const c_char,
        headers: c_int,
        header_texts: *const *const c_char,
        header_names: *const *const c_char,
    ) -> c_int;
    /// Its end.
    fn nvrtcDestroyProgram(program: *mut Program) -> c_int;
    /// Compiles it.
    fn nvrtcCompileProgram(program: Program, count: c_int, options: *const *const c_char) -> c_int;
    /// Bytes of what there is to say.
    fn nvrtcGetProgramLogSize(program: Program, size: *mut usize) -> c_int;
    /// What there is to say.
    fn nvrtcGetProgramLog(program: Program, log: *mut c_char) -> c_int;
    /// Bytes of machine code.
    fn nvrtcGetCUBINSize(program: Program, size: *mut usize) -> c_int;
    /// Machine code.
    fn nvrtcGetCUBIN(program: Program, code: *mut c_char) -> c_int;
}

/// Code that a device loads: the driver's text, or machine code.
#[derive(Debug, Clone)]
pub struct Ptx(Vec<u8>);

impl Ptx {
    /// Machine code.
    pub fn from_binary(code: Vec<u8>) -> Self {
        Self(code)
    }

    pub(crate) fn image(self) -> Vec<u8> {
        self.0
    }
}

impl<S: Into<String>> From<S> for Ptx {
    fn from(text: S) -> Self {
        let mut text = text.into().into_bytes();
        text.push(0);
        Self(text)
    }
}

/// Why a text did not become code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError(pub String);

impl std::fmt::Display for CompileError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}

fn done(came_to: c_int) -> Result<(), CompileError> {
    match came_to {
        0 => Ok(()),
        ABSENT => Err(CompileError("the compiler of kernels lacks a function that is called".into())),
        other => Err(CompileError(format!("error {other} of the compiler of kernels"))),
    }
}

/// The version of NVRTC that is open.
pub fn version() -> Result<(i32, i32), CompileError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: places for two numbers.
    done(unsafe { nvrtcVersion(&raw mut major, &raw mut minor) })?;
    Ok((major, minor))
}

/// The architectures that it compiles for, as 90 for `sm_90`; none where it does not say.
pub fn architectures() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: a place for one number.
    let asked = unsafe { nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut found = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: places for as many numbers as it says that there are.
    if asked != 0 || unsafe { nvrtcGetSupportedArchs(found.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    found.into_iter().map(c_int::unsigned_abs).collect()
}

/// Machine code of a text; `name` stands in what the compiler says of it.
pub fn compile(text: &str, name: &str, options: &[String]) -> Result<Vec<u8>, CompileError> {
    let made = Made::new(text, name)?;
    made.compile(options)?;
    made.code()
}

/// A text in the hands of NVRTC, which may look into it until its end.
struct Made {
    program: Program,
    _text: CString,
    _name: CString,
}

fn ended(text: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError("a text of kernels holds a zero byte".into()))
}

impl Made {
    fn new(text: &str, name: &str) -> Result<Self, CompileError> {
        let (text, name, none) = (ended(text)?, ended(name)?, std::ptr::null());
        let mut program = std::ptr::null_mut();
        // SAFETY: a place for one pointer, and two texts that end and live as long as the program.
        done(unsafe { nvrtcCreateProgram(&raw mut program, text.as_ptr(), name.as_ptr(), 0, none, none) })?;
        Ok(Self { program, _text: text, _name: name })
    }

    fn compile(&self, options: &[String]) -> Result<(), CompileError> {
        let options = options.iter().map(|option| ended(option)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: as many options as are named, which end and live until the call returns.
        done(unsafe { nvrtcCompileProgram(self.program, count, pointers.as_ptr()) })
            .map_err(|error| CompileError(format!("{error}: {}", self.log())))
    }

    /// What NVRTC says of the text.
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: a place for one number.
        if done(unsafe { nvrtcGetProgramLogSize(self.program, &raw mut size) }).is_err() {
            return "there is no log".into();
        }
        let mut log = vec![0_u8; size];
        // SAFETY: as many bytes as were asked for are there.
        if done(unsafe { nvrtcGetProgramLog(self.program, log.as_mut_ptr().cast()) }).is_err() {
            return "there is no log".into();
        }
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }

    fn code(&self) -> Result<Vec<u8>, CompileError> {
        let mut size = 0;
        // SAFETY: a place for one number, of a program that is compiled.
        done(unsafe { nvrtcGetCUBINSize(self.program, &raw mut size) })?;
        let mut code = vec![0_u8; size];
        // SAFETY: as many bytes as were asked for are there.
        done(unsafe { nvrtcGetCUBIN(self.program, code.as_mut_ptr().cast()) })?;
        Ok(code)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the only end of a program that was made.
        let _ = unsafe { nvrtcDestroyProgram(&raw mut self.program) };
    }
}
