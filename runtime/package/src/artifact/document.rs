//! The JSON documents of the OCI image format, as far as a package needs them.
//!
//! Maps are ordered, so that writing is reproducible, and fields that others added to an index are kept.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_foundation::printable::printable;

use super::error::{malformed, other_media_type, wrong_digest, wrong_size};
use crate::Error;
use crate::component::Interfaces;
use crate::digest::{is_sha256, sha256};

/// The version of the format that manifests and indexes state.
pub const SCHEMA: u32 = 2;
/// The architecture of a component.
pub const WASM: &str = "wasm";

/// The algorithm in front of a digest.
const DIGEST_PREFIX: &str = "sha256:";

/// An OCI descriptor: the media type, digest and size of some bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the bytes.
    pub media_type: String,
    /// The SHA-256 of the bytes, as in `sha256:…`.
    pub digest: String,
    /// The number of bytes.
    pub size: u64,
    /// Annotations of the bytes by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Fields that this program does not use, kept when the document is written again.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Descriptor {
    /// Makes the descriptor of `bytes`: `media_type`, their SHA-256 digest and their size, without annotations.
    #[must_use]
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        let (media_type, size) = (media_type.to_owned(), bytes.len() as u64);
        Self { media_type, digest: digest_of(bytes), size, ..Self::default() }
    }

    /// Returns the value of the annotation `name`, or `None` if there is none.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns the 64 hexadecimal digits of the digest without `sha256:`, safe as a file name. `what` names the part in
    /// the error. Errors: another algorithm, or not 64 lower-case hexadecimal digits.
    pub fn hexadecimal(&self, what: &str) -> Result<&str, Error> {
        self.digest
            .strip_prefix(DIGEST_PREFIX)
            .filter(|text| is_sha256(text))
            .ok_or_else(|| malformed(what, &format!("its digest is `{}`, not a SHA-256", self.digest)))
    }

    /// Fails unless `bytes` have exactly the size and then the digest text of this descriptor, `sha256:` and lower-case
    /// digits. `what` names the part in the error.
    pub fn check(&self, what: &str, bytes: &[u8]) -> Result<(), Error> {
        let (wanted, found) = (self.size, bytes.len() as u64);
        if wanted != found {
            return Err(wrong_size(what, wanted, found));
        }
        let found = digest_of(bytes);
        if found == self.digest { Ok(()) } else { Err(wrong_digest(what, &self.digest, &found)) }
    }
}

/// An OCI image manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    /// The version of the format.
    pub schema_version: u32,
    /// The media type that the manifest states about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers of the image; a package has exactly one, the component.
    pub layers: Vec<Descriptor>,
    /// Annotations of the image by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The configuration of a WebAssembly artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The creation time, as in `1970-01-01T00:00:00Z`.
    pub created: String,
    /// `wasm`.
    pub architecture: String,
    /// `wasip2` for components.
    pub os: String,
    /// The digests of the layers in their order.
    pub layer_digests: Vec<String>,
    /// The interfaces and the world of the component.
    #[serde(default)]
    pub component: Option<Component>,
}

/// The interfaces of a component, and the world that it was built for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The names of its exports and imports.
    #[serde(flatten)]
    pub interfaces: Interfaces,
    /// The world that it was built for.
    #[serde(default)]
    pub target: Option<String>,
}

/// Returns the SHA-256 of bytes as `sha256:` and 64 lower-case hexadecimal digits.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    format!("{DIGEST_PREFIX}{}", sha256(bytes))
}

/// Parses JSON into one of the types of this module. Fields that the type does not have are ignored, except in types
/// that keep them. `what` names the document in the error. Errors: no JSON, a missing field, or a value of another
/// type.
pub fn read<Document: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<Document, Error> {
    serde_json::from_slice(bytes).map_err(|error| malformed(what, &error.to_string()))
}

/// Returns the `mediaType` that a JSON document states about itself. `None` if it states none, or one that is no
/// string, or is no JSON object.
#[must_use]
pub fn stated_media_type(bytes: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    document.get("mediaType")?.as_str().map(str::to_owned)
}

/// Fails unless `found` is the media type `wanted`. Letter case and parameters after a semicolon do not count; `None`
/// fails. `what` names the part in the error.
pub fn check_media_type(what: &str, wanted: &str, found: Option<&str>) -> Result<(), Error> {
    let found = found.map_or("nothing", |found| found.split(';').next().unwrap_or_default().trim());
    if found.eq_ignore_ascii_case(wanted) {
        Ok(())
    } else {
        Err(other_media_type(what, wanted, &printable(found, 120)))
    }
}
