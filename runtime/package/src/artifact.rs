//! A package as an OCI artifact, in the form that all WebAssembly tools share: a manifest, a configuration and exactly
//! one layer, which is the component.
//!
//! The same package gives the same documents, byte for byte. Documents of other tools are accepted only if their media
//! types, sizes and digests agree. The store and the registry decide where artifacts are kept and fetched.

pub mod document;
pub(crate) mod error;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use document::{Component, Configuration, Descriptor, ImageManifest, SCHEMA, WASM, digest_of};
use error::malformed;
use serde_json::json;
use tunebox_foundation::contract::PACKAGE;

use crate::constants::{MAX_COMPONENT_BYTES, MAX_SIGNATURE_FILE_BYTES};
use crate::{Error, Manifest, component, read_manifest};

/// The media type of the manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of the configuration.
pub const CONFIGURATION: &str = "application/vnd.wasm.config.v0+json";
/// The media type of the layer.
pub const LAYER: &str = "application/wasm";

/// The largest manifest and the largest configuration that are read, in bytes.
pub const LARGEST_DOCUMENT: u64 = 1 << 20;

/// The annotation of the manifest with the text of the signature: not a second layer, since other tools expect one
/// layer. The text is in base64, since some tools write the line ends of an annotation into JSON without escaping them.
const SIGNATURE: &str = "dev.tunebox.signature";
/// The annotation with the file name that other tools give the layer.
const TITLE: &str = "org.opencontainers.image.title";
/// The annotation with the package's version.
const VERSION: &str = "org.opencontainers.image.version";
/// The annotation with the package's description, one sentence.
const DESCRIPTION: &str = "org.opencontainers.image.description";
/// The annotation with the package's license.
const LICENSE: &str = "org.opencontainers.image.licenses";

/// The creation time in every configuration, which must have one. The real time would give one package another digest
/// at every push; reproducible images use the epoch.
const CREATED: &str = "1970-01-01T00:00:00Z";
/// The only `os` that the format has for components, whether they import WASI or not.
const SYSTEM: &str = "wasip2";

/// A package as the store and registries hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The bytes of the component.
    pub wasm: Vec<u8>,
    /// The text of the `.minisig` file; `None` for an unsigned package.
    pub signature: Option<String>,
}

/// The two OCI documents of a package, as JSON, and the digests that go with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The configuration.
    pub configuration: Vec<u8>,
    /// The digest of the manifest, as in `sha256:…`, by which a registry identifies the artifact.
    pub digest: String,
    /// The digest of the component, in the same form.
    pub layer: String,
}

impl Artifact {
    /// Builds the package's OCI manifest and configuration as JSON, with the digests of manifest and component. A
    /// signature becomes an annotation, unverified. The same package always gives the same bytes. Errors: bytes that
    /// are no component, or those of [`read_manifest`].
    pub fn manifest(&self) -> Result<Documents, Error> {
        let package_manifest = read_manifest(&self.wasm)?;
        let layer = digest_of(&self.wasm);
        let configuration = json!(self.configuration(&package_manifest, &layer)?).to_string().into_bytes();
        let title = format!("{}-{}.wasm", package_manifest.name, package_manifest.version);
        let named = Some(BTreeMap::from([(TITLE.to_owned(), title.clone())]));

        let manifest = ImageManifest {
            schema_version: SCHEMA,
            media_type: Some(MANIFEST.into()),
            config: Descriptor::of(CONFIGURATION, &configuration),
            layers: vec![Descriptor { annotations: named, ..Descriptor::of(LAYER, &self.wasm) }],
            annotations: Some(self.annotations(package_manifest, title)),
        };
        let manifest = json!(manifest).to_string().into_bytes();
        Ok(Documents { digest: digest_of(&manifest), manifest, configuration, layer })
    }

    /// Builds the OCI configuration: the fixed creation time, the component's imports and exports, its world with the
    /// contract version, and `layer`, the digest of the component.
    fn configuration(&self, package_manifest: &Manifest, layer: &str) -> Result<Configuration, Error> {
        let component = Component {
            interfaces: component::interfaces(&self.wasm)?,
            target: Some(format!("{PACKAGE}/{}@{}", package_manifest.world.name(), package_manifest.interface)),
        };
        Ok(Configuration {
            created: CREATED.into(),
            architecture: WASM.into(),
            os: SYSTEM.into(),
            layer_digests: vec![layer.to_owned()],
            component: Some(component),
        })
    }

