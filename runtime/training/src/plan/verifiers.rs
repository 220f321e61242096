//! The verifiers of a run: found, read, their settings filled in, admitted. Nothing of them runs.

use tunebox_package::{Error as PackageError, Package, Reference, World};
use tunebox_sandbox::{Engine, Value, Verifier};

use super::method::{convert, setting_problem, table};
use super::trust;
use crate::configuration::{Half, Problem, RunSettings, VerifierTable};
use crate::error::Error;
use tunebox_package::resolve_settings;

/// A verifier that is ready to start.
pub struct PlannedVerifier {
    /// What metrics and messages call it.
    pub name: String,
    /// Its part in the reward.
    pub weight: f32,
    /// The field of a record that it gets as the answer.
    pub field: String,
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    pub(crate) admitted: Verifier,
}

/// Finds and admits the verifiers that the settings list.
pub(crate) fn verifiers(settings: &RunSettings, engine: &Engine) -> Result<Vec<PlannedVerifier>, Error> {
    let tables = &settings.file.verifier;
    let mut planned: Vec<PlannedVerifier> = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let verifier = verifier(settings, engine, number, table)?;
        if planned.iter().any(|other| other.name == verifier.name) {
            let what = format!("two verifiers are called `{}`", verifier.name);
            let problem = Problem::Conflict { what, hint: "give one of them another `name`".into() };
            return Err(settings.wrong(&format!("verifier.{number}.use"), Half::Value, problem));
        }
        planned.push(verifier);
    }
    Ok(planned)
}

fn verifier(
    settings: &RunSettings,
    engine: &Engine,
    number: usize,
    given: &VerifierTable,
) -> Result<PlannedVerifier, Error> {
    let key = format!("verifier.{number}");
    let found = settings.verifier_reference(number, &given.r#use)?;
    let engine = engine.of_stranger(!matches!(found, Reference::Builtin(_)));
    let package = trust::held(&found, settings.project())?;
    if package.manifest.world != World::Verifier {
        let name = package.manifest.name;
        return Err(PackageError::OtherWorld { name, found: "method", wanted: "verifier" }.into());
    }
    let values = resolve_settings(&package.manifest, &table(&given.settings))
        .map_err(|error| setting_problem(settings, &key, &given.r#use, error))?;
    let admitted =
        engine.admit_verifier(&package.bytes, &package.manifest.name, &settings.file.limits.of_verifiers())?;
    Ok(PlannedVerifier {
        name: given.name.clone().unwrap_or_else(|| package.manifest.name.clone()),
        weight: given.weight as f32,
        field: given.answer.clone(),
        settings: values.into_iter().map(|(name, value)| (name, convert(value))).collect(),
        package,
        admitted,
    })
}
