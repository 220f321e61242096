//! Loads the environment of a run: finds and reads its package, resolves its settings, admits its component. Runs
//! nothing of it.

use tunebox_model::Model;
use tunebox_model::chat::Continuation;
use tunebox_package::{Package, Reference, World, resolve_settings};
use tunebox_sandbox::{Engine, Environment, Value};

use super::method::{component_problems, imports, setting_error, toml_table};
use super::trust::open_package;
use super::verifier::PlannedVerifier;
use crate::configuration::{EnvironmentTable, RunSettings, Underline};
use crate::error::Error;

/// An environment that is ready to start.
pub struct PlannedEnvironment {
    /// The environment's name in metrics and messages: that of its manifest.
    pub name: String,
    /// Its table in the run file.
    pub table: EnvironmentTable,
    /// The most bytes of a message.
    pub message_bytes: usize,
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    pub(crate) admitted: Environment,
}

/// Finds the environment of the run file, reads its package, checks it against the project's lock, resolves its
/// settings and compiles its component, in a child process if `engine` has one configured. `None` if the run has none.
/// Fails if a verifier of the run, one of `verifiers`, has its name.
pub(crate) fn load_environment(
    settings: &RunSettings,
    engine: &Engine,
    verifiers: &[PlannedVerifier],
) -> Result<Option<PlannedEnvironment>, Error> {
    let (Some(given), Some(found)) = (&settings.file.environment, settings.environment_reference()) else {
        return Ok(None);
    };
    let found = found?;
    let engine = engine.for_untrusted(!matches!(found, Reference::Builtin(_)));
    let package = open_package(&found, settings.project())?;
    package.expect_world(World::Environment)?;
    let values = resolve_settings(&package.manifest, &toml_table(&given.settings))
        .map_err(|error| setting_error(settings, "environment", &given.r#use, &package.manifest, &error))?;
    let (name, limits) = (package.manifest.name.clone(), &settings.file.limits);
    if verifiers.iter().any(|verifier| verifier.name == name) {
        let what = format!("a verifier and the environment are called `{name}`");
        return Err(settings.conflict("environment.use", Underline::Value, &what, "give the verifier another `name`"));
    }
    let admitted = engine.admit_environment(&package.bytes, &name, limits)?;
    Ok(Some(PlannedEnvironment {
        name,
        table: given.clone(),
        message_bytes: limits.environment_message_bytes,
        package,
        settings: values,
        admitted,
    }))
}

/// Returns the problems of the environment's settings: one that cannot be found or read, and settings that it does not
/// take. Nothing if the run has no environment or its name is empty.
pub(super) fn environment_problems(settings: &RunSettings) -> Vec<Error> {
    let given = settings.file.environment.as_ref().filter(|given| !given.r#use.is_empty());
    let (Some(given), Some(found)) = (given, settings.environment_reference()) else { return Vec::new() };
    match found.and_then(|found| open_package(&found, settings.project())) {
        Ok(package) => component_problems(settings, "environment", &given.r#use, &package, &given.settings),
        Err(error) => vec![error],
    }
}

/// Returns the error about an environment in the run of a method that samples no completions; `None` without an
/// environment, or if the method samples.
pub(super) fn environment_conflict(settings: &RunSettings, method: &Package) -> Option<Error> {
    if settings.file.environment.is_none() || imports(method, "sample") {
        return None;
    }
    let what =
        format!("`{}` samples no completions, and the run has an environment to answer them", method.manifest.name);
    let hint = "remove `[environment]`, or choose a method that samples, such as `grpo`";
    Some(settings.conflict("environment.use", Underline::Value, &what, hint))
}

/// Fails if the run has an environment, and it cannot be told how the model's chat goes on after an answer, as in a
/// model without a chat template.
pub(super) fn check_chat(settings: &RunSettings, model: &Model) -> Result<(), Error> {
    if settings.file.environment.is_some() {
        Continuation::of(model).map_err(|error| settings.with_location("environment.use", error))?;
    }
    Ok(())
}
