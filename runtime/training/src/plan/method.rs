//! Loads the method and the verifiers of a run: finds and reads their packages, resolves their settings, admits their
//! components. Runs nothing of them.

use serde_json::{Map, Value as Json, json};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_package::digest::sha256;
use tunebox_package::settings::SettingError;
use tunebox_package::{Manifest, Package, Reference, World, component, manifest, read_manifest, resolve_settings};
use tunebox_sandbox::native::{Twin, every_interface};
use tunebox_sandbox::{Engine, Error as Refused, Grants, Limits, Method, Value, Verifier, interface_of};

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
    /// The limits of the run.
    pub limits: Limits,
    pub(crate) admitted: Method,
}

impl PlannedMethod {
    /// Whether the method imports the interface `learn`. A method that does not import it trains nothing.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.imports("learn")
    }

    /// Whether the method imports the interface `weights`, with which it can edit the model's weights.
    #[must_use]
    pub fn edits(&self) -> bool {
        self.imports("weights")
    }

    /// Number of completions for each prompt: the method's setting `completions` as in built-in methods. `None` if the
    /// method has no such setting or it is not positive.
    #[must_use]
    pub fn completions(&self) -> Option<u64> {
        self.positive_setting("completions")
    }

    /// Maximum new tokens of a completion: the method's setting `max-tokens`. `None` if the method has no such setting
    /// or it is not positive.
    pub(crate) fn new_tokens(&self) -> Option<u64> {
        self.positive_setting("max-tokens")
    }

    /// The value of the method's setting `name`; `None` unless the setting exists and is a positive integer.
    fn positive_setting(&self, name: &str) -> Option<u64> {
        self.settings.iter().find_map(|(known, value)| match value {
            Value::Integer(count) if known == name && *count > 0 => u64::try_from(*count).ok(),
            _ => None,
        })
    }

    /// Whether the method imports the interface with this short name, such as `learn`.
    fn imports(&self, interface: &str) -> bool {
        self.admitted.imports().iter().any(|import| interface_of(import) == Some(interface))
    }
}

/// A warning if `imports` contain none of the interfaces `learn`, `weights` and `hidden`, so that the method cannot
/// train, edit or publish anything; `None` otherwise.
#[must_use]
pub fn no_effect_warning(imports: &[String]) -> Option<&'static str> {
    let has_effect = |import: &String| matches!(interface_of(import), Some("learn" | "weights" | "hidden"));
    (!imports.iter().any(has_effect)).then_some(
        "the method never calls `minimise`: nothing is trained, and no adapter will be written; \
         `minimise(&loss)?` in its `step` is what learns",
    )
}

/// Finds the method that the settings name, reads its package, checks it against the project's lock, resolves its
/// settings and compiles its component. Compiles a method that is not built in in a child process, if `engine` has one
/// configured. Fails for a verifier's package, a setting that the method rejects, and a component that is not admitted.
pub(super) fn load_method(settings: &RunSettings, engine: &Engine) -> Result<PlannedMethod, Error> {
    let found = settings.method_reference()?;
    let package = trust::open_package(&found, settings.project())?;
    compile(settings, package, &engine.for_untrusted(!matches!(found, Reference::Builtin(_))))
}

/// Prepares a method that runs in its own process, connected by `twin`, from the JSON manifest that the process sent.
/// The method has no component to compile and may use every interface.
pub(crate) fn native(settings: &RunSettings, manifest: &str, twin: Twin) -> Result<PlannedMethod, Error> {
    let package = unsigned_package(manifest::parse(manifest.as_bytes())?, every_interface(), Vec::new());
    prepare(settings, package, |package, _| Ok(Method::native(&package.manifest.name, package.imports.clone(), twin)))
}

/// Prepares a newer version of the run's method from the bytes of a component that its author built during the run.
/// Compiles the component with the grants and limits of the run, in a child process if `engine` has one configured. Does not
/// check it against the project's lock.
pub(crate) fn revised(settings: &RunSettings, bytes: Vec<u8>, engine: &Engine) -> Result<PlannedMethod, Error> {
    let package = unsigned_package(read_manifest(&bytes)?, component::interfaces(&bytes)?.imports, bytes);
    compile(settings, package, &engine.for_untrusted(true))
}

/// Builds an unsigned package of a method that its author works on. `bytes` is its component; empty for a native process.
fn unsigned_package(manifest: Manifest, imports: Vec<String>, bytes: Vec<u8>) -> Package {
    let (digest, bytes, origin) = (sha256(&bytes), bytes.into(), "the author's build".into());
    Package { manifest, imports, digest, bytes, origin, signature: None, signer: None, source: None }
}

