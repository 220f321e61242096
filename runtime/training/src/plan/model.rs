//! The model of a run: found or fetched, opened where it computes, kept as the run asks.

use std::sync::Arc;

use tunebox_compute::explain::Explain;
use tunebox_compute::{Device, device};
use tunebox_model::hub::Hub;
use tunebox_model::{Model, Source};

use super::base;
use crate::configuration::{Half, Initialise, Problem, RunSettings};
use crate::digest::digest;
use crate::error::Error;
use crate::{files, sample};

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
        let mut model = Model::random(&folder, settings.file.train.seed, device)?;
        model.weights = model.weights.kept_in(asked)?;
        (model, digest(&files::read(&folder.join("config.json"))?))
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

/// The model of a run, without its digest.
pub(crate) fn open_model(settings: &RunSettings) -> Result<Arc<Model>, Error> {
    let device = compute_device(settings)?;
    Ok(Arc::new(Model::open_in(&source(settings)?, &device, base::asked(settings, &device)?)?))
}

fn source(settings: &RunSettings) -> Result<Source, Error> {
    let table = &settings.file.model;
    sample::present(&settings.path("model.path", &table.path))?;
    let name = settings.path_or_name("model.path", &table.path);
    let hub = Hub::from_environment(settings.offline);
    Ok(Source::find(&name, table.revision.as_deref(), &hub, &mut |_| {})?)
}
