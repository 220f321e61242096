//! An untrusted method without a compiler: the component of a built-in one under another name and version.

use std::path::Path;

use tunebox_package::{manifest, read_manifest, section};

/// The component of a built-in method, or of one below `verifiers/`, that calls itself `name` of a version.
pub(crate) fn renamed(builtin: &str, name: &str, version: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../methods").join(builtin);
    let own = folder.file_name().unwrap().to_str().unwrap();
    let bytes = std::fs::read(folder.join(format!("{own}.wasm"))).unwrap();
    let mut about = read_manifest(&bytes).unwrap();
    (about.name, about.version) = (name.to_owned(), version.to_owned());
    let mut bytes = section::without(&bytes, manifest::SECTION).unwrap();
    section::append(&mut bytes, manifest::SECTION, &serde_json::to_vec(&about).unwrap());
    bytes
}
