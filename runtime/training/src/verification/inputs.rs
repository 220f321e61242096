//! The inputs of a run, as far as they are known without compiling its components.

use toml::{Table, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_package::Package;

use super::comparison::{ABSENT, Comparison};
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;
use crate::lock::write::signer;
use crate::plan::{digests, lock_settings};

/// The keys of a lock that only a plan knows.
const PLANNED: [&str; 6] =
    ["model.family", "data.records", "data.tokens-sha256", "validation.records", "validation.tokens-sha256", "steps"];

/// Checks that data files which only the run's own file names are ordinary files. Reading a pipe could wait without end.
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

/// The inputs in the form of a lock, without the keys that only a plan knows. `components` are the method and the verifiers;
/// those that cannot be read are left out.
///
/// # Errors
/// A model or data that cannot be read.
pub(super) fn lock_without_plan(settings: &RunSettings, components: &[Result<Package, Error>]) -> Result<Table, Error> {
    let (model, adapter) = digests(settings)?;
    let adapter = adapter.map(|digest| ("adapter".to_owned(), Value::String(digest)));
    let model = digest(model).into_iter().chain(adapter).collect::<Table>();
    let mut now = Table::from_iter([
        ("seed".to_owned(), number(settings.file.train.seed)),
        ("model".to_owned(), Value::Table(model)),
        ("data".to_owned(), Value::Table(file(settings, "data.path", &settings.file.data.path)?)),
    ]);
    if let Some(steps) = settings.file.train.steps {
        now.insert("steps".into(), number(steps.into()));
    }
    if let Some(written) = &settings.file.data.validation {
        now.insert("validation".into(), Value::Table(file(settings, "data.validation", written)?));
    }
    let mut components = components.iter();
    if let Some(Ok(package)) = components.next() {
        now.insert("method".into(), Value::Table(method(settings, package)));
    }
    let verifiers = components.map(|read| Value::Table(read.as_ref().map(component).unwrap_or_default()));
    let verifiers: Vec<Value> = verifiers.collect();
    if !verifiers.is_empty() {
        now.insert("verifier".into(), Value::Array(verifiers));
    }
    Ok(now)
}

/// Removes the values from a comparison with [`lock_without_plan`] that are absent because they are not known: those that only
/// a plan knows, and those of components that cannot be read. Other absent values are differences.
pub(super) fn remove_unknown(compared: &mut Vec<Comparison>, components: &[Result<Package, Error>]) {
    let names = std::iter::once("method.".to_owned()).chain((0_usize..).map(|number| format!("verifier.{number}.")));
    let unread = components.iter().zip(names).filter(|(read, _)| read.is_err());
    let unread: Vec<String> = unread.map(|(_, name)| name).collect();
    let unknown = |what: &str| PLANNED.contains(&what) || unread.iter().any(|name| what.starts_with(name.as_str()));
    compared.retain(|one| one.found != ABSENT || !unknown(&one.what));
}

fn file(settings: &RunSettings, key: &str, written: &str) -> Result<Table, Error> {
    Ok(digest(tunebox_model::digest(&[settings.path(key, written)])?))
}

/// The table of a method in a lock, with its settings.
pub(super) fn method(settings: &RunSettings, package: &Package) -> Table {
    let mut table = component(package);
    table.insert("interface".into(), Value::String(package.manifest.interface.clone()));
    table.insert("imports".into(), Value::Array(package.imports.iter().cloned().map(Value::String).collect()));
    table.insert("settings".into(), Value::Table(lock_settings(settings, package)));
    table
}

/// The table of a component in a lock.
fn component(package: &Package) -> Table {
    let mut table = digest(package.digest.clone());
    table.insert("version".into(), Value::String(package.manifest.version.clone()));
    if let Some(signer) = signer(package) {
        table.insert("signer".into(), Value::String(signer.to_owned()));
    }
    table
}

fn digest(digest: String) -> Table {
    Table::from_iter([("sha256".to_owned(), Value::String(digest))])
}

/// A number as a lock has it.
fn number(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::String(value.to_string()), Value::Integer)
}
