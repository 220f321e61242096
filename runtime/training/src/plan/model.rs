//! The model of a run: found or fetched, opened where it computes, kept as the run asks.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::{Device, device};
use tunebox_foundation::explain::Explain;
use tunebox_model::{Model, Source};

use super::base;
use crate::configuration::{Half, Initialise, Problem, RunSettings};
use crate::digest::digest;
use crate::error::Error;
use crate::runs::find_model;
use crate::sample;
use tunebox_foundation::files;

/// Fetches a model that is named by the hub's name; whether it was one.
pub(crate) fn fetch(settings: &RunSettings) -> Result<bool, Error> {
    let table = &settings.file.model;
    let here = table.initialise.is_some() || settings.path("model.path", &table.path).exists();
    if !here {
        source(settings)?;
    }
    Ok(!here)
}

/// What computes.
fn compute_device(settings: &RunSettings) -> Result<Device, Error> {
    device::parse(&settings.file.train.device).map_err(|error| {
        let problem = Problem::Method { what: error.to_string(), why: error.why(), hint: error.hint() };
        settings.wrong("train.device", Half::Value, problem)
    })
}

/// The model with its template's clock set, and the digest of its weights.
pub(super) fn model(settings: &RunSettings, clock: i64) -> Result<(Arc<Model>, String), Error> {
    let (table, device) = (&settings.file.model, &compute_device(settings)?);
    let (asked, random) = (base::asked(settings, device)?, table.initialise == Some(Initialise::Random));
    let (mut model, digest) = if random {
        let folder = settings.path("model.path", &table.path);
        let model = Model::random(&folder, settings.file.train.seed, device);
        let mut model = model.map_err(|error| settings.named("model.path", error))?;
        model.weights = model.weights.kept_in(asked)?;
        (model, of_configuration(&folder)?)
    } else {
        let source = source(settings)?;
        (Model::open_in(&source, device, asked)?, source.digest()?)
    };
    if let Some(again) = &settings.again {
        model.name.clone_from(&again.model);
    }
    model.template = model.template.map(|template| template.at(clock));
    Ok((Arc::new(model), digest))
}

/// The digest of a run's model, and that of the adapter that it goes on with; neither of them is opened.
pub(crate) fn digests(settings: &RunSettings) -> Result<(String, Option<String>), Error> {
    let table = &settings.file.model;
    let model = if table.initialise == Some(Initialise::Random) {
        of_configuration(&settings.path("model.path", &table.path))?
    } else {
        source(settings)?.digest()?
    };
    Ok((model, adapter(settings)?))
}

/// What stands for the weights of a model that is drawn from the seed.
fn of_configuration(folder: &Path) -> Result<String, Error> {
    Ok(digest(files::read_text(&folder.join("config.json"))?.as_bytes()))
}

/// The digest of the adapter that a run goes on with.
pub(super) fn adapter(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let file = settings.path("model.adapter", written).join("adapter_model.safetensors");
    Ok(Some(tunebox_model::digest(&[file])?))
}

/// The model of a run, without its digest.
pub(crate) fn open_model(settings: &RunSettings) -> Result<Arc<Model>, Error> {
    let device = compute_device(settings)?;
    Ok(Arc::new(Model::open_in(&source(settings)?, &device, base::asked(settings, &device)?)?))
}

fn source(settings: &RunSettings) -> Result<Source, Error> {
    let table = &settings.file.model;
    sample::present(&settings.path("model.path", &table.path))?;
    let name = settings.path_or_name("model.path", &table.path);
    find_model(&name, table.revision.as_deref(), settings.offline).map_err(|error| settings.named("model.path", error))
}
