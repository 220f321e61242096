//! Opens what a run computes on: the model with its policy, and the data.

use tunebox_model::{Model, Policy};

use super::memory::bytes_beside_weights;
use super::method::PlannedMethod;
use super::model::{max_length, open_with_digest};
use super::policy::build_policy;
use crate::configuration::RunSettings;
use crate::data::{Dataset, Encoder, Reading};
use crate::error::Error;

/// The source of a run's training and validation records.
pub(crate) type Records<'a> = dyn Fn(&RunSettings, &Model, &Reading) -> Result<(Dataset, Option<Dataset>), Error> + 'a;

/// The model, policy and data of a run.
pub(super) struct Inputs {
    pub(super) policy: Policy,
    /// The digest of the model's weights.
    pub(super) model_digest: String,
    /// Bytes that the device holds beside the model's weights.
    pub(super) runtime_bytes: u64,
    pub(super) data: Dataset,
    pub(super) validation: Option<Dataset>,
}

impl Inputs {
    /// Opens model and data, and builds the policy. `clock` is the time that chat templates read.
    pub(super) fn open(
        settings: &RunSettings,
        method: &PlannedMethod,
        clock: i64,
        records: &Records<'_>,
    ) -> Result<Self, Error> {
        let (model, model_digest) = open_with_digest(settings, clock)?;
        let runtime_bytes = bytes_beside_weights(&model.weights);
        let (wanted, skip_bad) = (method.shapes.clone(), settings.file.data.skip_bad);
        let reading = Reading { wanted, length: max_length(settings, &model), skip_bad };
        let (data, validation) = records(settings, &model, &reading)?;
        let policy = build_policy(settings, model, method.learns(), data.sides_per_example())?;
        Ok(Self { policy, model_digest, runtime_bytes, data, validation })
    }
}

/// Reads the training and validation data that the run file names.
pub(crate) fn read_datasets(
    settings: &RunSettings,
    model: &Model,
    reading: &Reading,
) -> Result<(Dataset, Option<Dataset>), Error> {
    let table = &settings.file.data;
    let encoder = Encoder { tokenizer: model.tokenizer()?, template: model.template.as_ref(), answers: table.answers };
    // An error about a record has its own location.
    let read = |key: &str, written: &str| match Dataset::read(&settings.path(key, written), reading, &encoder) {
        Err(error @ Error::File(_)) => Err(settings.with_location(key, error)),
        read => read,
    };
    let data = read("data.path", &table.path)?;
    let validation = table.validation.as_deref().map(|written| read("data.validation", written));
    Ok((data, validation.transpose()?))
}
