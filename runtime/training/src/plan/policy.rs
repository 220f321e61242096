//! What a run trains on its model: a new adapter, one that is continued, all weights or nothing; and how its passes go.

use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_model::adapter::{AdapterKind, AdapterSettings, Targets as Places};
use tunebox_model::decoder::Recompute;
use tunebox_model::error::Error as ModelError;
use tunebox_model::{Model, Policy, PolicySettings, Slice};

use super::{length, memory};
use crate::configuration::{AdapterTable, Half, KindChoice, Problem, RunSettings, Targets};
use crate::error::Error;

/// The policy over a model, for records of so many sides.
pub(super) fn policy(settings: &RunSettings, model: Arc<Model>, learns: bool, sides: usize) -> Result<Policy, Error> {
    let (train, slice) = (&settings.file.train, slice(settings, &model, sides));
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let own = PolicySettings { recompute, slice, free: FREE, keep: keep(settings, model.weights.device()) };
    let Some(written) = &settings.file.model.adapter else {
        if !learns {
            return Ok(Policy::open(model, None, own)?);
        }
        let adapter = adapter(&train.adapter, train.seed);
        return Policy::new(model, &adapter, own).map_err(|error| match error {
            ModelError::NoModule { .. } => settings.named("train.adapter.targets", error),
            ModelError::NoLayer { .. } => settings.named("train.adapter.layers", error),
            other => other.into(),
        });
    };
    if settings.given("train.adapter") {
        let problem = Problem::Conflict {
            what: "`train.adapter` describes a new adapter, `model.adapter` continues an old one".into(),
            hint: "leave one of them out; the old adapter keeps its kind, rank and places".into(),
        };
        return Err(settings.wrong("train.adapter", Half::Key, problem));
    }
    let folder = settings.path("model.adapter", written);
    Policy::open(model, Some(&folder), own).map_err(|error| settings.named("model.adapter", error))
}

/// Bytes of activations that a pass may keep however small a micro-batch is.
const FREE: u64 = 2 << 30;

/// Bytes of activations that may wait for a backward pass which could compute them again: half of what the method may
/// keep, but no more than a quarter of what the device has left. The numbers of a run do not depend on it, only how
/// long it takes.
fn keep(settings: &RunSettings, device: &Device) -> u64 {
    let limit = settings.file.limits.of_method().activation_bytes;
    (limit / 2).min(memory::free_on(device).unwrap_or(0) / 4)
}

/// What a micro-batch holds, all sides of its records together, bounds every pass, whatever a method asks to be scored
/// at once.
fn slice(settings: &RunSettings, model: &Model, sides: usize) -> Slice {
    let rows = settings.file.train.batch as usize * sides;
    if settings.file.data.packing { Slice::Tokens(rows * length(settings, model)) } else { Slice::Rows(rows) }
}

fn adapter(table: &AdapterTable, seed: u64) -> AdapterSettings {
    let kind = match table.kind {
        KindChoice::Lora => AdapterKind::Lora,
        KindChoice::Rslora => AdapterKind::RsLora,
        KindChoice::Dora => AdapterKind::Dora,
        KindChoice::Full => AdapterKind::Full,
    };
    let targets = match &table.targets {
        Targets::Word(_) => Places::AllLinear,
        Targets::Names(names) => Places::Modules(names.clone()),
    };
    AdapterSettings {
        kind,
        rank: table.rank as usize,
        alpha: table.alpha.unwrap_or(2.0 * f64::from(table.rank)),
        dropout: table.dropout,
        targets,
        layers: table.layers.as_ref().map(|layers| layers.iter().map(|layer| *layer as usize).collect()),
        seed,
    }
}
