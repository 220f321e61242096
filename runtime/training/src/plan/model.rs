//! Finds or fetches the model of a run, and opens it on the run's device.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::{Device, device};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::files;
use tunebox_model::{Model, Source};
use tunebox_package::digest::sha256;

use super::precision;
use crate::configuration::{Initialise, RunSettings, Underline};
use crate::error::Error;
use crate::runs::find_model;
use crate::sample;

/// Fetches the run's model from the hub if `model.path` is not an existing path. Returns true if the model is one of
/// the hub; does nothing and returns false for a local or random model.
pub(crate) fn fetch(settings: &RunSettings) -> Result<bool, Error> {
    let table = &settings.file.model;
    let is_local = table.initialise.is_some() || settings.path("model.path", &table.path).exists();
    if !is_local {
        find_source(settings)?;
    }
    Ok(!is_local)
}

/// Opens the device that `train.device` names. An error is located at that key.
fn open_device(settings: &RunSettings) -> Result<Device, Error> {
    device::parse(&settings.file.train.device).map_err(|error| {
        let Explanation { what, why, hint, .. } = error.explanation();
        settings.error("train.device", Underline::Value, Explanation { why, hint, ..Explanation::new("config", what) })
    })
}

/// Opens or randomly initializes the model of a run on its device, in the requested number format. `clock` is the time
/// that its chat template reads. The second value is the digest of the weights, or of the configuration for a random
/// model. A replayed run's model gets its recorded name.
pub(super) fn open_with_digest(settings: &RunSettings, clock: i64) -> Result<(Arc<Model>, String), Error> {
    let (table, device) = (&settings.file.model, &open_device(settings)?);
    let requested = precision::requested(settings, device)?;
    let (mut model, digest) = if table.initialise == Some(Initialise::Random) {
        let folder = settings.path("model.path", &table.path);
        let model = Model::random(&folder, settings.file.train.seed, device);
        let mut model = model.map_err(|error| settings.with_location("model.path", error))?;
        model.weights = model.weights.kept_in(requested)?;
        (model, configuration_digest(&folder)?)
    } else {
        let source = find_source(settings)?;
        (Model::open_in(&source, device, requested)?, source.digest()?)
    };
    if let Some(replay) = &settings.replay {
        model.name.clone_from(&replay.model);
    }
    model.template = model.template.map(|template| template.at(clock));
    Ok((Arc::new(model), digest))
}

/// Opens the model of a run from its files, on the run's device. Unlike [`open_with_digest`], ignores
/// `model.initialise`.
pub(crate) fn open_model(settings: &RunSettings) -> Result<Arc<Model>, Error> {
    let device = open_device(settings)?;
    Ok(Arc::new(Model::open_in(&find_source(settings)?, &device, precision::requested(settings, &device)?)?))
}

/// The digests of a run's model and of the adapter that the run continues (`None` if there is none), without opening
/// either. The model is fetched if it is one of the hub.
pub(crate) fn digests(settings: &RunSettings) -> Result<(String, Option<String>), Error> {
    let table = &settings.file.model;
    let model = if table.initialise == Some(Initialise::Random) {
        configuration_digest(&settings.path("model.path", &table.path))?
    } else {
        find_source(settings)?.digest()?
    };
    Ok((model, adapter_digest(settings)?))
}

/// The hexadecimal SHA-256 of `config.json` in a model's folder, which stands for the digest of a randomly initialized
/// model.
fn configuration_digest(folder: &Path) -> Result<String, Error> {
    Ok(sha256(files::read_text(&folder.join("config.json"))?.as_bytes()))
}

/// The digest of the weights of the adapter that a run continues; `None` if `model.adapter` is not set.
pub(super) fn adapter_digest(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let file = settings.path("model.adapter", written).join("adapter_model.safetensors");
    Ok(Some(tunebox_model::digest(&[file])?))
}

/// Finds the files of the run's model. Fetches them if `model.path` is a name on the hub, unless the run is offline.
fn find_source(settings: &RunSettings) -> Result<Source, Error> {
    let table = &settings.file.model;
    let path = settings.path("model.path", &table.path);
    sample::check_present(&path)?;
    let name = if path.exists() { path.to_string_lossy() } else { table.path.as_str().into() };
    let found = find_model(&name, table.revision.as_deref(), settings.offline);
    found.map_err(|error| settings.with_location("model.path", error))
}

/// The maximum length of an example in tokens: `data.max-length`, at most the model's number of positions (counted as
/// at least 2).
pub(super) fn max_length(settings: &RunSettings, model: &Model) -> usize {
    (settings.file.data.max_length as usize).min(model.configuration.max_positions.max(2))
}
