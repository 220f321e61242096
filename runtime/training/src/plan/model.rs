//! Finds or fetches the model of a run, and opens it on the run's device in the requested number format.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::precision::{Base, PrecisionRequest};
use tunebox_compute::{Device, device};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::files;
use tunebox_model::adapter::{AdapterKind, weights_file};
use tunebox_model::{Model, Source};
use tunebox_package::digest::sha256;
use tunebox_sandbox::Value;

use super::data::fetch_data;
use super::method::PlannedMethod;
use super::reward::fetch_reward_models;
use super::teachers::fetch_teachers;
use super::template::find_template;
use crate::configuration::{Initialize, RunSettings, Underline, meant_choice_hint};
use crate::error::Error;
use crate::runs::find_model;
use crate::{extra_parameters, lock, sample};

/// Fetches the run's model, teachers, reward models and data from the hub, where files of them are not present. Skips a
/// model that is given by an existing path, and the run's model with `model.initialize`. Returns whether at least one
/// of them is of the hub, fetched now or before.
///
/// # Errors
/// A model or data that is not on the hub, or cannot be fetched, as when the run is offline and files are missing.
pub fn fetch(settings: &RunSettings) -> Result<bool, Error> {
    let table = &settings.file.model;
    let is_local = table.initialize.is_some() || settings.path("model.path", &table.path).exists();
    if !is_local {
        find_source(settings)?;
    }
    let others = [fetch_teachers(settings)?, fetch_reward_models(settings)?, fetch_data(settings)?];
    Ok(!is_local || others.contains(&true))
}

/// Opens the device that `train.device` names. An error is located at that key.
fn open_device(settings: &RunSettings) -> Result<Device, Error> {
    device::parse(&settings.file.train.device).map_err(|error| {
        let Explanation { what, why, hint, .. } = error.explanation();
        let hint = hint.or_else(|| meant_choice_hint("train.device", &settings.file.train.device, []));
        settings.error("train.device", Underline::Value, Explanation { why, hint, ..Explanation::new("config", what) })
    })
}

/// Opens the model of a run on the run's device, in the requested number format; with `model.initialize = "random"`,
/// takes random weights drawn from `train.seed`. `clock` is the time that the model's chat template reads, in seconds
/// since 1970; it is that of [`find_template`], if there is one. The second value is the digest of the weight files, or
/// of the configuration for a random model. In a replay the model gets the recorded name.
pub(super) fn open_with_digest(settings: &RunSettings, clock: i64) -> Result<(Arc<Model>, String), Error> {
    let (table, device) = (&settings.file.model, &open_device(settings)?);
    let requested = requested_precision(settings)?;
    let (mut model, digest) = if table.initialize == Some(Initialize::Random) {
        let folder = settings.path("model.path", &table.path);
        let model = Model::random(&folder, settings.file.train.seed, device);
        let mut model = model.map_err(|error| settings.with_location("model.path", error))?;
        model.weights = model.weights.with_precision(requested)?;
        (model, configuration_digest(&folder)?)
    } else {
        let source = find_source(settings)?;
        (Model::open_in(&source, device, requested)?, model_digest(&source)?)
    };
    if let Some(replay) = &settings.replay {
        model.name.clone_from(&replay.model);
    }
    if let Some(source) = find_template(settings)? {
        model.set_template(&source).map_err(|error| settings.with_location("model.chat-template", error))?;
    }
    model.template = model.template.map(|template| template.with_clock(clock));
    Ok((Arc::new(model), digest))
}

/// Opens the model of a run from its files, as [`find_source`] finds or fetches them, on the run's device and in the
/// requested number format. Unlike [`open_with_digest`], ignores `model.initialize` and a replay's recorded inputs.
pub(crate) fn open_model(settings: &RunSettings) -> Result<Arc<Model>, Error> {
    let device = open_device(settings)?;
    Ok(Arc::new(Model::open_in(&find_source(settings)?, &device, requested_precision(settings)?)?))
}

/// The digests of a run's model and of the adapter that the run continues (`None` if there is none), without opening
/// either. The model is fetched if it is one of the hub.
pub(crate) fn digests(settings: &RunSettings) -> Result<(String, Option<String>), Error> {
    let table = &settings.file.model;
    let model = if table.initialize == Some(Initialize::Random) {
        configuration_digest(&settings.path("model.path", &table.path))?
    } else {
        model_digest(&find_source(settings)?)?
    };
    Ok((model, adapter_digest(settings)?))
}

/// The hexadecimal SHA-256 of `config.json` in a model's folder, which stands for the digest of a randomly initialized
/// model.
fn configuration_digest(folder: &Path) -> Result<String, Error> {
    Ok(sha256(files::read_text(&folder.join("config.json"))?.as_bytes()))
}

/// The digest of a model's weight files and, if a method saved extra parameters beside them, of these too: a run begins
/// with them.
fn model_digest(source: &Source) -> Result<String, Error> {
    let digest = source.digest()?;
    let Some(extra) = extra_parameters::find(source.path()) else { return Ok(digest) };
    Ok(sha256(format!("{digest} {}", tunebox_model::digest(&[extra])?).as_bytes()))
}

