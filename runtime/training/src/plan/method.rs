//! Loads the method of a run: finds and reads its package, resolves its settings, admits its component. Runs nothing of
//! it.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_package::digest::sha256;
use tunebox_package::settings::{SettingError, setting_errors};
use tunebox_package::{
    Manifest, Package, Reference, Updates, World, component, manifest, read_manifest, resolve_settings,
};
use tunebox_sandbox::native::{Twin, every_interface};
use tunebox_sandbox::{Engine, Error as Refused, Grants, Limits, Method, StartProcess, Value, interface_of};

use super::trust;
use crate::configuration::{RunSettings, Underline, find_advice, find_meant_key, join, meant_key_hint};
use crate::data::{Dataset, Shape};
use crate::error::Error;
use crate::observer::Version;

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
    /// Whether the method imports `learn` or `optimizer`. A method that imports neither trains nothing.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.admitted.imports().iter().any(|import| trains(import))
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

    /// Fails if the settings of the run set `max-tokens` of a method that samples to more tokens than the longest prompt of
    /// the data leaves of the maximum length: the sampler would refuse it in a later step. A default of the method passes.
    pub(super) fn check_completion_length(&self, settings: &RunSettings, data: &Dataset) -> Result<(), Error> {
        let (room, length) = (data.completion_room(), data.report.length);
        let is_given = settings.file.method.settings.contains_key("max-tokens");
        let wanted = self.new_tokens().filter(|wanted| is_given && self.imports("sample") && *wanted > room as u64);
        let Some(wanted) = wanted else { return Ok(()) };
        let what = format!("a completion of {wanted} tokens does not fit after the longest prompt of the data");
        let why =
            format!("the prompt has {} tokens, prompt and completion together have at most {length}", length - room);
        let hint =
            format!("set `method.max-tokens` to {room} or less, or raise `data.max-length`, or take shorter prompts");
        let problem = Explanation::new("config", what).with_why(why).with_hint(hint);
        Err(settings.error("method.max-tokens", Underline::Value, problem))
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

/// Whether a full import name, such as `tunebox:method/learn@0.2.0`, is an interface with which a method trains:
/// `learn` or `optimizer` of this host's version. False for another version.
#[must_use]
pub fn trains(import: &str) -> bool {
    matches!(interface_of(import), Some("learn" | "optimizer"))
}

/// Returns a warning if `imports`, given by full name, contain none of the interfaces `learn`, `optimizer`, `weights`
/// and `hidden` in this version's track, so that the method cannot train, edit or publish anything; `None` otherwise.
#[must_use]
pub fn no_effect_warning(imports: &[String]) -> Option<&'static str> {
    let has_effect = |import: &String| trains(import) || matches!(interface_of(import), Some("weights" | "hidden"));
    (!imports.iter().any(has_effect)).then_some(
        "the method never calls `backward`: nothing is trained, and no adapter will be written; \
         `backward(&loss)?` in its `step` is what learns",
    )
}

/// A method that runs as processes of its own, outside of the sandbox, for its author.
#[derive(Clone)]
pub struct NativeMethod {
    /// The text of its manifest.
    pub manifest: String,
    /// The names of the interfaces that its source uses, such as `learn`.
    pub interfaces: Vec<String>,
    /// The digest of its source, which stands for that of a component.
    pub digest: String,
    /// Starts a process of this version of the method.
    pub start: Arc<StartProcess>,
}

