//! The methods inside the program: every folder of `methods/`, by the component that is committed there.

/// A method that travels in the program.
#[derive(Debug)]
pub struct Builtin {
    /// The folder's name.
    pub name: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// Written by the build script.
static METHODS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// All built-in methods, by name.
pub fn list() -> &'static [Builtin] {
    METHODS
}

/// The built-in method of a name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    METHODS.iter().find(|method| method.name == name)
}

#[cfg(test)]
mod tests {
    use crate::{component, read_manifest};

    #[test]
    fn every_method_folder_is_embedded_with_a_manifest_of_its_own_name() {
        let methods = concat!(env!("CARGO_MANIFEST_DIR"), "/../../methods");
        for entry in std::fs::read_dir(methods).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let method =
                super::find(&name).unwrap_or_else(|| panic!("`tunebox build methods/{name}` has not been run"));
            assert_eq!(read_manifest(method.bytes).unwrap().name, name);
        }
    }

    #[test]
    fn a_built_in_method_asks_only_for_the_contract() {
        for method in super::list() {
            let imports = component::interfaces(method.bytes).unwrap().imports;
            assert!(!imports.is_empty(), "{}", method.name);
            assert!(imports.iter().all(|import| import.starts_with(component::CONTRACT)), "{imports:?}");
        }
    }
}