/// Returns the SHA-256 of the weights file in the folder of the adapter that a run continues, and of the file of extra
/// parameters beside it, if there is one; `None` if `model.adapter` is not set. Fails if a file cannot be read.
pub(super) fn adapter_digest(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let folder = settings.path("model.adapter", written);
    let files: Vec<_> = [weights_file(&folder)].into_iter().chain(extra_parameters::find(&folder)).collect();
    Ok(Some(tunebox_model::digest(&files)?))
}

/// Finds the files of the run's model. If `model.path` is not an existing path, takes it as a name on the hub and
/// fetches the files that are not present, unless the run is offline.
///
/// # Errors
/// A missing file of the unpacked sample, and a model that does not exist or cannot be fetched, located at
/// `model.path`.
pub(crate) fn find_source(settings: &RunSettings) -> Result<Source, Error> {
    let table = &settings.file.model;
    let path = settings.path("model.path", &table.path);
    sample::check_present(&path)?;
    let name = if path.exists() { path.to_string_lossy() } else { table.path.as_str().into() };
    let found = find_model(&name, table.revision.as_deref(), settings.offline);
    found.map_err(|error| settings.with_location("model.path", error))
}

/// Returns the maximum length of an example in tokens: `data.max-length`, or the model's number of positions (counted
/// as at least 2) if that is less.
pub(super) fn max_length(settings: &RunSettings, model: &Model) -> usize {
    (settings.file.data.max_length as usize).min(model.configuration.max_positions.max(2))
}

/// Returns the number formats that the settings ask for: `model.precision` for the base, `train.compute` for
/// activations.
///
/// # Errors
/// A quantized base with training of all weights.
fn requested_precision(settings: &RunSettings) -> Result<PrecisionRequest, Error> {
    check_full_training(settings)?;
    Ok(PrecisionRequest { base: settings.file.model.precision, compute: settings.file.train.compute })
}

/// Fails, located at `model.precision`, if that is a quantized format and the run trains all weights.
pub(super) fn check_full_training(settings: &RunSettings) -> Result<(), Error> {
    reject_quantized(settings, full_training_conflict(settings))
}

/// Fails, located at `model.precision`, if that is a quantized format and [`quantized_conflict`] finds a reason against
/// it: the run trains all weights, or edits weights in a way that writes a whole model.
pub(super) fn check_precision(settings: &RunSettings, method: &PlannedMethod) -> Result<(), Error> {
    reject_quantized(settings, quantized_conflict(settings, method))
}

/// Fails with `conflict`, located at `model.precision`, if there is one and the run quantizes its base.
fn reject_quantized(settings: &RunSettings, conflict: Option<Explanation>) -> Result<(), Error> {
    let conflict = conflict.filter(|_| !settings.file.model.precision.is_stored());
    conflict.map_or(Ok(()), |problem| Err(settings.error("model.precision", Underline::Key, problem)))
}

/// Returns why the base of a run cannot be quantized, whether the settings ask for that or not: `train.adapter.kind`
/// is `full`, or the method writes a whole edited model ([`edit_conflict`]). `None` if it can.
pub(super) fn quantized_conflict(settings: &RunSettings, method: &PlannedMethod) -> Option<Explanation> {
    full_training_conflict(settings).or_else(|| edit_conflict(settings, method))
}

/// Returns the conflict of a quantized base with training all weights; `None` unless `train.adapter.kind` is `full`.
fn full_training_conflict(settings: &RunSettings) -> Option<Explanation> {
    let what = "`model.precision` is for a frozen base, and `train.adapter.kind = \"full\"` trains all of it";
    let is_full = settings.file.train.adapter.kind == AdapterKind::Full;
    is_full.then(|| Explanation::new("config", what).with_hint("leave one of them out"))
}

/// Returns the conflict of a quantized base with a method that imports `weights` and whose setting `apply` is
/// `weights`, or is `adapter` if the run also continues or trains another adapter: these edits are written as a whole
/// model, whose other matrices would be rounded. `None` for every other method.
fn edit_conflict(settings: &RunSettings, method: &PlannedMethod) -> Option<Explanation> {
    let form = method.settings.iter().find(|(name, _)| name == "apply").filter(|_| method.edits());
    let beside = settings.file.model.adapter.is_some() || method.learns();
    let (what, hint) = match form {
        Some((_, Value::Text(form))) if form == "weights" => {
            ("the method writes a model of edited weights", ", or set `method.apply` to \"adapter\"")
        }
        Some((_, Value::Text(form))) if form == "adapter" && beside => {
            ("edits beside an adapter are written as a whole model", "")
        }
        _ => return None,
    };
    let what = format!("{what}, and with `model.precision` all of it would be rounded");
    Some(Explanation::new("config", what).with_hint(format!("leave `model.precision` out{hint}")))
}

/// Returns a warning if the `run.lock` of the continued adapter's run has another `model.precision` than this run.
/// `None` without a continued adapter, if the formats are equal, or if the adapter is not in a run's folder. Fails if
/// that lock cannot be read.
pub(super) fn changed_base_warning(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let (then, now) = (lock::base_precision(&settings.path("model.adapter", written))?, settings.file.model.precision);
    let name = |base: Base| if base.is_stored() { "as in its files".to_owned() } else { format!("in {base}") };
    Ok(then.filter(|then| *then != now).map(|then| {
        let (then, now) = (name(then), name(now));
        format!("the adapter was trained on a base {then}, this run has it {now}: see `model.precision`")
    }))
}
