//! The shared libraries of CUDA, which are opened at run time since none is linked, and lookup of their functions.
//!
//! A library is searched first where the system's loader looks, then in a CUDA toolkit, then among the packages of an
//! active Python environment.
#![expect(
    unsafe_code,
    reason = "opening a library runs its start-up code, and a function has the type that is written here"
)]

use std::ffi::{OsStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library as Opened;
use tunebox_foundation::environment;

/// A shared library: its name in messages, its possible file names, newest version first, and how to install it.
pub(super) struct Library {
    pub(super) what: &'static str,
    pub(super) names: &'static [&'static str],
    /// File name prefixes of libraries in the same folder that this library loads by name alone. They are opened first,
    /// so that it finds them.
    pub(super) beside: &'static [&'static str],
    pub(super) hint: &'static str,
    /// Returns the message for an error code; `None` for a code without one.
    pub(super) words: fn(c_int) -> Option<String>,
    pub(super) opened: OnceLock<Opened>,
}

/// The error code of calling a function whose library is not open or lacks it.
pub(super) const ABSENT: c_int = -1;

/// An error code that a function of a library returned, or [`ABSENT`].
#[derive(Clone, Copy)]
pub(super) struct CallError {
    pub(super) library: &'static Library,
    pub(super) code: c_int,
}

impl std::fmt::Display for CallError {
    /// Writes the library's message for the code and the code in parentheses. Without a message writes the code and the
    /// library. For [`ABSENT`] writes that the library lacks a function.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { library, code } = self;
        match (library.words)(*code) {
            _ if *code == ABSENT => {
                write!(formatter, "{} lacks a function that is called; a newer one has it", library.what)
            }
            Some(words) => write!(formatter, "{words} ({code})"),
            None => write!(formatter, "error {code} of {}", library.what),
        }
    }
}

impl Library {
    /// Opens the library: by name where the system's loader looks, then in `folders`. Does nothing if it is open. The
    /// library is never closed.
    ///
    /// # Errors
    /// A message that the library is not found, and what installs it.
    pub(super) fn open(&self, folders: &[PathBuf]) -> Result<(), String> {
        if self.opened.get().is_none() {
            let found = self.find(folders).ok_or_else(|| format!("{} is not found; {}", self.what, self.hint))?;
            self.opened.get_or_init(|| found);
        }
        Ok(())
    }

    /// Tries every name of the library where the system's loader looks, then every name in each of `folders`. Before it
    /// opens a file of a folder, opens the libraries `beside` it, which that file looks for by name alone. `None` if
    /// nothing could be opened.
    fn find(&self, folders: &[PathBuf]) -> Option<Opened> {
        let known = self.names.iter().find_map(|name| open(OsStr::new(name)));
        let files = folders.iter().flat_map(|folder| self.names.iter().map(move |name| (folder, folder.join(name))));
        known.or_else(|| {
            files.filter(|(_, path)| path.exists()).find_map(|(folder, path)| {
                // Forgotten, so that they stay open: the library looks for them by name.
                neighbors(folder, self.beside)
                    .iter()
                    .filter_map(|path| open(path.as_os_str()))
                    .for_each(std::mem::forget);
                open(path.as_os_str())
            })
        })
    }

    /// Looks a function up by its name. `None` if the library is not open or lacks the function.
    ///
    /// # Safety
    /// `F` is a pointer to a function, and of the type that the function has.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the type is what the caller says. The library is never closed, so the function stays there.
        unsafe { self.opened.get()?.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
    }
}

/// Defines a Rust function for each C function of a library, under its own name. It looks the C function up at the
/// first call, and turns a returned code other than 0 into a [`CallError`].
macro_rules! functions {
    ($library:ident; $($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// The library's manual says what the arguments must be.
        #[allow(clippy::too_many_arguments, reason = "the library decides")]
        pub(super) unsafe fn $name($($argument: $kind),*) -> Result<(), CallError> {
            type Function = unsafe extern "C" fn($($kind),*) -> c_int;
            static FOUND: OnceLock<Option<Function>> = OnceLock::new();
            // SAFETY: the type is that of the manual.
            let found = FOUND.get_or_init(|| unsafe { $library.function(stringify!($name)) });
            // SAFETY: the arguments are what the caller says.
            let code = found.map_or(ABSENT, |function| unsafe { function($($argument),*) });
            if code == 0 { Ok(()) } else { Err(CallError { library: &$library, code }) }
        }
    )*};
}
pub(super) use functions;

