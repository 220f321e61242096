//! Builds the policy of a run: the model with a new adapter, a continued adapter, all weights trainable, or none.

use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::decoder::Recompute;
use tunebox_model::error::Error as ModelError;
use tunebox_model::{Model, Policy, PolicySettings, Slice};

use super::memory;
use super::model::max_length;
use crate::configuration::{AdapterTable, RunSettings, Underline};
use crate::error::Error;

/// Builds the policy over a model: with the adapter of `model.adapter`, with a new adapter or all weights trainable if
/// the method trains (`learns`), else without an adapter. `sides` is the number of rows of a record.
///
/// # Errors
/// A run file that gives both `model.adapter` and `train.adapter`, and an adapter that does not fit the model.
pub(super) fn build_policy(
    settings: &RunSettings,
    model: Arc<Model>,
    learns: bool,
    sides: usize,
) -> Result<Policy, Error> {
    let (train, slice) = (&settings.file.train, pass_size(settings, &model, sides));
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let own = PolicySettings { recompute, slice, free: FREE_BYTES, keep: kept_bytes(settings, model.weights.device()) };
    let Some(written) = &settings.file.model.adapter else {
        if !learns {
            return Ok(Policy::open(model, None, own)?);
        }
        let adapter = adapter_settings(&train.adapter, train.seed);
        return Policy::new(model, &adapter, own).map_err(|error| match error {
            ModelError::NoModule { .. } => settings.with_location("train.adapter.targets", error),
            ModelError::NoLayer { .. } => settings.with_location("train.adapter.layers", error),
            other => other.into(),
        });
    };
    if settings.is_given("train.adapter") {
        let what = "`train.adapter` describes a new adapter, `model.adapter` continues an old one";
        let hint = "leave one of them out; the old adapter keeps its kind, rank and places";
        return Err(settings.conflict("train.adapter", Underline::Key, what, hint));
    }
    let folder = settings.path("model.adapter", written);
    Policy::open(model, Some(&folder), own).map_err(|error| settings.with_location("model.adapter", error))
}

/// Bytes of activations that a pass may keep for any size of micro-batch.
const FREE_BYTES: u64 = 2 << 30;

/// Bytes of activations that may be kept for a backward pass although it could recompute them: half of the limit
/// `activation-bytes`, at most a quarter of the device's free memory. Affects the speed of a run, not its results.
fn kept_bytes(settings: &RunSettings, device: &Device) -> u64 {
    let limit = settings.file.limits.of_method().activation_bytes;
    (limit / 2).min(memory::free_on(device).unwrap_or(0) / 4)
}

/// The most rows (or, with packing, tokens) of one pass through the model: those of a micro-batch with all `sides` of
/// its records. If a method scores more at once, they are split into several passes.
fn pass_size(settings: &RunSettings, model: &Model, sides: usize) -> Slice {
    let rows = settings.file.train.batch as usize * sides;
    if settings.file.data.packing { Slice::Tokens(rows * max_length(settings, model)) } else { Slice::Rows(rows) }
}

/// The settings of a new adapter from the table of the run file. Alpha is twice the rank unless given.
fn adapter_settings(table: &AdapterTable, seed: u64) -> AdapterSettings {
    AdapterSettings {
        kind: table.kind,
        rank: table.rank as usize,
        alpha: table.alpha.unwrap_or(2.0 * f64::from(table.rank)),
        dropout: table.dropout,
        targets: table.targets.clone(),
        layers: table.layers.as_ref().map(|layers| layers.iter().map(|layer| *layer as usize).collect()),
        seed,
    }
}
