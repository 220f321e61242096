//! Everything that is wrong with the settings of a run, as far as the settings and the manifests of its components
//! tell. Opens neither model nor data, and compiles nothing.

use tunebox_package::{Package, Reference, Updates};

use super::adapter::{adapter_problems, check_one_adapter, check_reference};
use super::data::check_held_back;
use super::environment::{environment_conflict, environment_problems};
use super::folder::check_run_name;
use super::method::{component_problems, imports, own_update_problems};
use super::model::check_full_training;
use super::optimizer::optimizer_problems;
use super::reward::reward_problems;
use super::schedule::parse_schedule;
use super::teachers::teacher_problems;
use super::trust::open_package;
use crate::configuration::{RunSettings, Underline, join};
use crate::error::Error;

/// Returns all problems of the settings that can be found without opening model or data: settings that contradict each
/// other, a component (method, verifier or environment) that cannot be opened, settings that it does not take, a method
/// that learns from rewards in a run without a verifier or an environment, a method that samples nothing in a run with
/// an environment, and a method with a teacher too many or too few. Skips a component whose name is empty, and method
/// and optimizer if the method runs as processes of its author.
pub(crate) fn setting_problems(settings: &RunSettings) -> Vec<Error> {
    let mut problems: Vec<Error> = [
        parse_schedule(settings).err(),
        check_full_training(settings).err(),
        check_one_adapter(settings).err(),
        check_reference(settings).err(),
        check_run_name(settings).err(),
        check_held_back(settings).err(),
    ]
    .into_iter()
    .flatten()
    .collect();
    problems.extend(adapter_problems(settings));
    let file = &settings.file;
    if settings.native.is_none() {
        let method = (!file.method.r#use.is_empty()).then(|| open(settings, settings.method_reference()));
        match method {
            Some(Ok(package)) => problems.extend(method_problems(settings, &package)),
            Some(Err(error)) => problems.push(error),
            None => problems.extend(optimizer_problems(settings)),
        }
    }
    for (number, verifier) in file.verifier.iter().enumerate().filter(|(_, verifier)| !verifier.r#use.is_empty()) {
        let below = format!("verifier.{number}");
        if verifier.reward_model().is_some() {
            problems.extend(reward_problems(settings, number, &verifier.settings));
            continue;
        }
        match open(settings, settings.verifier_reference(number)) {
            Ok(package) => {
                let used = &verifier.r#use;
                problems.extend(component_problems(settings, &below, used, &package, &verifier.settings));
            }
            Err(error) => problems.push(error),
        }
    }
    problems.extend(environment_problems(settings));
    problems
}

/// Checks the settings of a run without its model and data.
///
/// # Errors
/// All problems of the settings together: [`setting_problems`].
pub(crate) fn check_settings(settings: &RunSettings) -> Result<(), Error> {
    join(setting_problems(settings))
}

/// Opens the package of a method or verifier, checked against the lock of the project.
fn open(settings: &RunSettings, found: Result<Reference, Error>) -> Result<Package, Error> {
    open_package(&found?, settings.project())
}

/// Returns the problems of the run's settings with this method: settings that it does not take; teachers that it lacks
/// or does not ask for; wrong settings of the optimizer, or any of them if the method updates the parameters itself; an
/// environment though the method samples no completions; and no verifier or environment though it learns from rewards.
fn method_problems(settings: &RunSettings, package: &Package) -> Vec<Error> {
    let table = &settings.file.method;
    let mut problems = component_problems(settings, "method", &table.r#use, package, &table.settings);
    problems.extend(teacher_problems(settings, package));
    problems.extend(match package.manifest.update {
        Updates::Host => optimizer_problems(settings),
        Updates::Method => own_update_problems(settings, package),
    });
    problems.extend(environment_conflict(settings, package));
    if imports(package, "reward") && settings.file.verifier.is_empty() && settings.file.environment.is_none() {
        let what = format!("`{}` learns from rewards, and the run has no verifier", table.r#use);
        let hint = "add `[[verifier]]` and `use = \"number\"` below it, or `--set verifier.0.use=number`; \
                    `tunebox list` names the built-in verifiers";
        problems.push(settings.conflict("method.use", Underline::Value, &what, hint));
    }
    problems
}
