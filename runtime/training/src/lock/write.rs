//! Writes `run.lock`: what a run was made of, so that it can be replayed and compared.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use toml::Table;
use tunebox_compute::device::DeviceInfo;
use tunebox_compute::fused::instruction_sets;
use tunebox_foundation::files;
use tunebox_model::Source;
use tunebox_package::Package;
use tunebox_sandbox::COSTS;

use super::{FILE, NO_ARTIFACT};
use crate::data::Dataset;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::plan::{PlannedJudge, PlannedRun, Revision};

/// A file of the artifact.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Written {
    /// The path of the file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Writes the `run.lock` of a plan into the run's folder, atomically. `end` is `None` before the end of the run; at the
/// end it lists the files that the run left, and says how it ended.
///
/// # Errors
/// A file of the artifact that cannot be read for its digest, and a lock that cannot be written.
pub(crate) fn write(plan: &PlannedRun, end: Option<(&[Written], &Outcome)>) -> Result<(), Error> {
    let text = toml::to_string_pretty(&lock_json(plan, end)?).unwrap_or_default();
    Ok(files::write(&plan.folder.join(FILE), text.as_bytes())?)
}

/// Returns the `run.lock` of a plan as a TOML table, as [`write`] writes it before the run: without the list of files
/// that the run leaves.
pub(crate) fn lock_table(plan: &PlannedRun) -> Result<Table, Error> {
    Ok(Table::try_from(lock_json(plan, None)?).unwrap_or_default())
}

/// Returns the lock of a plan as a JSON object, with null values removed. `end` is `None` before the end of the run; an
/// empty list of files records that the run left nothing, as `left = "nothing"`. Reads the files of the artifact for
/// their digests.
fn lock_json(plan: &PlannedRun, end: Option<(&[Written], &Outcome)>) -> Result<Value, Error> {
    let artifact = end.map(|(files, _)| files);
    let (summary, identity) = (&plan.summary, &plan.identity);
    let files = artifact.unwrap_or_default().iter().map(artifact_entry).collect::<Result<Vec<_>, Error>>()?;
    let verifiers = plan.verifiers.iter().map(|verifier| self::verifier_entry(&verifier.name, &verifier.judge));
    let method = method_table(&plan.method.package, &summary.settings, &plan.revised);
    let mut lock = json!({
        "schema": 1,
        "tunebox": env!("CARGO_PKG_VERSION"),
        "costs": COSTS,
        "seed": plan.settings.file.train.seed,
        "steps": summary.steps,
        "extended": Some(&plan.learning_rate.length.extended).filter(|list| !list.is_empty()),
        "device": summary.device,
        "compute": plan.compute.as_str(),
        "system": system_name(),
        "processor": instruction_sets(),
        "clock": plan.clock,
        "left": artifact.filter(|files| files.is_empty()).map(|_| NO_ARTIFACT),
        "accelerator": plan.accelerator.as_ref().map(accelerator_table),
        "model": {
            "name": summary.model, "family": summary.family, "sha256": identity.model, "adapter": identity.adapter,
        },
        "teacher": list_or_null(identity.teachers.iter().map(|digest| json!({ "sha256": digest })).collect()),
        "data": data_table(&plan.data),
        "validation": plan.validation.as_ref().map(data_table),
        "method": method,
        "verifier": list_or_null(verifiers.collect()),
        "environment": plan.environment.as_ref().map(|given| component_entry(&given.name, &given.package)),
        "settings": Table::try_from(&plan.settings.file).unwrap_or_default(),
        "result": end.map(|(_, outcome)| outcome.table()),
        "artifact": list_or_null(files),
    });
    remove_nulls(&mut lock);
    Ok(lock)
}

/// The table `method` of a `run.lock`, as JSON. `settings` are the method's settings including defaults. `revised`
/// lists the changes of the method during the run; all other keys describe the last version, `package`.
pub(crate) fn method_table(package: &Package, settings: &Map<String, Value>, revised: &[Revision]) -> Value {
    json!({
        "name": package.manifest.name, "version": package.manifest.version, "interface": package.manifest.interface,
        "sha256": package.digest, "signer": package.signer.as_ref().map(|signer| &signer.key), "source": package.source, "imports": package.imports,
        "settings": settings, "revised": Some(revised).filter(|list| !list.is_empty()),
    })
}

/// An entry of the list `verifier` of a `run.lock`, as JSON; `name` is the verifier's name in the run.
fn verifier_entry(name: &str, judge: &PlannedJudge) -> Value {
    match judge {
        PlannedJudge::Component(component) => component_entry(name, &component.package),
        PlannedJudge::Model(reward) => reward_entry(name, &reward.source, &reward.digest),
    }
}

/// An entry of the list `verifier` for a reward model with this digest.
pub(crate) fn reward_entry(name: &str, source: &Source, digest: &str) -> Value {
    json!({ "name": name, "source": format!("model:{}", source.name()), "sha256": digest })
}

/// An entry of the list `verifier`, or the table `environment`, for a component.
pub(crate) fn component_entry(name: &str, package: &Package) -> Value {
    json!({
        "name": name, "version": package.manifest.version, "sha256": package.digest,
        "signer": package.signer.as_ref().map(|signer| &signer.key),
        "source": package.source,
    })
}

/// An entry of the list `artifact` of a `run.lock`, as JSON: name, size in bytes and SHA-256 of the file.
fn artifact_entry(written: &Written) -> Result<Value, Error> {
    let name = written.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = tunebox_model::digest(std::slice::from_ref(&written.path))?;
    Ok(json!({ "name": name, "bytes": written.bytes, "sha256": digest }))
}

/// The table of a data set in a lock: name, number of records, digests of the file and of the tokens.
fn data_table(data: &Dataset) -> Value {
    json!({
        "name": data.name, "records": data.examples.len(), "sha256": data.digest, "tokens-sha256": data.token_digest,
    })
}

/// The processor architecture and operating system of this program, such as `x86_64-linux`.
pub(crate) fn system_name() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The table of a device other than the CPU in a lock: chip, architecture, and versions of its software.
pub(crate) fn accelerator_table(about: &DeviceInfo) -> Value {
    json!({ "chip": about.name, "architecture": about.architecture, "software": about.software })
}

/// Converts items to a JSON list; null if there are none, so that the lock leaves its key out.
pub(crate) fn list_or_null(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items) }
}

/// Removes the null fields of all objects in a JSON value, at any depth: TOML has no null. Nulls in lists stay.
pub(crate) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
