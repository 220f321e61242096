//! The package `tunebox` of Python and the contract, as the program carries them.

use crate::sources;

/// The files of `sdk/python` by their paths: the package, the stubs for editors, and the page. Written by the build
/// script.
pub(super) static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/python.rs"));

/// The file of the contract that lists what a method may import.
pub(super) const WORLD: &str = "world.wit";

/// Iterates over the WIT files of the contract: file name and contents.
pub(super) fn contract() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    sources::files().iter().filter_map(|(path, bytes)| Some((path.strip_prefix("sdk/rust/wit/")?, bytes.as_slice())))
}

/// Iterates over the modules of the package `tunebox`: path, such as `tunebox/describe.py`, and contents. Stubs are not
/// among them.
pub(super) fn modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied().filter(|(path, _)| path.ends_with(".py"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_contract_and_of_the_package_travels() {
        let contract: Vec<String> = contract().map(|(name, _)| name.to_owned()).collect();
        let modules: Vec<String> = modules().map(|(name, _)| name.replacen("tunebox/", "", 1)).collect();
        for (folder, ending, list) in [("wit", "wit", contract), ("sdk/python/tunebox", "py", modules)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let mut names: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|found| found == ending))
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, list, "{folder}");
        }
    }
}
