//! Opens what a run computes on: the model with its policy, and the data.

use tunebox_model::{Model, Policy};

use super::memory::bytes_beside_weights;
use super::method::PlannedMethod;
use super::model::{max_length, open_with_digest};
use super::policy::build_policy;
use crate::configuration::{RandomRecords, RunSettings, Underline};
use crate::data::{Dataset, Encoder, Reading, random_dataset};
use crate::error::Error;

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
    /// Opens model and data, and builds the policy. Generates random records instead of reading data if the settings
    /// ask for them. `clock` is the time that chat templates read, in seconds since 1970.
    pub(super) fn open(settings: &RunSettings, method: &PlannedMethod, clock: i64) -> Result<Self, Error> {
        let (model, model_digest) = open_with_digest(settings, clock)?;
        let runtime_bytes = bytes_beside_weights(&model.weights);
        let (wanted, skip_bad) = (method.shapes.clone(), settings.file.data.skip_bad);
        let reading = Reading { wanted, length: max_length(settings, &model), skip_bad };
        let (data, validation) = match settings.random {
            Some(sizes) => (generate_dataset(settings, &model, &reading, sizes)?, None),
            None => read_datasets(settings, &model, &reading)?,
        };
        let policy = build_policy(settings, model, method.learns(), data.sides_per_example())?;
        Ok(Self { policy, model_digest, runtime_bytes, data, validation })
    }
}

/// Generates a random data set of the first shape in `reading.wanted` that can be generated. Fails if none of the
/// method's shapes can.
fn generate_dataset(
    settings: &RunSettings,
    model: &Model,
    reading: &Reading,
    sizes: RandomRecords,
) -> Result<Dataset, Error> {
    let vocabulary = model.configuration.vocabulary;
    reading.wanted.iter().find_map(|shape| random_dataset(*shape, sizes, vocabulary)).ok_or_else(|| {
        let what = "this method does not learn from rows of tokens, so no random records can be generated for it";
        let hint = "`--method lora`, `dpo`, `grpo` and others do; a unit test can give its own `records`";
        settings.conflict("method.use", Underline::Value, what, hint)
    })
}

/// Reads and tokenizes the training data and, if the run file names them, the validation data; returns them in this
/// order.
fn read_datasets(
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