/// Prepares a method from its package, and compiles its component with the grants of the run.
fn compile(settings: &RunSettings, package: Package, engine: &Engine) -> Result<PlannedMethod, Error> {
    let named = settings.file.method.grants.iter();
    let grants = named.fold(Grants::default(), |grants, grant| grants.with(grant.interface()));
    prepare(settings, package, |package, limits| engine.admit(&package.bytes, &package.manifest.name, &grants, limits))
}

/// Checks that a package is a method, finds the shapes of its records, resolves its settings, and calls `admit` with the
/// package and the run's limits to compile its component. Fails for a shape that this version cannot read.
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
    let limits = settings.file.limits.clone();
    let admitted = admit(&package, &limits)?;
    Ok(PlannedMethod { package, settings: values, shapes, limits, admitted })
}

/// The value of every setting of the method, in the manifest's order: from the run file, or the default. A wrong
/// setting is an error at its key.
fn resolve(settings: &RunSettings, package: &Package) -> Result<Vec<(String, Value)>, Error> {
    let values = resolve_settings(&package.manifest, &toml_table(&settings.file.method.settings));
    values.map_err(|error| setting_error(settings, "method", &settings.file.method.r#use, &error))
}

/// The settings of a run's method as `run.lock` lists them, with every default. Settings that the method rejects are
/// returned as given, so that they differ from every lock.
pub(crate) fn lock_settings(settings: &RunSettings, package: &Package) -> Map<String, Json> {
    resolve(settings, package).map_or_else(|_| settings.file.method.settings.clone(), |values| settings_json(&values))
}

/// Turns an error about a component's setting into one with the setting's location in the table `below` of the run
/// file: its key if the setting is unknown, else its value. `used` is the component as the run file names it, for the hint
/// if the error has none.
fn setting_error(settings: &RunSettings, below: &str, used: &str, wrong: &SettingError) -> Error {
    let underline = if wrong.is_unknown { Underline::Key } else { Underline::Value };
    let inspect = || format!("`tunebox inspect {used}` lists settings and ranges");
    let problem = Explanation { hint: wrong.hint().or_else(|| Some(inspect())), ..wrong.explanation() };
    settings.error(&format!("{below}.{}", wrong.name), underline, problem)
}

/// Converts settings from JSON to a TOML table; an empty table if one of them has no TOML form.
fn toml_table(settings: &Map<String, Json>) -> toml::Table {
    toml::Table::try_from(settings).unwrap_or_default()
}

/// Converts settings with their values to a JSON object.
pub(super) fn settings_json(settings: &[(String, Value)]) -> Map<String, Json> {
    settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}

/// A verifier that is ready to start.
pub struct PlannedVerifier {
    /// The verifier's name in metrics and messages.
    pub name: String,
    /// The factor of its score in the reward.
    pub weight: f32,
    /// The field of a record that is passed to it as the reference answer.
    pub field: String,
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    pub(crate) admitted: Verifier,
}

/// Finds, reads and compiles the verifiers that the run file lists, in its order. Fails if two have the same name.
pub(crate) fn load_verifiers(settings: &RunSettings, engine: &Engine) -> Result<Vec<PlannedVerifier>, Error> {
    let mut planned: Vec<PlannedVerifier> = Vec::new();
    for number in 0..settings.file.verifier.len() {
        let verifier = load_verifier(settings, engine, number)?;
        if planned.iter().any(|other| other.name == verifier.name) {
            let (key, what) =
                (format!("verifier.{number}.use"), format!("two verifiers are called `{}`", verifier.name));
            return Err(settings.conflict(&key, Underline::Value, &what, "give one of them another `name`"));
        }
        planned.push(verifier);
    }
    Ok(planned)
}

/// Finds the verifier of one `[[verifier]]` table, reads its package, checks it against the project's lock, resolves
/// its settings and compiles its component. `number` is the table's position, from 0. Compiles a verifier that is not built
/// in in a child process, if `engine` has one configured. The name is that of the table, else that of the manifest.
fn load_verifier(settings: &RunSettings, engine: &Engine, number: usize) -> Result<PlannedVerifier, Error> {
    let (key, given) = (format!("verifier.{number}"), &settings.file.verifier[number]);
    let found = settings.verifier_reference(number)?;
    let engine = engine.for_untrusted(!matches!(found, Reference::Builtin(_)));
    let package = trust::open_package(&found, settings.project())?;
    package.expect_world(World::Verifier)?;
    let values = resolve_settings(&package.manifest, &toml_table(&given.settings))
        .map_err(|error| setting_error(settings, &key, &given.r#use, &error))?;
    let admitted = engine.admit_verifier(&package.bytes, &package.manifest.name, &settings.file.limits)?;
    Ok(PlannedVerifier {
        name: given.name.clone().unwrap_or_else(|| package.manifest.name.clone()),
        weight: given.weight as f32,
        field: given.answer.clone(),
        settings: values,
        package,
        admitted,
    })
}
