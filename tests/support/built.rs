//! Methods of this repository that tests compile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use tunebox_package::build::{self, Options};

use super::golden::root;

/// The setting `method.use` for the component of [`built_path`].
pub(crate) fn built(folder: &'static str) -> String {
    format!("method.use={}", built_path(folder))
}

/// The path of the component of the method in a folder of the repository, which is built once in this process.
pub(crate) fn built_path(folder: &'static str) -> String {
    static BUILT: Mutex<BTreeMap<&str, (TempDir, String)>> = Mutex::new(BTreeMap::new());
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, path) = all.entry(folder).or_insert_with(|| {
        let place = tempfile::tempdir().unwrap();
        let output = place.path().join("built.wasm");
        let path = output.display().to_string();
        let options = Options { output: Some(output), ..Options::default() };
        build::build(&root().join(folder), &options, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        (place, path)
    });
    path.clone()
}