impl Debug for NativeMethod {
    /// Shows the digest of the source only.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NativeMethod").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Prepares the method that the settings name: finds and reads its package, checks it against the project's lock
/// ([`trust::open_package`]), resolves its settings, and compiles its component or takes the code from the cache.
/// Compiles a method that is not built in in a child process, if `engine` has one configured. If the settings have
/// processes of the author's source, prepares these in place of a package.
///
/// Fails for a method that is not found or does not match the lock, a verifier's package, a setting that
/// [`resolve_method_settings`] rejects, and a component that is not admitted.
pub(super) fn load_method(settings: &RunSettings, engine: &Engine) -> Result<PlannedMethod, Error> {
    if let Some(native) = &settings.native {
        return prepare_processes(settings, native.clone());
    }
    let found = settings.method_reference()?;
    let package = trust::open_package(&found, settings.project())?;
    compile_method(settings, package, &engine.for_untrusted(!matches!(found, Reference::Builtin(_))))
}

/// Prepares a method that runs in its own process, connected by `twin`, from `manifest`, the JSON that the process
/// sent. The method has no component to compile, and may use every interface whatever the settings grant. Fails for
/// text that is no manifest, and as [`prepare`] does.
pub(crate) fn prepare_native(settings: &RunSettings, manifest: &str, twin: Twin) -> Result<PlannedMethod, Error> {
    let package = unsigned_package(manifest::parse(manifest.as_bytes())?, every_interface(), Vec::new());
    prepare(settings, package, |package, _| Ok(Method::native(&package.manifest.name, package.imports.clone(), twin)))
}

/// Prepares a method that runs as processes outside of the sandbox, one for each session, from its author's source. The
/// method imports the interfaces that the source uses, which the run must grant. The digest of the source stands for
/// that of a component.
fn prepare_processes(settings: &RunSettings, native: NativeMethod) -> Result<PlannedMethod, Error> {
    let NativeMethod { manifest, interfaces, digest, start } = native;
    let is_used = |import: &String| interface_of(import).is_some_and(|name| interfaces.iter().any(|used| used == name));
    let imports = every_interface().into_iter().filter(is_used).collect();
    let package = unsigned_package(manifest::parse(manifest.as_bytes())?, imports, Vec::new());
    let grants = run_grants(settings);
    let admit = |package: &Package, _: &Limits| {
        Method::of_process(&package.manifest.name, package.imports.clone(), &grants, start)
    };
    prepare(settings, Package { digest, ..package }, admit)
}

/// Prepares a newer version of the run's method, which its author built during the run. A component is compiled with
/// the grants and limits of the run, in a child process if `engine` has one configured, as an unsigned package; for a
/// native process nothing is compiled, see [`prepare_processes`]. Neither is checked against the project's lock.
pub(crate) fn prepare_revision(
    settings: &RunSettings,
    version: Version,
    engine: &Engine,
) -> Result<PlannedMethod, Error> {
    let bytes = match version {
        Version::Component(bytes) => bytes,
        Version::Process(native) => return prepare_processes(settings, native),
    };
    let package = unsigned_package(read_manifest(&bytes)?, component::interfaces(&bytes)?.imports, bytes);
    compile_method(settings, package, &engine.for_untrusted(true))
}

/// Builds an unsigned package of a method that its author works on. `bytes` is its component; empty for a native
/// process.
fn unsigned_package(manifest: Manifest, imports: Vec<String>, bytes: Vec<u8>) -> Package {
    let (digest, bytes, origin) = (sha256(&bytes), bytes.into(), "the author's build".into());
    Package { manifest, imports, digest, bytes, origin, signature: None, signer: None, source: None }
}

/// Prepares a method from its package, and compiles its component with the grants of the run.
fn compile_method(settings: &RunSettings, package: Package, engine: &Engine) -> Result<PlannedMethod, Error> {
    let grants = run_grants(settings);
    prepare(settings, package, |package, limits| engine.admit(&package.bytes, &package.manifest.name, &grants, limits))
}

/// The interfaces that the run grants.
fn run_grants(settings: &RunSettings) -> Grants {
    let named = settings.file.method.grants.iter();
    named.fold(Grants::default(), |grants, grant| grants.with(grant.interface()))
}

/// Checks that a package is a method, finds the shapes of its records, resolves its settings, and calls `admit` with
/// the package and the run's limits to compile its component. Fails for a verifier's package, a shape that
/// [`Shape::of_method`] does not know, a wrong setting, and if `admit` fails.
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
    join(own_update_problems(settings, &package))?;
    let values = resolve_method_settings(settings, &package)?;
    let limits = settings.file.limits.clone();
    let admitted = admit(&package, &limits)?;
    Ok(PlannedMethod { package, settings: values, shapes, limits, admitted })
}

