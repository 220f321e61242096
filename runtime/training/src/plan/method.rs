//! Loads the method of a run: finds and reads its package, resolves its settings, admits its component. Runs nothing of it.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_package::digest::sha256;
use tunebox_package::settings::SettingError;
use tunebox_package::{Package, Reference, World, component, manifest, read_manifest, resolve_settings};
use tunebox_sandbox::native::{Twin, every_interface};
use tunebox_sandbox::{Engine, Error as Refused, Grants, Limits, Method, Value, interface_of};

use super::trust;
use crate::configuration::{RunSettings, Underline};
use crate::data::Shape;
use crate::error::Error;

/// A method that is ready to start.
pub struct PlannedMethod {
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    /// The shapes of records that it learns from.
    pub shapes: Vec<Shape>,
    /// The limits of the method.
    pub limits: Limits,
    pub(crate) admitted: Method,
}

impl PlannedMethod {
    /// Whether it imports `learn`. A method that does not trains nothing.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.imports("learn")
    }

    /// Whether it imports `weights`, which edit the model.
    #[must_use]
    pub fn edits(&self) -> bool {
        self.imports("weights")
    }

    /// A warning if the method cannot have an effect.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        without_effect(self.admitted.imports())
    }

    /// Completions of a prompt: the setting `completions`, if the method has it, as built-in methods do.
    #[must_use]
    pub fn completions(&self) -> Option<u64> {
        self.positive_setting("completions")
    }

    /// Maximum new tokens of a completion: the setting `max-tokens`, if the method has it.
    pub(crate) fn new_tokens(&self) -> Option<u64> {
        self.positive_setting("max-tokens")
    }

    /// The value of a setting that is a positive integer.
    fn positive_setting(&self, name: &str) -> Option<u64> {
        self.settings.iter().find_map(|(known, value)| match value {
            Value::Integer(count) if known == name && *count > 0 => u64::try_from(*count).ok(),
            _ => None,
        })
    }

    /// Whether the method imports an interface, given by its short name.
    fn imports(&self, interface: &str) -> bool {
        self.admitted.imports().iter().any(|import| interface_of(import) == Some(interface))
    }
}

/// A warning for a method whose imports do not let it train, edit or publish anything.
#[must_use]
pub fn without_effect(imports: &[String]) -> Option<&'static str> {
    let has_effect = |import: &String| matches!(interface_of(import), Some("learn" | "weights" | "hidden"));
    (!imports.iter().any(has_effect)).then_some(
        "the method never calls `minimise`: nothing is trained, and no adapter will be written; \
         `minimise(&loss)?` in its `step` is what learns",
    )
}

/// Finds, reads and admits the method that the settings name.
pub(super) fn load_method(settings: &RunSettings, engine: &Engine) -> Result<PlannedMethod, Error> {
    let found = settings.method_reference()?;
    let engine = engine.of_stranger(!matches!(found, Reference::Builtin(_)));
    let package = trust::open_package(&found, settings.project())?;
    prepare(settings, package, |package, limits| {
        engine.admit(&package.bytes, &package.manifest.name, &grants(settings), limits)
    })
}

/// A method that runs in its own process and sent its manifest; it may use every interface.
pub(crate) fn native(settings: &RunSettings, manifest: &str, twin: Twin) -> Result<PlannedMethod, Error> {
    let package = Package {
        manifest: manifest::parse(manifest.as_bytes())?,
        imports: every_interface(),
        digest: sha256(manifest.as_bytes()),
        bytes: Cow::Borrowed(&[]),
        origin: "a process of its own".into(),
        signature: None,
        signer: None,
        source: None,
    };
    prepare(settings, package, |package, _| Ok(Method::native(&package.manifest.name, package.imports.clone(), twin)))
}

/// A newer version of the run's method, from the bytes that its author built during the run.
pub(crate) fn revised(settings: &RunSettings, bytes: Vec<u8>, engine: &Engine) -> Result<PlannedMethod, Error> {
    let package = Package {
        manifest: read_manifest(&bytes)?,
        imports: component::interfaces(&bytes)?.imports,
        digest: sha256(&bytes),
        bytes: Cow::Owned(bytes),
        origin: "built while the run went on".into(),
        signature: None,
        signer: None,
        source: None,
    };
    prepare(settings, package, |package, limits| {
        let engine = engine.of_stranger(true);
        engine.admit(&package.bytes, &package.manifest.name, &grants(settings), limits)
    })
}

/// Resolves the settings of a method and admits its component.
fn prepare(
    settings: &RunSettings,
    package: Package,
    admit: impl FnOnce(&Package, &Limits) -> Result<Method, Refused>,
) -> Result<PlannedMethod, Error> {
    let name = &settings.file.method.r#use;
    package.expect_world(World::Method)?;
    let shapes = Shape::of_method(&package.manifest.shape).ok_or_else(|| {
        let shape = &package.manifest.shape;
        let what = format!("method `{name}` learns from records of the shape `{shape}`, which cannot be read yet");
        settings.error("method.use", Underline::Value, Explanation::new("config", what))
    })?;
    let values = resolve(settings, &package)?;
    let limits = settings.file.limits.of_method();
    let admitted = admit(&package, &limits)?;
    Ok(PlannedMethod { package, settings: values, shapes, limits, admitted })
}

/// The default interfaces, and those that the run file grants.
fn grants(settings: &RunSettings) -> Grants {
    let named = settings.file.method.grants.iter();
    named.fold(Grants::default(), |grants, grant| grants.with(grant.interface()))
}

/// The settings of the method, including defaults.
fn resolve(settings: &RunSettings, package: &Package) -> Result<Vec<(String, Value)>, Error> {
    let values = resolve_settings(&package.manifest, &toml_table(&settings.file.method.settings));
    values.map_err(|error| setting_error(settings, "method", &settings.file.method.r#use, &error))
}

/// The settings of a run's method as `run.lock` lists them, with every default. Settings that the method rejects are
/// returned as given, so that they differ from every lock.
pub(crate) fn lock_settings(settings: &RunSettings, package: &Package) -> Map<String, Json> {
    resolve(settings, package).map_or_else(|_| settings.file.method.settings.clone(), |values| settings_json(&values))
}

/// An error about a component's settings, located in the table `below` of the run file. `used` names the component.
pub(super) fn setting_error(settings: &RunSettings, below: &str, used: &str, wrong: &SettingError) -> Error {
    let is_key = matches!(wrong, SettingError::Unknown { .. });
    let underline = if is_key { Underline::Key } else { Underline::Value };
    let hint = match wrong {
        SettingError::Value { .. } => Some(format!("`tunebox inspect {used}` lists settings and ranges")),
        _ => wrong.hint(),
    };
    let problem = Explanation { why: wrong.why(), hint, ..Explanation::new("config", wrong.to_string()) };
    settings.error(&format!("{below}.{}", wrong.name()), underline, problem)
}

/// Settings as a TOML table.
pub(super) fn toml_table(settings: &Map<String, Json>) -> toml::Table {
    toml::Table::try_from(settings).unwrap_or_default()
}

/// Settings as a JSON object.
pub(super) fn settings_json(settings: &[(String, Value)]) -> Map<String, Json> {
    settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}