    /// Builds the annotations of the OCI manifest: title, version and description, and the license and the signature
    /// (in base64) where there are any.
    fn annotations(&self, package_manifest: Manifest, title: String) -> BTreeMap<String, String> {
        let all = [
            (TITLE, Some(title)),
            (VERSION, Some(package_manifest.version)),
            (DESCRIPTION, Some(package_manifest.description)),
            (LICENSE, package_manifest.license),
            (SIGNATURE, self.signature.as_ref().map(|text| STANDARD.encode(text))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// The parts of a package that an OCI manifest names, checked before they are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Media type, size and digest of the configuration.
    pub configuration: Descriptor,
    /// Media type, size and digest of the component.
    pub layer: Descriptor,
    /// The text of the `.minisig` file; `None` for an unsigned package.
    pub signature: Option<String>,
}

impl Parts {
    /// Parses and checks an OCI manifest, before the parts that it names are fetched. `served` is the `Content-Type`
    /// that the manifest was served with, used if the manifest itself states no media type. Returns the descriptors of
    /// configuration and layer, and the decoded signature, which is not verified. Errors: other media types than
    /// [`MANIFEST`], [`CONFIGURATION`] and [`LAYER`], not exactly one layer, a digest that is no SHA-256, or a part
    /// that is too large: 1 MiB for manifest and configuration, 64 MiB for the component, 4 KiB for the signature in
    /// base64.
    pub fn read(manifest: &[u8], served: Option<&str>) -> Result<Self, Error> {
        check_size("manifest", manifest.len() as u64, LARGEST_DOCUMENT)?;
        document::check_media_type("manifest", MANIFEST, document::stated_media_type(manifest).as_deref().or(served))?;
        let manifest: ImageManifest = document::read("manifest", manifest)?;
        document::check_media_type("configuration", CONFIGURATION, Some(&manifest.config.media_type))?;
        let count = manifest.layers.len();
        let Ok([layer]) = <[Descriptor; 1]>::try_from(manifest.layers) else {
            return Err(error::other_layers(count));
        };
        document::check_media_type("layer", LAYER, Some(&layer.media_type))?;
        check_size("configuration", manifest.config.size, LARGEST_DOCUMENT)?;
        check_size("package", layer.size, MAX_COMPONENT_BYTES)?;
        manifest.config.hexadecimal("configuration")?;
        layer.hexadecimal("package")?;

        let signature = manifest.annotations.and_then(|mut annotations| annotations.remove(SIGNATURE));
        check_size("signature", signature.as_ref().map_or(0, String::len) as u64, MAX_SIGNATURE_FILE_BYTES)?;
        Ok(Self { configuration: manifest.config, layer, signature: signature.map(decode_signature) })
    }

    /// Checks the bytes of the configuration and of the component against the sizes and digests in the manifest, and
    /// returns the component with the manifest's signature, which is not verified. Errors: a size or digest that
    /// differs, or a configuration that cannot be parsed, is not for `wasm` and `wasip2`, or lists other layers than
    /// the component.
    pub fn assemble(self, configuration: &[u8], wasm: Vec<u8>) -> Result<Artifact, Error> {
        self.configuration.check("configuration", configuration)?;
        self.layer.check("package", &wasm)?;
        let read: Configuration = document::read("configuration", configuration)?;
        if read.architecture != WASM || read.os != SYSTEM {
            let found = format!("{}/{}", read.os, read.architecture);
            return Err(malformed("configuration", &format!("it is for {found}, not for components")));
        }
        if read.layer_digests != [self.layer.digest.as_str()] {
            return Err(malformed("configuration", "it names other layers than the manifest"));
        }
        Ok(Artifact { wasm, signature: self.signature })
    }
}

/// Decodes the text of a signature from base64. Returns the input unchanged if it is not base64 of UTF-8: verifying the
/// signature then reports what is wrong.
fn decode_signature(written: String) -> String {
    let text = STANDARD.decode(&written).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.unwrap_or(written)
}

/// Fails if `size` is greater than `limit`, both in bytes. `what` names the part of the package in the error.
pub(crate) fn check_size(what: &str, size: u64, limit: u64) -> Result<(), Error> {
    if size > limit { Err(error::too_large(what, size, limit)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
