//! The inputs of a run, as far as they are known without compiling its components.

use serde_json::{Value, json};
use toml::Table;
use tunebox_foundation::explain::Explanation;
use tunebox_package::Package;

use super::comparison::{ABSENT, Comparison};
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;
use crate::lock;
use crate::lock::write::{list, remove_nulls, verifier};
use crate::plan::{digests, lock_settings};

/// The keys of a lock that only a plan knows.
const PLANNED: [&str; 6] =
    ["model.family", "data.records", "data.tokens-sha256", "validation.records", "validation.tokens-sha256", "steps"];

/// Checks that data files which only the run's own file names, and no `--set`, are ordinary files or missing. Reading a
/// pipe could wait without end.
///
/// # Errors
/// Something else than an ordinary file, located in the run's file.
pub(super) fn check_data_files(settings: &RunSettings) -> Result<(), Error> {
    let data = &settings.file.data;
    let written = [("data.path", Some(&data.path)), ("data.validation", data.validation.as_ref())];
    for (key, written) in written {
        let Some(written) = written.filter(|_| !settings.is_override(key)) else { continue };
        let path = settings.path(key, written);
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            let what = format!("`{}` is no ordinary file", path.display());
            let problem = Explanation::new("config", what)
                .with_why("a run may be anybody's, and what is no file need not end")
                .with_hint(format!("if you would read it, name it: `--set {key}=PATH`"));
            return Err(settings.error(key, Underline::Value, problem));
        }
    }
    Ok(())
}

/// The present inputs of a run as a lock, without the keys that only a plan knows. `components` are the method, then
/// the verifiers, each as read; those that cannot be read are left out.
///
/// # Errors
/// A model or data that cannot be read.
pub(super) fn lock_without_plan(settings: &RunSettings, components: &[Result<Package, Error>]) -> Result<Table, Error> {
    let ((model, adapter), file) = (digests(settings)?, &settings.file);
    let data = |key: &str, written: &str| -> Result<Value, Error> {
        Ok(json!({ "sha256": tunebox_model::digest(&[settings.path(key, written)])? }))
    };
    let validation = file.data.validation.as_deref().map(|written| data("data.validation", written)).transpose()?;
    let mut components = components.iter().map(|read| read.as_ref().ok());
    let method = components.next().flatten().map(|package| method(settings, package));
    let verifiers = components.map(|read| read.map_or(json!({}), |package| verifier("", package)));
    let mut now = json!({
        "seed": file.train.seed,
        "steps": file.train.steps,
        "model": { "sha256": model, "adapter": adapter },
        "data": data("data.path", &file.data.path)?,
        "validation": validation,
        "method": method,
        "verifier": list(verifiers.collect()),
    });
    remove_nulls(&mut now);
    Ok(Table::try_from(now).unwrap_or_default())
}

/// The table `method` of a lock, for the run's present method and settings.
pub(super) fn method(settings: &RunSettings, package: &Package) -> Value {
    lock::write::method(package, &lock_settings(settings, package), &[])
}

/// Removes comparisons whose present value is `absent` only because [`lock_without_plan`] cannot know it: keys that
/// only a plan knows, and those of components that cannot be read. Other absent values stay, as differences.
pub(super) fn remove_unknown(compared: &mut Vec<Comparison>, components: &[Result<Package, Error>]) {
    let names = std::iter::once("method.".to_owned()).chain((0_usize..).map(|number| format!("verifier.{number}.")));
    let unread = components.iter().zip(names).filter(|(read, _)| read.is_err());
    let unread: Vec<String> = unread.map(|(_, name)| name).collect();
    let unknown = |what: &str| PLANNED.contains(&what) || unread.iter().any(|name| what.starts_with(name.as_str()));
    compared.retain(|one| one.found != ABSENT || !unknown(&one.what));
}
