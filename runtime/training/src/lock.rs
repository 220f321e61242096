//! `run.lock`: what a run was made of, so that it can be made again and compared.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use tunebox_compute::device::DeviceInfo;
use tunebox_compute::precision::Base;
use tunebox_package::Package;
use tunebox_sandbox::COSTS;

use crate::artifact::Written;
use crate::configuration::BasePrecision;
use crate::data::Dataset;
use crate::error::Error;
use crate::plan::{PlannedRun, PlannedVerifier};
use crate::run::Revision;
use tunebox_foundation::files;

/// The file's name in a run's folder.
pub(crate) const FILE: &str = "run.lock";

/// What `left` says of a run without an artifact that came to its end.
const NOTHING: &str = "nothing";

/// Whether the run of a lock came to its end.
pub(crate) fn is_finished(lock: &toml::Table) -> bool {
    let files = lock.get("artifact").and_then(toml::Value::as_array);
    files.is_some_and(|files| !files.is_empty()) || lock.get("left").and_then(toml::Value::as_str) == Some(NOTHING)
}

/// Whether the run of a folder came to its end. One whose lock is gone or broken has not.
pub(crate) fn has_finished(folder: &Path) -> bool {
    read(folder).as_ref().is_some_and(is_finished)
}

/// What the lock of a folder says; none where it is gone or broken.
pub(crate) fn read(folder: &Path) -> Option<toml::Table> {
    files::read_text(&folder.join(FILE)).ok()?.parse().ok()
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Lock<'a> {
    schema: u32,
    tunebox: &'a str,
    /// The version of the table that work is counted by.
    costs: u32,
    seed: u64,
    steps: u64,
    device: &'a str,
    /// What activations were computed in.
    compute: &'a str,
    system: String,
    clock: i64,
    /// `nothing` for a run that came to its end and left no artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerator: Option<Accelerator<'a>>,
    model: Model<'a>,
    data: Data<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<Data<'a>>,
    method: Method<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    verifier: Vec<Verifier<'a>>,
    settings: toml::Table,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifact: Vec<File>,
}

/// What stands behind `device` where that is not the CPU.
#[derive(Serialize)]
pub(crate) struct Accelerator<'a> {
    chip: &'a str,
    architecture: &'a str,
    software: &'a str,
}

/// A file of the artifact.
#[derive(Serialize)]
struct File {
    name: String,
    bytes: u64,
    sha256: String,
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    family: &'a str,
    sha256: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Data<'a> {
    name: &'a str,
    records: usize,
    sha256: &'a str,
    tokens_sha256: &'a str,
}

#[derive(Serialize)]
struct Method<'a> {
    name: &'a str,
    version: &'a str,
    interface: &'a str,
    sha256: &'a str,
    /// Who signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signer: Option<&'a str>,
    /// Where the store had it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    imports: &'a [String],
    settings: Map<String, Value>,
    /// When its author changed it while the run went on. What is above is the last version.
    #[serde(skip_serializing_if = "<[Revision]>::is_empty")]
    revised: &'a [Revision],
}

#[derive(Serialize)]
struct Verifier<'a> {
    name: &'a str,
    version: &'a str,
    sha256: &'a str,
    /// Who signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signer: Option<&'a str>,
    /// Where the store had it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
}

/// The lock of a plan, as TOML: without files before the run, with those of its artifact after it.
///
/// # Errors
/// When a file cannot be read for its digest.
pub(crate) fn lock(plan: &PlannedRun, artifact: Option<&[Written]>) -> Result<String, Error> {
    let package = &plan.method.package;
    let lock = Lock {
        schema: 1,
        tunebox: env!("CARGO_PKG_VERSION"),
        costs: COSTS,
        seed: plan.settings.file.train.seed,
        steps: plan.steps,
        device: &plan.summary.device,
        compute: plan.compute.as_str(),
        system: system(),
        clock: plan.clock,
        left: artifact.filter(|files| files.is_empty()).map(|_| NOTHING),
        accelerator: plan.accelerator.as_ref().map(accelerator),
        model: Model {
            name: &plan.summary.model,
            family: &plan.summary.family,
            sha256: &plan.identity.model,
            adapter: plan.identity.adapter.as_deref(),
        },
        data: data(&plan.data),
        validation: plan.validation.as_ref().map(data),
        method: Method {
            name: &package.manifest.name,
            version: &package.manifest.version,
            interface: &package.manifest.interface,
            sha256: &package.digest,
            signer: signer(package),
            source: package.source.as_deref(),
            imports: &package.imports,
            settings: plan.summary.settings.clone(),
            revised: &plan.revised,
        },
        verifier: plan.verifiers.iter().map(verifier).collect(),
        settings: toml::Table::try_from(&plan.settings.file).unwrap_or_default(),
        artifact: artifact.unwrap_or_default().iter().map(file).collect::<Result<_, _>>()?,
    };
    Ok(toml::to_string_pretty(&lock).unwrap_or_default())
}

/// How the run in a folder kept its base; none where the folder is no run's. A checkpoint is a folder of its run.
///
/// # Errors
/// When the lock cannot be read, or says something that is not known.
pub fn base_precision(folder: &Path) -> Result<Option<Base>, Error> {
    let run = folder.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "steps"));
    let run = run.and_then(Path::parent);
    let found = [Some(folder), run].into_iter().flatten().map(|place| place.join(FILE)).find(|path| path.is_file());
    let Some(path) = found else { return Ok(None) };
    let damaged = |error: toml::de::Error| Error::Damaged { path: path.clone(), what: error.message().to_owned() };
    let lock: toml::Table = files::read_text(&path)?.parse().map_err(damaged)?;
    let model = lock.get("settings").and_then(|settings| settings.get("model"));
    let asked = model.and_then(|model| model.get("precision")).cloned();
    let asked: Option<BasePrecision> = asked.map(toml::Value::try_into).transpose().map_err(damaged)?;
    Ok(Some(BasePrecision::base(asked)))
}

fn file(written: &Written) -> Result<File, Error> {
    let name = written.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(File { name, bytes: written.bytes, sha256: tunebox_model::digest(std::slice::from_ref(&written.path))? })
}

/// What a lock says of the system.
pub(crate) fn system() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// What a lock says of a device.
pub(crate) fn accelerator(about: &DeviceInfo) -> Accelerator<'_> {
    Accelerator { chip: &about.name, architecture: &about.architecture, software: &about.software }
}

fn verifier(planned: &PlannedVerifier) -> Verifier<'_> {
    let package = &planned.package;
    Verifier {
        name: &planned.name,
        version: &package.manifest.version,
        sha256: &package.digest,
        signer: signer(package),
        source: package.source.as_deref(),
    }
}

fn signer(package: &Package) -> Option<&str> {
    package.signer.as_ref().map(|signer| signer.key.as_str())
}

fn data(data: &Dataset) -> Data<'_> {
    Data { name: &data.name, records: data.examples.len(), sha256: &data.digest, tokens_sha256: &data.token_digest }
}
