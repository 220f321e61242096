//! The method of a run: found, read, its settings filled in, admitted. Nothing of it runs.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};
use tunebox_foundation::explain::Explain;
use tunebox_package::settings::SettingError;
use tunebox_package::{
    Error as PackageError, Package, Reference, Value as Given, World, component, manifest, read_manifest,
    resolve_settings,
};
use tunebox_sandbox::native::{Twin, every_interface};
use tunebox_sandbox::{Engine, Error as Refused, Grants, Limits, Method, Value, interface_of};

use super::summary::values;
use super::trust;
use crate::configuration::{Half, Problem, RunSettings};
use crate::data::Shape;
use crate::digest::digest;
use crate::error::Error;

/// A method that is ready to start.
pub struct PlannedMethod {
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    /// The shapes of record that it learns from.
    pub shapes: Vec<Shape>,
    /// What it may use up.
    pub limits: Limits,
    pub(crate) admitted: Method,
}

impl PlannedMethod {
    /// Whether it can ask for a gradient at all; one that cannot needs nothing to train.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.asks_for("learn")
    }

    /// Whether it can ask for an edit of the weights at all.
    #[must_use]
    pub fn edits(&self) -> bool {
        self.asks_for("weights")
    }

    /// What to tell about a method that can leave nothing behind.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        without_effect(self.admitted.imports())
    }

    /// Completions that it writes for a prompt, where a setting says so that is called as those of the built-in methods.
    #[must_use]
    pub fn completions(&self) -> Option<u64> {
        self.whole("completions").filter(|count| *count > 0)
    }

    /// New tokens of a completion at most, where its settings say so.
    pub(crate) fn new_tokens(&self) -> Option<u64> {
        self.whole("max-tokens").filter(|count| *count > 0)
    }

    fn whole(&self, name: &str) -> Option<u64> {
        self.settings.iter().find_map(|(known, value)| match value {
            Value::Integer(count) if known == name => u64::try_from(*count).ok(),
            _ => None,
        })
    }

    fn asks_for(&self, interface: &str) -> bool {
        self.admitted.imports().iter().any(|import| interface_of(import) == Some(interface))
    }
}

/// What to tell about a method with these imports, if it can leave nothing behind.
#[must_use]
pub fn without_effect(imports: &[String]) -> Option<&'static str> {
    let leaves = |import: &String| matches!(interface_of(import), Some("learn" | "weights" | "hidden"));
    (!imports.iter().any(leaves)).then_some(
        "the method never calls `minimise`: nothing is trained, and no adapter will be written; \
         `minimise(&loss)?` in its `step` is what learns",
    )
}

/// Finds and admits the method that the settings name.
pub(crate) fn method(settings: &RunSettings, engine: &Engine) -> Result<PlannedMethod, Error> {
    let found = settings.method_reference()?;
    let engine = engine.of_stranger(!matches!(found, Reference::Builtin(_)));
    let package = trust::held(&found, settings.project())?;
    prepared(settings, package, |package, limits| {
        engine.admit(&package.bytes, &package.manifest.name, &grants(settings), limits)
    })
}

/// The method of a process that says itself what it is, and may ask for everything.
pub(crate) fn native(settings: &RunSettings, manifest: &str, twin: Twin) -> Result<PlannedMethod, Error> {
    let package = Package {
        manifest: manifest::parse(manifest.as_bytes())?,
        imports: every_interface(),
        digest: digest(manifest.as_bytes()),
        bytes: Cow::Borrowed(&[]),
        origin: "a process of its own".into(),
        signature: None,
        signer: None,
        source: None,
    };
    prepared(settings, package, |package, _| Ok(Method::native(&package.manifest.name, package.imports.clone(), twin)))
}

