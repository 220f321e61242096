//! Writes `run.lock`: what a run was made of, so that it can be replayed and compared.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use toml::Table;
use tunebox_compute::device::DeviceInfo;
use tunebox_package::Package;
use tunebox_sandbox::COSTS;

use super::NOTHING;
use crate::data::Dataset;
use crate::error::Error;
use crate::plan::{PlannedRun, PlannedVerifier};

/// A file of the artifact.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Written {
    /// The path of the file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The lock of a plan as TOML. `artifact` is `None` before the end of the run, then the files that it left.
///
/// # Errors
/// A file of the artifact that cannot be read for its digest.
pub(crate) fn lock(plan: &PlannedRun, artifact: Option<&[Written]>) -> Result<String, Error> {
    let (summary, identity) = (&plan.summary, &plan.identity);
    let mut lock = Map::new();
    let mut add = |key: &str, value: Value| lock.insert(key.to_owned(), value);
    add("schema", json!(1));
    add("tunebox", json!(env!("CARGO_PKG_VERSION")));
    add("costs", json!(COSTS));
    add("seed", json!(plan.settings.file.train.seed));
    add("steps", json!(plan.steps));
    add("device", json!(summary.device));
    add("compute", json!(plan.compute.as_str()));
    add("system", json!(system()));
    add("clock", json!(plan.clock));
    if artifact.is_some_and(<[Written]>::is_empty) {
        add("left", json!(NOTHING));
    }
    if let Some(about) = &plan.accelerator {
        add("accelerator", accelerator(about));
    }
    add(
        "model",
        without_nulls(json!({
            "name": summary.model, "family": summary.family, "sha256": identity.model, "adapter": identity.adapter,
        })),
    );
    add("data", data(&plan.data));
    if let Some(validation) = &plan.validation {
        add("validation", data(validation));
    }
    add("method", method(plan));
    if !plan.verifiers.is_empty() {
        let verifier = |verifier: &PlannedVerifier| {
            let package = &verifier.package;
            without_nulls(json!({
                "name": verifier.name, "version": package.manifest.version, "sha256": package.digest,
                "signer": signer(package), "source": package.source,
            }))
        };
        add("verifier", plan.verifiers.iter().map(verifier).collect());
    }
    add("settings", json!(Table::try_from(&plan.settings.file).unwrap_or_default()));
    if let Some(files) = artifact.filter(|files| !files.is_empty()) {
        add("artifact", files.iter().map(file).collect::<Result<_, Error>>()?);
    }
    Ok(toml::to_string_pretty(&lock).unwrap_or_default())
}

/// The table of the method. `revised` lists its changes during the run; the other keys are those of the last version.
fn method(plan: &PlannedRun) -> Value {
    let package = &plan.method.package;
    let mut table = without_nulls(json!({
        "name": package.manifest.name, "version": package.manifest.version, "interface": package.manifest.interface,
        "sha256": package.digest, "signer": signer(package), "source": package.source, "imports": package.imports,
        "settings": plan.summary.settings,
    }));
    if !plan.revised.is_empty() {
        table["revised"] = json!(plan.revised);
    }
    table
}

fn file(written: &Written) -> Result<Value, Error> {
    let name = written.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = tunebox_model::digest(std::slice::from_ref(&written.path))?;
    Ok(json!({ "name": name, "bytes": written.bytes, "sha256": digest }))
}

fn data(data: &Dataset) -> Value {
    json!({
        "name": data.name, "records": data.examples.len(), "sha256": data.digest, "tokens-sha256": data.token_digest,
    })
}

/// The public key that signed a package.
pub(crate) fn signer(package: &Package) -> Option<&str> {
    package.signer.as_ref().map(|signer| signer.key.as_str())
}

/// The processor architecture and operating system, as a lock names them.
pub(crate) fn system() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The table of a device other than the CPU.
pub(crate) fn accelerator(about: &DeviceInfo) -> Value {
    json!({ "chip": about.name, "architecture": about.architecture, "software": about.software })
}

/// An object without its null fields, which TOML does not have.
fn without_nulls(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    object
}

/// `run.lock` of a plan as a table, as [`lock`] would write it before the run.
pub(crate) fn table(plan: &PlannedRun) -> Result<Table, Error> {
    super::parse(&plan.folder.join(super::FILE), &lock(plan, None)?)
}
