//! Finds and opens the reward models among the verifiers of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tunebox_compute::Device;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::printable::printable;
use tunebox_model::reward::reward_digest;
use tunebox_model::{RewardModel, Source};

use super::verifier::{PlannedJudge, PlannedVerifier};
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;
use crate::runs::find_reward_model;

/// The longest name of a reward model in metrics, in bytes.
const NAME_BYTES: usize = 60;

/// A reward model that was found.
pub struct PlannedReward {
    /// Its files.
    pub source: Source,
    /// The digest of everything that its scores depend on.
    pub digest: String,
    /// The model; `None` until [`open_reward_models`] opens it.
    model: Option<Arc<RewardModel>>,
}

impl PlannedReward {
    /// The opened model.
    ///
    /// # Errors
    /// When it was not opened yet.
    pub(crate) fn model(&self) -> Result<&Arc<RewardModel>, Error> {
        let what = || Explanation::new("training", format!("the reward model `{}` is not open", self.source.name()));
        self.model.as_ref().ok_or_else(|| what().into())
    }
}

/// Finds the files of the reward model that verifier number `number` (from 0) names, and computes their digest. Fetches
/// them if it is one of the hub and they are not present; does not load the model. The verifier's name is the `name` of
/// its table, else the last part of the model's path.
///
/// # Errors
/// A folder that holds no reward model, a model that cannot be fetched, and a file that cannot be read, located at the
/// key.
pub(super) fn find_verifier(settings: &RunSettings, number: usize) -> Result<PlannedVerifier, Error> {
    let source = find_source(settings, number)?;
    let digest = reward_digest(&source).map_err(|error| settings.with_location(&use_key(number), error))?;
    let table = &settings.file.verifier[number];
    Ok(PlannedVerifier {
        name: table.name.clone().unwrap_or_else(|| last_part(source.name())),
        weight: table.weight as f32,
        on_failure: table.on_failure.map(|value| value as f32),
        judge: PlannedJudge::Model(PlannedReward { source, digest, model: None }),
    })
}

/// The last part of a path or of a name on the hub, without a revision and cut to 60 bytes; `reward-model` if there is
/// none.
fn last_part(name: &str) -> String {
    let path = std::path::absolute(name).unwrap_or_default();
    let last = path.file_name().map_or_else(|| "reward-model".into(), |last| last.to_string_lossy().into_owned());
    printable(last.split('@').next().unwrap_or_default(), NAME_BYTES)
}

/// Finds the files of the reward model of verifier number `number`, from 0. Fetches them if they are of the hub and not
/// present, unless the run is offline. An error is located at the verifier's key.
fn find_source(settings: &RunSettings, number: usize) -> Result<Source, Error> {
    let named = settings.reward_models().into_iter().find(|(other, _)| *other == number);
    let found = find_reward_model(&named.map(|(_, name)| name).unwrap_or_default(), settings.offline);
    found.map_err(|error| settings.with_location(&use_key(number), error))
}

/// Finds the files of all reward models of a run, as [`find_source`] does. Leaves out those that cannot be found or
/// fetched.
pub(crate) fn reward_sources(settings: &RunSettings) -> Vec<Source> {
    settings.verifier_numbers(true).filter_map(|number| find_source(settings, number).ok()).collect()
}

/// Lists the folders of all reward models of a run. Does not read the folders on this machine. Downloads missing models
/// of the hub, unless the run is offline, and leaves out models that cannot be downloaded.
pub(crate) fn reward_folders(settings: &RunSettings) -> Vec<PathBuf> {
    let folder = |(number, name): (usize, String)| match PathBuf::from(name) {
        path if path.exists() => Some(path),
        _ => Some(find_source(settings, number).ok()?.path().to_owned()),
    };
    settings.reward_models().into_iter().filter_map(folder).collect()
}

/// Finds the files of the reward model of verifier number `number`, from 0, and computes its digest.
///
/// # Errors
/// A folder that holds no reward model, a model that cannot be fetched, and a file that cannot be read.
pub(crate) fn find_reward(settings: &RunSettings, number: usize) -> Result<(Source, String), Error> {
    let source = find_source(settings, number)?;
    let digest = reward_digest(&source).map_err(|error| settings.with_location(&use_key(number), error))?;
    Ok((source, digest))
}

/// Fetches the reward models that are not present from the hub. Returns whether there are some of the hub; does nothing
/// for those of this machine.
///
/// # Errors
/// A model that is not on the hub, or cannot be fetched.
pub(super) fn fetch_reward_models(settings: &RunSettings) -> Result<bool, Error> {
    let on_hub = |(_, name): &(usize, String)| !Path::new(name).exists();
    let named: Vec<_> = settings.reward_models().into_iter().filter(on_hub).collect();
    named.iter().try_for_each(|(number, _)| find_source(settings, *number).map(drop))?;
    Ok(!named.is_empty())
}

/// Opens the reward models among these verifiers: encoders on the CPU, decoders on `device`, in the number format
/// `train.compute`. `clock` is the time that their chat templates read, in seconds since 1970; the present one if
/// `None`.
///
/// # Errors
/// A model that cannot be opened, located at its key.
pub(crate) fn open_reward_models(
    settings: &RunSettings,
    verifiers: &mut [PlannedVerifier],
    device: &Device,
    clock: Option<i64>,
) -> Result<(), Error> {
    for (number, verifier) in verifiers.iter_mut().enumerate() {
        let PlannedJudge::Model(reward) = &mut verifier.judge else { continue };
        let opened = RewardModel::open(&reward.source, device, settings.file.train.compute);
        let opened = opened.map_err(|error| settings.with_location(&use_key(number), error))?;
        reward.model = Some(Arc::new(match clock {
            Some(seconds) => opened.with_clock(seconds),
            None => opened,
        }));
    }
    Ok(())
}

/// Estimates the bytes that the opened reward models take on `device` beside the run, for texts of at most `length`
/// tokens of the run's tokenizer; another one may cut a text into twice as many.
pub(super) fn reward_bytes(verifiers: &[PlannedVerifier], device: &Device, length: usize) -> u64 {
    let models = verifiers.iter().filter_map(|verifier| match &verifier.judge {
        PlannedJudge::Model(reward) => reward.model.as_ref(),
        PlannedJudge::Component(_) => None,
    });
    models.map(|model| model.device_bytes(device, length.saturating_mul(2))).sum()
}

/// Returns an error for each further key in the table of a reward model, which has no settings and no instances.
/// `given` are these keys.
pub(super) fn reward_problems(
    settings: &RunSettings,
    number: usize,
    given: &serde_json::Map<String, Value>,
) -> Vec<Error> {
    let error = |name: &str| {
        let what = format!("a reward model has no setting `{name}`");
        let hint = "remove it; `use`, `name`, `weight` and `on-failure` are the keys of a reward model";
        settings.conflict(&format!("verifier.{number}.{name}"), Underline::Key, &what, hint)
    };
    let fresh = settings.file.verifier[number].fresh.then_some("fresh");
    given.keys().map(String::as_str).chain(fresh).map(error).collect()
}

/// The dotted key that names the model of verifier number `number`, from 0.
fn use_key(number: usize) -> String {
    format!("verifier.{number}.use")
}
