//! Opens what a run computes on: the model with its policy, and the data.
//!
//! The policy is the model with a new adapter, with a continued adapter, with all weights trainable, or with none.

use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_foundation::explain::Explanation;
use tunebox_model::decoder::{EmbeddingNoise, Recompute};
use tunebox_model::{Model, Policy, PolicySettings, Slice};

use super::adapter::{adapter_settings, check_one_adapter, locate_error};
use super::data::{check_map, training_files, validation_files};
use super::memory::{bytes_beside_weights, free_bytes};
use super::method::PlannedMethod;
use super::model::{max_length, open_with_digest};
use super::teachers::open_teachers;
use crate::configuration::{RandomRecords, RunSettings, Underline, ValidationData};
use crate::data::{Dataset, Encoder, InputFile, Reading, random_dataset};
use crate::error::Error;

/// The model, policy and data of a run.
pub(super) struct Inputs {
    pub(super) policy: Policy,
    /// The digest of the model's weights.
    pub(super) model_digest: String,
    /// The digests of the teachers' weights, in the order of the run file.
    pub(super) teacher_digests: Vec<String>,
    /// Bytes of memory in use beside the model's weights, from [`bytes_beside_weights`].
    pub(super) runtime_bytes: u64,
    pub(super) data: Dataset,
    pub(super) validation: Option<Dataset>,
}

impl Inputs {
    /// Opens model, teachers and data, and builds the policy, on the run's device. Examples are cut to the positions of
    /// the model and of every teacher. If the settings ask for random records (`settings.random`), generates them
    /// instead of reading data, and has no validation data. `clock` is the time that chat templates read, in seconds
    /// since 1970.
    pub(super) fn open(settings: &RunSettings, method: &PlannedMethod, clock: i64) -> Result<Self, Error> {
        let (model, model_digest) = open_with_digest(settings, clock)?;
        let runtime_bytes = bytes_beside_weights(&model.weights);
        let teachers = open_teachers(settings, &model)?;
        let longest = teachers.iter().map(|teacher| teacher.model.configuration.max_positions).min();
        let table = &settings.file.data;
        check_map(settings)?;
        let reading = Reading {
            wanted: method.shapes.clone(),
            length: max_length(settings, &model).min(longest.unwrap_or(usize::MAX)),
            skip_bad: table.skip_bad,
            map: table.map.clone(),
            seed: settings.file.train.seed,
            splits_texts: table.long_texts.is_split(),
        };
        let (data, validation) = match settings.random {
            Some(sizes) => (generate_dataset(settings, &model, &reading, sizes)?, None),
            None => read_datasets(settings, &model, &reading)?,
        };
        let mut policy = build_policy(settings, model, method.learns(), data.sides_per_example())?;
        policy.set_ranks(settings.ranks.clone()).map_err(|error| {
            let why = "each rank holds the whole model, and computes a share of the rows";
            let problem = Explanation::new("ranks", error.to_string()).with_why(why);
            problem.with_hint("`--set train.device=cpu`, or one rank")
        })?;
        let train = &settings.file.train;
        policy.set_embedding_noise(train.neftune_alpha.map(|alpha| EmbeddingNoise { alpha, seed: train.seed }));
        let teacher_digests = teachers.iter().map(|teacher| teacher.digest.clone()).collect();
        for teacher in teachers {
            policy.add_teacher(&teacher.name, teacher.model)?;
        }
        Ok(Self { policy, model_digest, teacher_digests, runtime_bytes, data, validation })
    }
}

/// Generates a random data set of the first shape in `reading.wanted` that [`random_dataset`] generates. Fails if the
/// method learns from instructions or contrasts, for which there is none.
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

/// Reads and tokenizes the training data and, if the run file asks for some, the validation data, which may be held
/// back of the training data; returns them in this order. An error about a file that cannot be read is located at its
/// key in the run file, an error about a record in the data file.
fn read_datasets(
    settings: &RunSettings,
    model: &Model,
    reading: &Reading,
) -> Result<(Dataset, Option<Dataset>), Error> {
    let table = &settings.file.data;
    let encoder = Encoder { tokenizer: model.tokenizer()?, template: model.template.as_ref(), answers: table.answers };
    // An error about a record has its own location.
    let read = |key: &str, files: Vec<InputFile>| match Dataset::read(&files, reading, Some(&encoder)) {
        Err(error @ Error::File(_)) => Err(settings.with_location(key, error)),
        read => read,
    };
    let key = if table.files.is_empty() { "data.path" } else { "data.files" };
    let mut data = read(key, training_files(settings)?)?;
    if let Some(ValidationData::HeldBack(amount)) = table.validation {
        let held_back = data.hold_back(amount, reading.seed);
        let held_back = held_back.map_err(|problem| settings.error("data.validation", Underline::Value, *problem))?;
        return Ok((data, Some(held_back)));
    }
    let validation = validation_files(settings)?.map(|files| read("data.validation", files));
    Ok((data, validation.transpose()?))
}

/// Builds the policy over a model: with the adapter of `model.adapter`, with a new adapter or all weights trainable if
/// the method trains (`learns`), else without an adapter. The reference of a continued adapter is its first state, or
/// the base model if `model.reference` says so. `sides` is the number of rows of a record.
///
/// # Errors
/// Settings that give both `model.adapter` and `train.adapter`, a new adapter for a matrix or layer that the model
/// lacks, and an adapter that cannot be read or does not fit the model.
fn build_policy(settings: &RunSettings, model: Arc<Model>, learns: bool, sides: usize) -> Result<Policy, Error> {
    let (train, slice) = (&settings.file.train, rows_per_pass(settings, &model, sides));
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let max_saved_bytes = kept_bytes(settings, model.weights.device());
    let own = PolicySettings { recompute, slice, min_slice_bytes: FREE_BYTES, max_saved_bytes };
    let Some(written) = &settings.file.model.adapter else {
        if !learns {
            return Ok(Policy::open(model, None, own)?);
        }
        let adapter = adapter_settings(&train.adapter, train.seed);
        return Policy::new(model, &adapter, own).map_err(|error| locate_error(settings, error));
    };
    check_one_adapter(settings)?;
    let folder = settings.path("model.adapter", written);
    let policy = Policy::open(model, Some(&folder), own);
    let mut policy = policy.map_err(|error| settings.with_location("model.adapter", error))?;
    if !settings.file.model.reference.is_start() {
        policy.set_base_reference();
    }
    Ok(policy)
}

/// Bytes of activations that one pass may keep for its backward pass even if it then holds more than [`rows_per_pass`].
const FREE_BYTES: u64 = 2 << 30;

/// Bytes of activations that may be kept for a backward pass although it could recompute them: half of the limit
/// `activation-bytes`, at most a quarter of the device's free memory, 0 if that is unknown. Affects the speed of a run,
/// not its results.
fn kept_bytes(settings: &RunSettings, device: &Device) -> u64 {
    let limit = settings.file.limits.activation_bytes;
    (limit / 2).min(free_bytes(device).unwrap_or(0) / 4)
}

/// Returns the most rows of one pass through the model: `train.batch` records of `sides` rows each. With packing,
/// returns the most tokens instead: that number of rows times the maximum length. If a method scores more at once, the
/// rows are split into several passes.
fn rows_per_pass(settings: &RunSettings, model: &Model, sides: usize) -> Slice {
    let rows = settings.file.train.batch as usize * sides;
    if settings.file.data.packing { Slice::Tokens(rows * max_length(settings, model)) } else { Slice::Rows(rows) }
}
