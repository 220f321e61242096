//! Where a package comes from, as its author states: its source, the toolchain, and what else was built into it.
//!
//! All of it is one CycloneDX document in a custom section, which other tools can read. The signature of the package
//! covers the section; nothing verifies what it states.

mod dependencies;

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use tunebox_foundation::printable::{printable, printable_except};

use crate::build::Record;
use crate::constants::VERSION;
use crate::{Error, digest, read_manifest, section};

/// The custom section that holds the document.
pub const SECTION: &str = "tunebox:sbom";

/// The largest document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// The longest text of the document that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 400;

/// What the document of a method in Python states in place of a command that reproduces its bytes.
const NOT_REPRODUCIBLE: &str = "no: it holds the memory of a started interpreter, which differs from build to build";

/// What a package states about how it was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// The SHA-256 of the source, as [`digest::source`] computes it, in hexadecimal.
    pub source: String,
    /// The compiler, its target and its standard library, or the release of `componentize-py`.
    pub toolchain: String,
    /// The version of this program that packed it.
    pub tunebox: String,
    /// The version of the contract that it was built for.
    pub interface: String,
    /// The command that gives the same bytes, or why none does.
    pub reproduce: String,
    /// How many crates or Python packages it lists.
    pub dependencies: usize,
}

/// Appends the CycloneDX document of a component that was built in `folder`, in place of an existing one. The same
/// component and the same `Cargo.lock` (or packages of `.venv`) give the same bytes. Errors: a component without a
/// record of its build, no `Cargo.lock` that lists it, or a document of more than 256 KiB.
pub fn attach(component: &[u8], folder: &Path) -> Result<Vec<u8>, Error> {
    let manifest = read_manifest(component)?;
    let record =
        Record::read(component)?.ok_or_else(|| Error::provenance("the component does not say how it was built"))?;
    let is_python = digest::is_python(folder);
    let components = match is_python {
        true => dependencies::list_python_packages(folder)?,
        false => dependencies::list_crates(folder, &manifest)?,
    };
    let reproduce = if is_python { NOT_REPRODUCIBLE.to_owned() } else { "`tunebox pack` of this source".to_owned() };
    let properties = [
        ("tunebox:source", record.source),
        ("tunebox:toolchain", record.toolchain),
        ("tunebox:version", VERSION.to_owned()),
        ("tunebox:interface", manifest.interface),
        ("tunebox:reproduce", reproduce),
    ];
    let document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "component": { "type": "library", "name": manifest.name, "version": manifest.version },
            "properties": properties.map(|(name, value)| json!({ "name": name, "value": value })),
        },
        "components": components,
    });
    let text = document.to_string();
    check_length(text.len())?;
    let mut bytes = section::without(component, SECTION)?;
    section::append(&mut bytes, SECTION, text.as_bytes());
    Ok(bytes)
}

/// Reads what a package states about how it was built, with control characters escaped and each text cut to 400 bytes.
/// `None` if it has no such section. Errors: bytes that are no component, two such sections, one of more than 256 KiB,
/// or one that is no CycloneDX document with components and the five `tunebox:` properties.
pub fn read(package: &[u8]) -> Result<Option<Provenance>, Error> {
    let Some(text) = find_section(package)? else { return Ok(None) };
    let document: Value = serde_json::from_slice(text).map_err(|error| Error::provenance(&error.to_string()))?;
    let Some(components) = document["components"].as_array().filter(|_| document["bomFormat"] == "CycloneDX") else {
        return Err(Error::provenance("it is no CycloneDX document with components"));
    };
    let value = |name: &str| {
        let mut properties = document["metadata"]["properties"].as_array().into_iter().flatten();
        let text = properties.find(|property| property["name"] == name).and_then(|property| property["value"].as_str());
        let text = text.ok_or_else(|| Error::provenance(&format!("it has no property `{name}`")))?;
        Ok::<_, Error>(printable(text, MAX_SHOWN_BYTES))
    };
    Ok(Some(Provenance {
        source: value("tunebox:source")?,
        toolchain: value("tunebox:toolchain")?,
        tunebox: value("tunebox:version")?,
        interface: value("tunebox:interface")?,
        reproduce: value("tunebox:reproduce")?,
        dependencies: components.len(),
    }))
}

/// Returns the text of a package's document, with control characters escaped except line feeds. `None` if it has none.
/// Errors: bytes that are no component, or a document that [`read`] does not accept.
pub fn sbom(package: &[u8]) -> Result<Option<String>, Error> {
    let Some(_) = read(package)? else { return Ok(None) };
    let text = find_section(package)?.unwrap_or_default();
    Ok(Some(printable_except(&String::from_utf8_lossy(text), usize::MAX, &['\n'])))
}

/// Returns the contents of the section [`SECTION`], or `None` if there is none. Errors: bytes that are no component,
/// two such sections, or one of more than 256 KiB.
fn find_section(package: &[u8]) -> Result<Option<&[u8]>, Error> {
    let text = section::find(package, SECTION)?;
    text.map_or(Ok(()), |text| check_length(text.len()))?;
    Ok(text)
}

/// Fails if a document of this many bytes is larger than 256 KiB.
fn check_length(bytes: usize) -> Result<(), Error> {
    if bytes <= MAX_DOCUMENT_BYTES {
        Ok(())
    } else {
        Err(Error::provenance(&format!("it has {bytes} bytes, {MAX_DOCUMENT_BYTES} fit")))
    }
}

#[cfg(test)]
mod tests;
