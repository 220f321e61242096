//! The methods and verifiers that are embedded in this program: the component that is committed in each folder of
//! `methods/` and `methods/verifiers/`.

/// A method or verifier that is embedded in this program.
#[derive(Debug)]
pub struct Builtin {
    /// Its name, which is that of its folder.
    pub name: &'static str,
    /// The bytes of the component.
    pub bytes: &'static [u8],
    /// The files of its source, as (path in its folder, contents).
    pub source: &'static [(&'static str, &'static [u8])],
}

impl Builtin {
    /// Returns the text of a file of the source; empty if there is no such file, or it is not UTF-8.
    pub(crate) fn source_text(&self, file: &str) -> &'static str {
        let found = self.source.iter().find(|(path, _)| *path == file);
        found.and_then(|(_, bytes)| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// All built-in methods, sorted by name. Written by the build script.
static METHODS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// All built-in verifiers, sorted by name. Written by the build script.
static VERIFIERS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/verifiers.rs"));

/// Returns all built-in verifiers, sorted by name.
pub fn verifiers() -> &'static [Builtin] {
    VERIFIERS
}

/// Returns the built-in verifier of this name, or `None`. Methods are not searched.
pub fn find_verifier(name: &str) -> Option<&'static Builtin> {
    VERIFIERS.iter().find(|verifier| verifier.name == name)
}

/// Returns all built-in methods, sorted by name, without the verifiers.
pub fn list() -> &'static [Builtin] {
    METHODS
}

/// Returns the built-in method of this name, or `None`. Verifiers are not searched.
pub fn find(name: &str) -> Option<&'static Builtin> {
    METHODS.iter().find(|method| method.name == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::{World, component, read_manifest};

    #[test]
    fn every_folder_is_embedded_with_a_manifest_of_its_own_name_and_verifiers_ask_for_nothing() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../methods");
        for (folder, world) in [(root.clone(), World::Method), (root.join("verifiers"), World::Verifier)] {
            let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
            for entry in entries.filter(|entry| entry.path().is_dir() && entry.file_name() != "verifiers") {
                let name = entry.file_name().into_string().unwrap();
                let found = if world == World::Method { super::find(&name) } else { super::find_verifier(&name) };
                let found = found.unwrap_or_else(|| panic!("`tunebox build` has not been run for `{name}`"));
                let manifest = read_manifest(found.bytes).unwrap();
                assert_eq!((manifest.name, manifest.world), (name, world));
                let imports = component::interfaces(found.bytes).unwrap().imports;
                assert_eq!(imports.is_empty(), world == World::Verifier, "{imports:?}");
            }
        }
    }

    #[test]
    fn a_built_in_method_asks_only_for_the_contract() {
        for method in super::list() {
            let imports = component::interfaces(method.bytes).unwrap().imports;
            assert!(!imports.is_empty(), "{}", method.name);
            assert!(imports.iter().all(|import| import.starts_with("tunebox:method/")), "{imports:?}");
        }
    }
}
