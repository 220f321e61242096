//! Finds and opens the libraries that CUDA needs when a run asks for a device, since none is linked.
//!
//! They are opened so that whoever opens them by name afterwards gets these: where the system's loader looks first, then
//! in a toolkit, then among the packages of an active Python environment.
#![expect(unsafe_code, reason = "opening a library runs its start-up code")]

use std::path::{Path, PathBuf};

use libloading::Library as Opened;

/// A library by the names that it has had, newest first, and what brings it.
struct Library {
    what: &'static str,
    names: &'static [&'static str],
    /// Beginnings of the names of those that it looks for by name alone; they lie in its folder.
    beside: &'static [&'static str],
    hint: &'static str,
}

const DRIVER: Library = Library {
    what: "the NVIDIA driver's `libcuda.so.1`",
    names: &["libcuda.so.1", "libcuda.so"],
    beside: &[],
    hint: "a machine with an NVIDIA GPU has it once NVIDIA's driver is installed",
};

const COMPILER: Library = Library {
    what: "the compiler of kernels, `libnvrtc.so.13` or `libnvrtc.so.12`,",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    beside: &["libnvrtc-builtins.so"],
    hint: "`pip install nvidia-cuda-nvrtc nvidia-cublas` in an active environment or the CUDA toolkit brings it",
};

const PRODUCTS: Library = Library {
    what: "the library of products, `libcublas.so.13` or `libcublas.so.12`,",
    names: &["libcublas.so.13", "libcublas.so.12", "libcublas.so"],
    beside: &["libcublasLt.so"],
    hint: "`pip install nvidia-cublas nvidia-cuda-nvrtc` in an active environment or the CUDA toolkit brings it",
};

/// Opens the driver's library.
///
/// # Errors
/// That it is missing, and what brings it.
pub(super) fn driver() -> Result<(), String> {
    DRIVER.expect(&folders())
}

/// Opens what CUDA needs beside the driver.
///
/// # Errors
/// Which library is missing, and what brings it.
pub(super) fn libraries() -> Result<(), String> {
    let folders = folders();
    COMPILER.expect(&folders)?;
    PRODUCTS.expect(&folders)
}

/// Opens the compiler alone, which needs neither driver nor GPU.
#[cfg(test)]
pub(super) fn compiler() -> bool {
    COMPILER.opens(&folders())
}

impl Library {
    /// Opens the library, or names it and what installs it.
    fn expect(&self, folders: &[PathBuf]) -> Result<(), String> {
        if self.opens(folders) { Ok(()) } else { Err(format!("{} is not found; {}", self.what, self.hint)) }
    }

    /// Tries every name where the system's loader looks, then in `folders`. Returns whether one opened; it stays open.
    fn opens(&self, folders: &[PathBuf]) -> bool {
        if self.names.iter().any(|name| open(Path::new(name))) {
            return true;
        }
        let found = folders.iter().flat_map(|folder| self.names.iter().map(move |name| (folder, folder.join(name))));
        found.filter(|(_, path)| path.exists()).any(|(folder, path)| {
            for neighbour in neighbours(folder, self.beside) {
                open(&neighbour);
            }
            open(&path)
        })
    }
}

/// The files of a folder whose names begin with one of these.
fn neighbours(folder: &Path, beginnings: &[&str]) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |name: &str| beginnings.iter().any(|beginning| name.starts_with(beginning));
    files.filter(|file| file.file_name().to_str().is_some_and(of)).map(|file| file.path()).collect()
}

/// Where toolkits and Python's packages put libraries, beside where the loader looks.
fn folders() -> Vec<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(of).map(|home| home.join("lib64"));
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(of);
    let packages = environments.flat_map(|environment| packages(&environment));
    toolkits.chain(["/usr/local/cuda/lib64".into()]).chain(packages).collect()
}

/// The folders of libraries in a Python environment: `lib` itself, where Conda has them, and those of NVIDIA's packages,
/// `lib/python3.x/site-packages/nvidia/{cu13,cublas,cuda_nvrtc}/lib`.
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

/// Opens a library for good.
fn open(path: &Path) -> bool {
    // SAFETY: what runs is the library's own start-up code, as it would for a program that links it; it is never
    // closed, so that nothing of it is used after its end.
    match unsafe { Opened::new(path) } {
        Ok(library) => {
            std::mem::forget(library);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let missing = Library { what: "x", names: &["libtunebox-is-not-there.so"], beside: &[], hint: "y" };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(missing.expect(&[folder.path().to_path_buf()]), Err("x is not found; y".into()));
        // A file of the name that is no library is not taken for one.
        std::fs::write(folder.path().join("libtunebox-is-not-there.so"), "no library").unwrap();
        assert!(!missing.opens(&[folder.path().to_path_buf()]));
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
        let beside = neighbours(&package.join("lib"), &["libnvrtc-builtins.so"]);
        assert_eq!(beside, [package.join("lib/libnvrtc-builtins.so.13.0")]);
    }
}