/// Checks a method whose manifest says that it updates the parameters itself. Returns an error if its component does
/// not import `optimizer`, else one for each setting of the run that only the host's optimizer uses, at its key.
/// Returns nothing for any other method.
pub(super) fn own_update_problems(settings: &RunSettings, package: &Package) -> Vec<Error> {
    let name = &package.manifest.name;
    if package.manifest.update != Updates::Method {
        return Vec::new();
    }
    if !imports(package, "optimizer") {
        let what = format!("`{name}` says `update: \"method\"` in its manifest and never calls `optimizer`");
        let problem = Explanation::new("method", what)
            .with_why("nothing would update the parameters: the host makes no optimizer for such a method")
            .with_hint("its author can call `optimizer`, or remove `update` from the manifest");
        return vec![problem.into()];
    }
    let error = |key: &str| {
        let key = format!("train.{key}");
        let what = format!("`{name}` updates the parameters itself, so `{key}` has no effect");
        let hint = format!("remove `{key}`; `tunebox train --method {name} --help` lists the method's own settings");
        settings.conflict(&key, Underline::Key, &what, &hint)
    };
    super::optimizer::optimizer_keys().filter(|key| settings.changes_train(key)).map(error).collect()
}

/// Whether the component of a package imports the interface with this short name.
pub(super) fn imports(package: &Package, interface: &str) -> bool {
    package.imports.iter().any(|import| interface_of(import) == Some(interface))
}

/// Returns an error for each setting in `given`, the settings in the table `below` of the run file, that the package's
/// manifest does not know or permit, and for each required one that is missing. `used` is the component as the run file
/// names it.
pub(super) fn component_problems(
    settings: &RunSettings,
    below: &str,
    used: &str,
    package: &Package,
    given: &Map<String, Json>,
) -> Vec<Error> {
    let wrong = setting_errors(&package.manifest, &toml_table(given));
    wrong.iter().map(|wrong| setting_error(settings, below, used, &package.manifest, wrong)).collect()
}

/// Returns the value of every setting of the method, in the manifest's order: from the run file, or the default. A
/// setting that the manifest lacks, a value of another kind or outside its range, and one that is neither given nor has
/// a default, is an error at its key.
fn resolve_method_settings(settings: &RunSettings, package: &Package) -> Result<Vec<(String, Value)>, Error> {
    let values = resolve_settings(&package.manifest, &toml_table(&settings.file.method.settings));
    values.map_err(|error| setting_error(settings, "method", &settings.file.method.r#use, &package.manifest, &error))
}

/// Returns the settings of a run's method as `run.lock` lists them, with every default. If the method rejects one,
/// returns those of the run file without defaults, so that they differ from every lock.
pub(crate) fn lock_settings(settings: &RunSettings, package: &Package) -> Map<String, Json> {
    resolve_method_settings(settings, package)
        .map_or_else(|_| settings.file.method.settings.clone(), |values| settings_json(&values))
}

/// Turns an error about a component's setting into one with the setting's location in the table `below` of the run
/// file: its key if the setting is unknown, else its value. `below` is `method`, or `verifier.N`. `used` is the
/// component as the run file names it, for the hint if the error has none. The hint about an unknown setting names the
/// setting of the run or of the component that is called so by other trainers, if there is one.
pub(super) fn setting_error(
    settings: &RunSettings,
    below: &str,
    used: &str,
    manifest: &Manifest,
    wrong: &SettingError,
) -> Error {
    let underline = if wrong.is_unknown { Underline::Key } else { Underline::Value };
    let inspect = || format!("`tunebox inspect {used}` lists settings and ranges");
    let has = |key: &str| {
        key.strip_prefix("method.").is_none_or(|name| manifest.settings.iter().any(|setting| setting.name == name))
    };
    let is_meant = wrong.is_unknown && find_meant_key(&wrong.name).is_some_and(|key| has(&key));
    let meant = if is_meant { meant_key_hint(below, &wrong.name) } else { None };
    let advice = find_advice(&wrong.name).filter(|_| wrong.is_unknown).map(str::to_owned);
    let hint = meant.or(advice).or(wrong.hint()).or_else(|| Some(inspect()));
    let problem = Explanation { hint, ..wrong.explanation() };
    settings.error(&format!("{below}.{}", wrong.name), underline, problem)
}

/// Converts settings from JSON to a TOML table; an empty table if one of them has no TOML form.
pub(super) fn toml_table(settings: &Map<String, Json>) -> toml::Table {
    toml::Table::try_from(settings).unwrap_or_default()
}

/// Converts settings with their values to a JSON object.
pub(super) fn settings_json(settings: &[(String, Value)]) -> Map<String, Json> {
    settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}
