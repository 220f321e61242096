use super::*;
use crate::builtin;
use crate::error::Reason;

fn lora() -> Artifact {
    Artifact { wasm: builtin::find("lora").unwrap().bytes.to_vec(), signature: Some("untrusted comment: one\n".into()) }
}

/// The documents with one part of the manifest replaced.
fn altered(change: impl FnOnce(&mut serde_json::Value)) -> Result<Artifact, Error> {
    let (artifact, documents) = (lora(), lora().manifest().unwrap());
    let mut manifest: serde_json::Value = serde_json::from_slice(&documents.manifest).unwrap();
    change(&mut manifest);
    Parts::read(manifest.to_string().as_bytes(), None)?.assemble(&documents.configuration, artifact.wasm)
}

/// The text of the error that an altered package gives.
fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> String {
    altered(change).unwrap_err().to_string()
}

#[test]
fn documents_and_component_give_the_package_back() {
    let documents = lora().manifest().unwrap();
    let parts = Parts::read(&documents.manifest, None).unwrap();
    assert_eq!(parts.assemble(&documents.configuration, lora().wasm).unwrap(), lora());
    assert_eq!(documents, lora().manifest().unwrap());
}

#[test]
fn the_documents_are_those_of_the_standard_form() {
    let documents = lora().manifest().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&documents.manifest).unwrap();
    assert_eq!(manifest["mediaType"], MANIFEST);
    assert_eq!(manifest["config"]["mediaType"], CONFIGURATION);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "lora-0.1.0.wasm");

    let signature = manifest["annotations"]["dev.tunebox.signature"].as_str().unwrap();
    assert!(signature.bytes().all(|byte| byte.is_ascii_graphic()), "{signature}");

    let configuration: serde_json::Value = serde_json::from_slice(&documents.configuration).unwrap();
    let keys: Vec<_> = configuration.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["created", "architecture", "os", "layerDigests", "component"]);
    assert_eq!(configuration["layerDigests"][0], documents.layer.as_str());
    assert_eq!(configuration["component"]["target"], "tunebox:method/method@0.2.0");
}

#[test]
fn a_signature_in_an_annotation_may_stand_there_as_it_is() {
    let text = lora().signature.unwrap();
    let result = altered(|manifest| manifest["annotations"]["dev.tunebox.signature"] = text.clone().into());
    assert_eq!(result.unwrap(), lora());
}

#[test]
fn another_number_of_layers_is_refused() {
    let two = refusal(|manifest| {
        let layer = manifest["layers"][0].clone();
        manifest["layers"].as_array_mut().unwrap().push(layer);
    });
    assert_eq!(two, "this is not a WebAssembly package: it has 2 layers");
    let none = refusal(|manifest| manifest["layers"].as_array_mut().unwrap().clear());
    assert_eq!(none, "this is not a WebAssembly package: it has 0 layers");
}

#[test]
fn another_media_type_is_refused_wherever_it_stands() {
    for part in ["/mediaType", "/config/mediaType", "/layers/0/mediaType"] {
        let result = altered(|manifest| *manifest.pointer_mut(part).unwrap() = "application/other\u{1b}".into());
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Explained { reason: Reason::OtherKind, .. }), "{part}: {error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn sizes_and_digests_that_do_not_agree_are_matters_of_trust() {
    use tunebox_foundation::explain::{Exit, Explain};
    let other = format!("sha256:{}", "0".repeat(64));
    let digest = altered(|manifest| manifest["layers"][0]["digest"] = other.clone().into()).unwrap_err();
    assert_eq!(digest.to_string(), "the package is not what was named");
    let size = altered(|manifest| manifest["config"]["size"] = 1.into()).unwrap_err();
    assert_eq!(size.to_string(), "the configuration is not as long as was named");
    assert_eq!((digest.exit(), size.exit()), (Exit::Trust, Exit::Trust));
}

#[test]
fn a_package_that_says_to_be_huge_is_refused_by_its_manifest_alone() {
    let error = refusal(|manifest| manifest["layers"][0]["size"] = (MAX_COMPONENT_BYTES + 1).into());
    assert_eq!(error, "the package is too large for a package");
    let error = refusal(|manifest| manifest["layers"][0]["size"] = (-1).into());
    assert_eq!(error, "the manifest of this package cannot be used");
}

#[test]
fn a_digest_that_is_a_path_is_no_digest() {
    let path = format!("sha256:../../{}", "0".repeat(58));
    let error = refusal(|manifest| manifest["config"]["digest"] = path.into());
    assert_eq!(error, "the configuration of this package cannot be used");
}

#[test]
fn a_configuration_of_another_package_is_refused() {
    let dpo = Artifact { wasm: builtin::find("dpo").unwrap().bytes.to_vec(), signature: None };
    let foreign = dpo.manifest().unwrap().configuration;
    let result = {
        let mut manifest: serde_json::Value = serde_json::from_slice(&lora().manifest().unwrap().manifest).unwrap();
        manifest["config"]["digest"] = digest_of(&foreign).into();
        manifest["config"]["size"] = foreign.len().into();
        Parts::read(manifest.to_string().as_bytes(), None).unwrap().assemble(&foreign, lora().wasm)
    };
    assert_eq!(result.unwrap_err().to_string(), "the configuration of this package cannot be used");
}
