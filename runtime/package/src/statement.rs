//! The text that a signer signs: a package's name, version, world, imports and the digest of its bytes.
//!
//! The text is computed from the bytes alone, so it is never stored, and cannot disagree with them. Its `kind` makes
//! sure that the signature of a package is valid for nothing else, and no other signature for a package.

use std::collections::BTreeMap;

use semver::{BuildMetadata, Version};
use serde::Serialize;
use serde_json::json;
use tunebox_foundation::printable::printable;

use crate::constants::MAX_COMPONENT_BYTES;
use crate::{Error, component, digest, read_manifest};

/// The longest version, in bytes.
const MAX_VERSION_BYTES: usize = 64;

/// The content of the signed text. Its tag `kind` states what the text is, and the version of its format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename = "tunebox.package.v1")]
pub struct Statement {
    /// Its name.
    pub name: String,
    /// Its version, by the rules of semantic versions.
    pub version: String,
    /// The world that it belongs to: `method`, `verifier` or `environment`.
    pub world: String,
    /// The version of `tunebox:method` that it was built for.
    pub interface: String,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// How many bytes it has.
    pub length: u64,
    /// The full names of the interfaces that it imports, sorted.
    pub imports: Vec<String>,
    /// The limits that its manifest declares: none, in this version of the manifest.
    limits: BTreeMap<String, u64>,
}

impl Statement {
    /// Computes the statement of a package's bytes, without running anything. Errors: more than 64 MiB, bytes that are
    /// no component, those of [`read_manifest`], an import whose name is not printable ASCII, or a version that is no
    /// semantic version, has a part after `+`, or more than 64 bytes.
    pub fn of(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() as u64 > MAX_COMPONENT_BYTES {
            let problem = format!("it has {} bytes, a package may have {MAX_COMPONENT_BYTES}", bytes.len());
            return Err(Error::not_component(problem));
        }
        let manifest = read_manifest(bytes)?;
        parse_version(&manifest.version).map_err(Error::manifest)?;
        let mut imports = component::interfaces(bytes)?.imports;
        if let Some(import) = imports.iter().find(|import| !import.bytes().all(|byte| byte.is_ascii_graphic())) {
            let problem = format!("it imports `{}`, which is no name", printable(import, 80));
            return Err(Error::not_component(problem));
        }
        imports.sort();
        Ok(Self {
            name: manifest.name,
            version: manifest.version,
            world: manifest.world.name().into(),
            interface: manifest.interface,
            sha256: digest::sha256(bytes),
            length: bytes.len() as u64,
            imports,
            limits: BTreeMap::new(),
        })
    }

    /// Returns the text that is signed: JSON without spaces, its keys in a fixed order.
    pub fn canonical(&self) -> String {
        json!(self).to_string()
    }

    /// Returns name and version as `NAME@VERSION`.
    pub fn title(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Parses the version of a package: a semantic version of at most 64 bytes without build metadata. The error completes
/// a sentence about the package.
pub(crate) fn parse_version(text: &str) -> Result<Version, String> {
    let version = Some(text).filter(|text| text.len() <= MAX_VERSION_BYTES).and_then(|text| Version::parse(text).ok());
    match version {
        // Build metadata does not order versions, and no registry accepts it in a tag.
        Some(version) if version.build == BuildMetadata::EMPTY => Ok(version),
        Some(_) => Err(format!("the version `{text}` has a part after `+`, which no registry takes")),
        None => {
            let shown = printable(text, MAX_VERSION_BYTES);
            Err(format!("the version `{shown}` is not of the form `1.2.3` or `1.2.3-beta.4`"))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{manifest, section};

    /// A component that holds nothing but a manifest.
    pub(crate) fn package(name: &str, version: &str) -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        let text = format!(
            r#"{{"name":"{name}","version":"{version}","description":"Calms","shape":"preference","settings":[],"metrics":["loss"],"interface":"0.2.0"}}"#
        );
        section::append(&mut bytes, manifest::SECTION, text.as_bytes());
        bytes
    }

    #[test]
    fn the_text_of_a_package_is_this_one() {
        let bytes = package("calm-dpo", "0.1.0");
        let text = Statement::of(&bytes).unwrap().canonical();
        let digest = digest::sha256(&bytes);
        let wanted = format!(
            r#"{{"kind":"tunebox.package.v1","name":"calm-dpo","version":"0.1.0","world":"method","interface":"0.2.0","sha256":"{digest}","length":{},"imports":[],"limits":{{}}}}"#,
            bytes.len()
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn the_imports_of_a_built_in_method_are_in_its_text_in_order() {
        let dpo = crate::builtin::find("dpo").unwrap();
        let statement = Statement::of(dpo.bytes).unwrap();
        assert!(!statement.imports.is_empty() && statement.imports.is_sorted(), "{:?}", statement.imports);
        let text: serde_json::Value = serde_json::from_str(&statement.canonical()).unwrap();
        assert_eq!(text["imports"], json!(statement.imports));
        assert_eq!(text["length"], json!(dpo.bytes.len()));
    }

    #[test]
    fn any_changed_byte_changes_the_text_or_makes_it_no_package() {
        let bytes = package("calm-dpo", "0.1.0");
        let text = Statement::of(&bytes).unwrap().canonical();
        for place in 0..bytes.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[place] ^= change;
                assert!(Statement::of(&other).map_or(true, |other| other.canonical() != text), "{change:x} at {place}");
            }
        }
    }

    #[test]
    fn a_version_that_has_no_place_in_an_order_is_refused() {
        for (text, wanted) in [
            ("1.0", "the version `1.0` is not of the form `1.2.3` or `1.2.3-beta.4`"),
            ("1.0.0+local", "the version `1.0.0+local` has a part after `+`, which no registry takes"),
        ] {
            let error = Statement::of(&package("calm", text)).unwrap_err().to_string();
            assert!(error.ends_with(wanted), "{error}");
        }
    }
}
