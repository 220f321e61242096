//! Loads the verifiers of a run: finds and reads their packages, resolves their settings, admits their components, and
//! finds the files of reward models. Runs nothing of them.

use tunebox_package::{Package, Reference, World, resolve_settings};
use tunebox_sandbox::{Engine, Value, Verifier};

use super::method::{setting_error, toml_table};
use super::reward::{self, PlannedReward};
use super::trust;
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;

/// A verifier that is ready to start.
pub struct PlannedVerifier {
    /// The verifier's name in metrics and messages.
    pub name: String,
    /// The factor of its score in the reward.
    pub weight: f32,
    /// The verdict on a completion on which it fails; `None` for no verdict.
    pub on_failure: Option<f32>,
    /// What judges.
    pub judge: PlannedJudge,
}

/// What judges completions.
pub enum PlannedJudge {
    /// A component.
    Component(Box<PlannedComponent>),
    /// A reward model.
    Model(PlannedReward),
}

/// The component of a verifier.
pub struct PlannedComponent {
    /// The field of a record that is passed to it as the reference answer.
    pub field: String,
    /// Whether every completion gets a new instance.
    pub fresh: bool,
    /// The component, its manifest and digest.
    pub package: Package,
    /// Every setting with its value.
    pub settings: Vec<(String, Value)>,
    pub(crate) admitted: Verifier,
}

impl PlannedVerifier {
    /// The digest of the component, or that of the reward model's files.
    #[must_use]
    pub fn digest(&self) -> &str {
        match &self.judge {
            PlannedJudge::Component(component) => &component.package.digest,
            PlannedJudge::Model(reward) => &reward.digest,
        }
    }

    /// The package of the component; `None` for a reward model.
    #[must_use]
    pub fn package(&self) -> Option<&Package> {
        match &self.judge {
            PlannedJudge::Component(component) => Some(&component.package),
            PlannedJudge::Model(_) => None,
        }
    }
}

/// Finds, reads and compiles the verifiers that the run file lists, in its order, as [`load_verifier`] does; none if it
/// lists none. Of reward models, only finds the files. Fails if two have the same name.
pub(crate) fn load_verifiers(settings: &RunSettings, engine: &Engine) -> Result<Vec<PlannedVerifier>, Error> {
    let mut planned: Vec<PlannedVerifier> = Vec::new();
    for number in 0..settings.file.verifier.len() {
        let verifier = match settings.file.verifier[number].reward_model() {
            Some(_) => reward::find_verifier(settings, number)?,
            None => load_verifier(settings, engine, number)?,
        };
        if planned.iter().any(|other| other.name == verifier.name) {
            let (key, what) =
                (format!("verifier.{number}.use"), format!("two verifiers are called `{}`", verifier.name));
            return Err(settings.conflict(&key, Underline::Value, &what, "give one of them another `name`"));
        }
        planned.push(verifier);
    }
    Ok(planned)
}

/// Compiles the verifiers of a run that are components into the cache of compiled code.
pub(super) fn compile_verifiers(settings: &RunSettings, engine: &Engine) -> Result<(), Error> {
    settings.verifier_numbers(false).try_for_each(|number| load_verifier(settings, engine, number).map(drop))
}

/// Finds the component of one `[[verifier]]` table, reads its package, checks it against the project's lock, resolves
/// its settings and compiles its component. `number` is the table's position, from 0. Compiles a verifier that is not
/// built in in a child process, if `engine` has one configured. The name is that of the table, else that of the
/// manifest.
fn load_verifier(settings: &RunSettings, engine: &Engine, number: usize) -> Result<PlannedVerifier, Error> {
    let (key, given) = (format!("verifier.{number}"), &settings.file.verifier[number]);
    let found = settings.verifier_reference(number)?;
    let engine = engine.for_untrusted(!matches!(found, Reference::Builtin(_)));
    let package = trust::open_package(&found, settings.project())?;
    package.expect_world(World::Verifier)?;
    let values = resolve_settings(&package.manifest, &toml_table(&given.settings))
        .map_err(|error| setting_error(settings, &key, &given.r#use, &package.manifest, &error))?;
    let admitted = engine.admit_verifier(&package.bytes, &package.manifest.name, &settings.file.limits)?;
    Ok(PlannedVerifier {
        name: given.name.clone().unwrap_or_else(|| package.manifest.name.clone()),
        weight: given.weight as f32,
        on_failure: given.on_failure.map(|value| value as f32),
        judge: PlannedJudge::Component(Box::new(PlannedComponent {
            field: given.answer.clone(),
            fresh: given.fresh,
            settings: values,
            package,
            admitted,
        })),
    })
}