/// The same method from other bytes, for a run that goes on with it: its author's.
pub(crate) fn revised(settings: &RunSettings, bytes: Vec<u8>, engine: &Engine) -> Result<PlannedMethod, Error> {
    let package = Package {
        manifest: read_manifest(&bytes)?,
        imports: component::interfaces(&bytes)?.imports,
        digest: digest(&bytes),
        bytes: Cow::Owned(bytes),
        origin: "built while the run went on".into(),
        signature: None,
        signer: None,
        source: None,
    };
    prepared(settings, package, |package, limits| {
        let engine = engine.of_stranger(true);
        engine.admit(&package.bytes, &package.manifest.name, &grants(settings), limits)
    })
}

/// A method with its settings filled in, and what is called of it.
fn prepared(
    settings: &RunSettings,
    package: Package,
    admit: impl FnOnce(&Package, &Limits) -> Result<Method, Refused>,
) -> Result<PlannedMethod, Error> {
    let name = &settings.file.method.r#use;
    if package.manifest.world != World::Method {
        let name = package.manifest.name;
        return Err(PackageError::OtherWorld { name, found: "verifier", wanted: "method" }.into());
    }
    let shapes = Shape::of_method(&package.manifest.shape).ok_or_else(|| {
        let shape = &package.manifest.shape;
        let what = format!("method `{name}` learns from records of the shape `{shape}`, which cannot be read yet");
        settings.wrong("method.use", Half::Value, Problem::Method { what, why: None, hint: None })
    })?;
    let values = resolve(settings, &package)?;
    let limits = settings.file.limits.of_method();
    let admitted = admit(&package, &limits)?;
    Ok(PlannedMethod { package, settings: values, shapes, limits, admitted })
}

/// What every method gets, and what the run file names.
fn grants(settings: &RunSettings) -> Grants {
    let named = settings.file.method.grants.iter();
    named.fold(Grants::default(), |grants, grant| grants.with(grant.interface()))
}

fn resolve(settings: &RunSettings, package: &Package) -> Result<Vec<(String, Value)>, Error> {
    let given = table(&settings.file.method.settings);
    let values = resolve_settings(&package.manifest, &given);
    let values = values.map_err(|error| setting_problem(settings, "method", &settings.file.method.r#use, error))?;
    Ok(values.into_iter().map(|(name, value)| (name, convert(value))).collect())
}

/// The settings of a run's method as a lock lists them, of a method that is only read: with every default; as they were
/// given where the method does not take them, which no lock lists.
pub(crate) fn listed_settings(settings: &RunSettings, package: &Package) -> toml::Table {
    match resolve(settings, package) {
        Ok(resolved) => table(&values(&resolved)),
        Err(_) => table(&settings.file.method.settings),
    }
}

/// A wrong setting of a component that the run calls `used`, at its place below a table of the run file.
pub(super) fn setting_problem(settings: &RunSettings, below: &str, used: &str, error: PackageError) -> Error {
    match error {
        PackageError::Setting(wrong) => {
            let half = if matches!(wrong, SettingError::Unknown { .. }) { Half::Key } else { Half::Value };
            let hint = match wrong {
                SettingError::Value { .. } => Some(format!("`tunebox inspect {used}` lists settings and ranges")),
                _ => wrong.hint(),
            };
            let problem = Problem::Method { what: wrong.to_string(), why: wrong.why(), hint };
            settings.wrong(&format!("{below}.{}", wrong.name()), half, problem)
        }
        other => other.into(),
    }
}

pub(super) fn convert(value: Given) -> Value {
    match value {
        Given::Boolean(value) => Value::Boolean(value),
        Given::Integer(value) => Value::Integer(value),
        Given::Number(value) => Value::Number(value),
        Given::Text(value) => Value::Text(value),
    }
}

/// The settings as they were in the run file; JSON and TOML agree on all that a setting can be.
pub(super) fn table(settings: &Map<String, Json>) -> toml::Table {
    let entries = settings.iter().filter_map(|(name, value)| {
        let value = toml::Value::try_from(value).ok()?;
        Some((name.clone(), value))
    });
    entries.collect()
}