/// The paths of the files in `folder` whose names begin with one of `beginnings`. Empty if the folder cannot be read.
fn neighbors(folder: &Path, beginnings: &[&str]) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |name: &str| beginnings.iter().any(|beginning| name.starts_with(beginning));
    files.filter(|file| file.file_name().to_str().is_some_and(of)).map(|file| file.path()).collect()
}

/// The folders in which CUDA libraries are searched after the loader's own: the absolute ones of `LD_LIBRARY_PATH`,
/// `lib64` of `CUDA_HOME` and `CUDA_PATH`, `/usr/local/cuda/lib64`, then those of an active Python environment
/// (`VIRTUAL_ENV`, `CONDA_PREFIX`). Skips variables that are not set or empty, and folders `stubs`. Does not check that
/// the folders exist.
pub(super) fn folders() -> Vec<PathBuf> {
    let of = |name: &str| environment::variable(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    // The loader has read this variable itself, unless a parent sent it.
    let loader = environment::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let loader: Vec<PathBuf> = std::env::split_paths(&loader).filter(|path| path.is_absolute()).collect();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(of).map(|home| home.join("lib64"));
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(of);
    let packages = environments.flat_map(|environment| packages(&environment));
    let all = loader.into_iter().chain(toolkits).chain(["/usr/local/cuda/lib64".into()]).chain(packages);
    all.filter(|folder| !is_stubs(folder)).collect()
}

/// Whether a folder is called `stubs`: a CUDA toolkit keeps there the libraries that can be linked but do not run.
fn is_stubs(folder: &Path) -> bool {
    folder.file_name() == Some(OsStr::new("stubs"))
}

/// The folders of libraries in a Python environment: `lib` itself, where Conda has them, then sorted those of NVIDIA's
/// packages, `lib/<python>/site-packages/nvidia/<package>/lib` for every package that is installed there, such as
/// `cublas`. Folders that cannot be listed count as empty.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let listed = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let pythons = listed(environment.join("lib")).into_iter();
    let packages = pythons.flat_map(|python| listed(python.join("site-packages").join("nvidia")));
    [environment.join("lib")].into_iter().chain(packages.map(|package| package.join("lib"))).collect()
}

/// Opens a library by its name or path, which runs its start-up code. `None` if that fails.
fn open(name: &OsStr) -> Option<Opened> {
    // SAFETY: what runs is the library's own start-up code, as it would for a program that links it.
    unsafe { Opened::new(name) }.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let missing = Library {
            what: "x",
            names: &["libtunebox-is-not-there.so"],
            beside: &[],
            hint: "y",
            words: |_| None,
            opened: OnceLock::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(missing.open(&[folder.path().to_path_buf()]), Err("x is not found; y".into()));
        // A file of the name that is no library is not taken for one.
        std::fs::write(folder.path().join("libtunebox-is-not-there.so"), "no library").unwrap();
        assert!(missing.find(&[folder.path().to_path_buf()]).is_none());
    }

    #[test]
    fn libraries_that_only_link_are_passed_over() {
        assert!(is_stubs(Path::new("/usr/local/cuda/lib64/stubs")) && is_stubs(Path::new("/opt/cuda/lib64/stubs/")));
        assert!(!is_stubs(Path::new("/usr/local/cuda/lib64")));
        assert_eq!(crate::accelerator::cuda::sys::DRIVER.names, ["libcuda.so.1"]);
    }

    #[test]
    fn the_packages_of_an_environment_are_looked_through() {
        let environment = tempfile::tempdir().unwrap();
        let package = environment.path().join("lib/python3.12/site-packages/nvidia/cu13");
        std::fs::create_dir_all(package.join("lib")).unwrap();
        let found = packages(environment.path());
        assert!(found.contains(&package.join("lib")), "{found:?}");
        std::fs::write(package.join("lib/libnvrtc-builtins.so.13.0"), "").unwrap();
        std::fs::write(package.join("lib/libnvrtc.so.13"), "").unwrap();
        let beside = neighbors(&package.join("lib"), &["libnvrtc-builtins.so"]);
        assert_eq!(beside, [package.join("lib/libnvrtc-builtins.so.13.0")]);
    }
}
