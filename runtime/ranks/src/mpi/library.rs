//! The MPI libraries, which are opened at run time since none is linked, and lookup of their functions.
#![expect(
    unsafe_code,
    reason = "opening a library runs its start-up code, and a function has the type that is written here"
)]

use std::error::Error;
use std::ffi::c_int;

#[cfg(not(unix))]
use libloading::Library;
#[cfg(unix)]
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{Launch, Launcher, RankError};

/// The file names of Open MPI 4 and 5.
const OPEN_MPI: &[&str] = if cfg!(target_os = "macos") { &["libmpi.40.dylib"] } else { &["libmpi.so.40"] };
/// The file names of MPICH 3 to 5: as Debian calls it, then as MPICH, Intel MPI and Cray do.
const MPICH: &[&str] =
    if cfg!(target_os = "macos") { &["libmpi.12.dylib"] } else { &["libmpich.so.12", "libmpi.so.12"] };
/// The file names of a library with the binary interface of the MPI 5 standard.
const STANDARD: &[&str] = if cfg!(target_os = "macos") { &["libmpi_abi.1.dylib"] } else { &["libmpi_abi.so.1"] };

/// The binary interface of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    /// Open MPI: handles are addresses of variables of the library.
    OpenMpi,
    /// MPICH: handles are numbers of the C type `int`.
    Mpich,
    /// The MPI 5 standard: handles are pointers with small numbers as values.
    Standard,
}

impl Interface {
    /// Returns the interface's name for messages, such as `MPICH`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Standard => "MPI 5 standard ABI",
        }
    }
}

/// An opened MPI library. It is never closed, also not when this value is dropped.
pub(super) struct Opened {
    /// The file name or path by which it was opened.
    pub(super) name: String,
    pub(super) interface: Interface,
    library: &'static Library,
}

impl Opened {
    /// Looks up a function or variable of the library by its name.
    ///
    /// # Safety
    /// `T` is a pointer to a function, and of the type that the function has; or a raw pointer to a variable.
    ///
    /// # Errors
    /// [`RankError::BadLibrary`] if the library lacks it.
    pub(super) unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, RankError> {
        // SAFETY: the type is what the caller says. The library is never closed, so the symbol stays there.
        let found = unsafe { self.library.get::<T>(name.as_bytes()) };
        found
            .map(|symbol| *symbol)
            .map_err(|_| RankError::BadLibrary { library: self.name.clone(), why: format!("it has no `{name}`") })
    }
}

/// Opens the library that `launch` names (`TUNEBOX_MPI`), else the first of the usual file names for its launcher that
/// can be opened.
///
/// # Errors
/// - [`RankError::NoLibrary`] if none can be opened.
/// - [`RankError::BadLibrary`] if the opened one is not an MPI library.
pub(super) fn open(launch: &Launch) -> Result<Opened, RankError> {
    let usual = match launch.launcher {
        Launcher::OpenMpi => [OPEN_MPI, STANDARD, &[]],
        // `srun --mpi=pmi2` sets the variables of MPICH for both.
        Launcher::Mpich => [MPICH, STANDARD, OPEN_MPI],
        // Without those variables it is `srun --mpi=pmix`, which Open MPI is built for.
        Launcher::Slurm | Launcher::Torchrun => [OPEN_MPI, MPICH, STANDARD],
    };
    let names = launch.library.as_deref().map_or_else(|| usual.concat(), |name| vec![name]);
    let mut failures = Vec::new();
    for name in names {
        match open_global(name) {
            Ok(library) => return recognize(name, Box::leak(Box::new(library))),
            // The message of the loader, with the name, is that of the inner error.
            Err(error) => failures.push(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
        }
    }
    Err(RankError::NoLibrary { why: failures.join("; "), launcher: launch.launcher })
}

/// Opens a library by its name or path, which runs its start-up code. The plugins of Open MPI look for its functions
/// among those of the whole program, so the library makes its functions known there.
#[cfg(unix)]
fn open_global(name: &str) -> Result<Library, libloading::Error> {
    // SAFETY: what runs is the library's own start-up code, as it would for a program that links it.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }
}

/// Opens a library by its name or path, which runs its start-up code.
#[cfg(not(unix))]
fn open_global(name: &str) -> Result<Library, libloading::Error> {
    // SAFETY: what runs is the library's own start-up code, as it would for a program that links it.
    unsafe { Library::new(name) }
}

/// Determines the binary interface of a library: the standard ABI if its file name begins with `libmpi_abi` and it
/// reports a version of that ABI; Open MPI if it has a variable of Open MPI; else MPICH.
///
/// # Errors
/// [`RankError::BadLibrary`] if the library lacks `MPI_Init_thread`.
fn recognize(name: &str, library: &'static Library) -> Result<Opened, RankError> {
    let mut opened = Opened { name: name.to_owned(), interface: Interface::Mpich, library };
    // SAFETY: the symbol is only looked for.
    unsafe { opened.symbol::<*const ()>("MPI_Init_thread")? };
    let file = name.rsplit('/').next().unwrap_or(name);
    // SAFETY: the symbol is only looked for.
    let is_open_mpi = unsafe { opened.symbol::<*const ()>("ompi_mpi_comm_world") }.is_ok();
    if file.starts_with("libmpi_abi") && has_standard_interface(&opened) {
        opened.interface = Interface::Standard;
    } else if is_open_mpi {
        opened.interface = Interface::OpenMpi;
    }
    Ok(opened)
}

/// Whether the library reports version 1 of the standard's binary interface. MPI allows the call before
/// `MPI_Init_thread`.
fn has_standard_interface(opened: &Opened) -> bool {
    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the type is that of the MPI 5 standard.
    let found = unsafe { opened.symbol::<Function>("MPI_Abi_get_version") };
    // SAFETY: the pointers are to numbers that live during the call.
    found.is_ok_and(|function| unsafe { function(&raw mut major, &raw mut minor) } == 0) && major == 1
}
