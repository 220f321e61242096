//! What goes into a run, as far as it is known without compiling anything of it.

use toml::{Table, Value};
use tunebox_package::Package;

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::digests;

/// What the lock of the same run would say of it now, by the same keys. `components` are the method and the verifiers, of
/// which those are left out that cannot be read.
///
/// # Errors
/// A model or data that cannot be read.
pub(super) fn without_compiling(settings: &RunSettings, components: &[Result<Package, Error>]) -> Result<Table, Error> {
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
    let mut components = components.iter().map(|read| Value::Table(read.as_ref().map(component).unwrap_or_default()));
    if let Some(method) = components.next() {
        now.insert("method".into(), method);
    }
    let verifiers: Vec<Value> = components.collect();
    if !verifiers.is_empty() {
        now.insert("verifier".into(), Value::Array(verifiers));
    }
    Ok(now)
}

fn file(settings: &RunSettings, key: &str, written: &str) -> Result<Table, Error> {
    Ok(digest(tunebox_model::digest(&[settings.path(key, written)])?))
}

fn component(package: &Package) -> Table {
    let version = Value::String(package.manifest.version.clone());
    digest(package.digest.clone()).into_iter().chain([("version".to_owned(), version)]).collect()
}

fn digest(digest: String) -> Table {
    Table::from_iter([("sha256".to_owned(), Value::String(digest))])
}

/// As a lock writes it.
fn number(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::String(value.to_string()), Value::Integer)
}
