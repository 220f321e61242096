//! Turns a compiler's core module into a component that has its manifest in a custom section at the top level.

use std::path::PathBuf;

use wit_component::ComponentEncoder;

use super::failure::{build_error, build_error_because, unusable_manifest};
use super::record;
use super::{Built, Record};
use crate::component::interfaces;
use crate::{Error, World, manifest, read_manifest, section};

/// Wraps a core module into a component that holds the module's manifest and `record` in custom sections at its top
/// level, not in the module. Errors: the module has no section with a manifest (the crate has no `method!`), does not
/// encode as a valid component, or those of [`add_sections`].
pub(super) fn componentize(module: &[u8], record: &Record) -> Result<Built, Error> {
    let Some(text) = section::find(module, manifest::SECTION)? else { return Err(no_method()) };
    let plain = section::without(module, manifest::SECTION)?;
    let bytes = encode_component(&plain).map_err(|problem| {
        let hint = "build it against the SDK of this version of tunebox";
        build_error_because("the compiled method does not fit the contract", problem, hint)
    })?;
    add_sections(bytes, text, record)
}

/// Appends the manifest `text` and the build record to a component as custom sections, and checks the result. The
/// returned value has no path and no warnings. Errors: those of [`read_manifest`], an import whose name does not begin
/// with `tunebox:method/` (for a verifier or environment: any import), or no export of `tunebox:method/training`, for a
/// verifier `tunebox:method/verify`, for an environment `tunebox:method/respond`, in any version.
pub(super) fn add_sections(mut bytes: Vec<u8>, text: &[u8], record: &Record) -> Result<Built, Error> {
    section::append(&mut bytes, manifest::SECTION, text);
    let record = serde_json::to_vec(record).map_err(|error| Error::manifest(error.to_string()))?;
    section::append(&mut bytes, record::SECTION, &record);

    let (manifest, found) = (read_manifest(&bytes).map_err(explain_manifest_error)?, interfaces(&bytes)?);
    let (allowed, wanted) = match manifest.world {
        World::Method => (Some("tunebox:method/"), "tunebox:method/training@"),
        World::Verifier => (None, "tunebox:method/verify@"),
        World::Environment => (None, "tunebox:method/respond@"),
    };
    let is_allowed = |import: &&String| allowed.is_some_and(|package| import.starts_with(package));
    if let Some(import) = found.imports.iter().find(|import| !is_allowed(import)) {
        return Err(foreign_import(import));
    }
    if !found.exports.iter().any(|export| export.starts_with(wanted)) {
        return Err(no_method());
    }
    Ok(Built { path: PathBuf::new(), manifest, imports: found.imports, bytes, warnings: Vec::new() })
}

/// Makes the error for a crate that declares no method: its module has no manifest, or its component does not export
/// the interface of the manifest's world.
fn no_method() -> Error {
    let hint = "`src/lib.rs` ends with `method! { Type, shape: \"…\", metrics: […] }`";
    build_error("the crate compiles, but it declares no method", hint)
}

/// Makes the error for an import that no host provides: one outside of the contract, or any import of a verifier or
/// environment.
fn foreign_import(import: &str) -> Error {
    let why = "a method may import `tunebox:method/…` and nothing else";
    let hint = "a dependency brings it in; methods have no files, clock or system randomness";
    build_error_because(format!("the method asks for `{import}`, which no host gives"), why, hint)
}

/// Turns an [`Error::Manifest`] into one that tells the method's author where the manifest is declared. Other errors
/// are returned unchanged.
pub(super) fn explain_manifest_error(error: Error) -> Error {
    match error {
        Error::Manifest { problem } => unusable_manifest(&problem),
        other => other,
    }
}

/// Encodes a core module as a component and validates it. The error is a message with all its causes.
fn encode_component(module: &[u8]) -> Result<Vec<u8>, String> {
    let encoder = ComponentEncoder::default().validate(true).module(module);
    encoder.and_then(|mut encoder| encoder.encode()).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    #[test]
    fn a_manifest_that_breaks_a_rule_is_no_reason_to_build_once_more() {
        let record = Record { toolchain: String::new(), source: String::new(), debug: false };
        let error = add_sections(b"\0asm\x0d\0\x01\0".to_vec(), b"{}", &record).unwrap_err();
        assert!(error.to_string().starts_with("the method's manifest is not usable: "), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("`#[setting(…)]`") && !hint.contains("tunebox build"), "{hint}");
    }
}
