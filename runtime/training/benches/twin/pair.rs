//! A step of the native twin and the same step of the component, one after the other, and whether both did the same.

use std::sync::Arc;
use std::time::Instant;

use tunebox_model::adapter::AdapterSettings;
use tunebox_model::{Model, Policy, PolicySettings};
use tunebox_package::{Reference, resolve_settings};
use tunebox_sandbox::{Batch, Engine, Grants, Limits, Session, SessionSettings};
use tunebox_training::configuration::RandomRecords;
use tunebox_training::data::{Shape, random_dataset, window};
use tunebox_training::{TrainState, Trainer, bench_train_state};

use super::Outcome;
use super::native::{self, Numbers};

/// How far apart a number of both twins may be, in units of 1 + the number. Weights may not differ at all: logarithms
/// are computed in two ways, and sums of a few rows in two orders, but gradients in one.
pub(crate) const TOLERANCE: f64 = 1e-6;

/// A method that has a native twin.
pub(crate) struct Twin {
    /// The name of the built-in method.
    pub(crate) name: &'static str,
    /// The shape of the records that the method learns from.
    pub(crate) shape: Shape,
    /// Executes a step of the native twin up to the gradient, without the update; returns the reported numbers.
    step: fn(&mut TrainState, &Batch) -> Outcome<Numbers>,
}

/// The methods that have a native twin.
pub(crate) static TWINS: [Twin; 2] = [
    Twin { name: "lora", shape: Shape::Text, step: native::supervised },
    Twin { name: "dpo", shape: Shape::Preference, step: native::preference },
];

/// Seconds of one step of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) native: f64,
    pub(crate) component: f64,
    /// Seconds of the component's step that the guest itself computed.
    pub(crate) guest: f64,
    /// The component's calls to the host.
    pub(crate) calls: u64,
}

/// Both twins, each with an adapter of its own over the same model.
pub(crate) struct Pair {
    twin: &'static Twin,
    native: TrainState,
    component: Session<Trainer>,
}

impl Pair {
    /// Starts both twins on the same model with equal new adapters of this rank, and calls the component's `init`.
    pub(crate) fn start(twin: &'static Twin, model: &Arc<Model>, rank: usize) -> Outcome<Self> {
        let package = Reference::parse(twin.name, ".".as_ref())?.open()?;
        let limits = Limits::default();
        let admitted = Engine::new()?.admit(&package.bytes, twin.name, &Grants::default(), &limits)?;
        let metric_names = package.manifest.metrics.clone();
        let settings = SessionSettings { limits, metric_names, ..SessionSettings::default() };
        let mut component = Session::start(&admitted, train_state(model, rank)?, settings)?;
        component.init(&resolve_settings(&package.manifest, &toml::Table::new())?)?;
        Ok(Self { twin, native: train_state(model, rank)?, component })
    }

    /// Executes and times a step of each twin over the same batch, the native one first if `native_first`, else second,
    /// and compares the reported numbers and the weights.
    ///
    /// # Errors
    /// A step that fails, numbers that differ by more than [`TOLERANCE`], and weights with different bits.
    pub(crate) fn step(&mut self, batch: &Batch, native_first: bool) -> Outcome<Timed> {
        let first = native_first.then(|| self.native(batch)).transpose()?;
        let (component, report) = self.component(batch)?;
        let (native, numbers) = first.map_or_else(|| self.native(batch), Ok)?;
        compare(&numbers, &report.metrics.iter().map(|(name, value, _)| (name.as_str(), *value)).collect::<Vec<_>>())?;
        self.same_weights()?;
        Ok(Timed { native, component, guest: report.guest_seconds, calls: report.host_calls })
    }

    /// Executes and times a step of the native twin with its update; returns the seconds and the reported numbers.
    fn native(&mut self, batch: &Batch) -> Outcome<(f64, Numbers)> {
        let begun = Instant::now();
        let numbers = (self.twin.step)(&mut self.native, batch)?;
        self.native.update()?;
        Ok((begun.elapsed().as_secs_f64(), numbers))
    }

    /// Executes and times a step of the component with its update; returns the seconds and the report.
    fn component(&mut self, batch: &Batch) -> Outcome<(f64, tunebox_sandbox::StepReport)> {
        let batch = batch.clone();
        let begun = Instant::now();
        let report = self.component.step(batch)?;
        self.component.train_state().update()?;
        Ok((begun.elapsed().as_secs_f64(), report))
    }

    /// Fails unless the trained numbers of both twins have the same bits.
    fn same_weights(&mut self) -> Outcome<()> {
        let (ours, theirs) = (bits(&self.native.policy)?, bits(&self.component.train_state().policy)?);
        let differing = ours.iter().zip(&theirs).filter(|(one, other)| one != other).count();
        if ours.len() != theirs.len() || differing > 0 {
            let (name, all) = (self.twin.name, ours.len());
            return Err(format!("`{name}`: {differing} of {all} weights of the twins differ").into());
        }
        Ok(())
    }
}

/// Fails unless the component reported every number of the native twin, within [`TOLERANCE`]. Further numbers of the
/// component are ignored.
pub(crate) fn compare(native: &[(&'static str, f32)], component: &[(&str, f64)]) -> Outcome<()> {
    for (name, value) in native {
        let found = component.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let found = found.ok_or_else(|| format!("the component did not report `{name}`"))?;
        let value = f64::from(*value);
        // NaN is near nothing.
        let near = (found - value).abs() <= TOLERANCE * (1.0 + value.abs());
        if !near {
            return Err(format!("`{name}` is {value} natively and {found} of the component").into());
        }
    }
    Ok(())
}

/// Generates a batch of random records; equal arguments give an equal batch.
pub(crate) fn random_batch(shape: Shape, sizes: RandomRecords, vocabulary: usize) -> Outcome<Batch> {
    let data = random_dataset(shape, sizes, vocabulary).ok_or("such records cannot be generated")?;
    Ok(window(&data, &[(0..sizes.records).collect()])?.batches.pop().ok_or("a window without a batch")?)
}

/// Creates a train state with a new low-rank adapter over a model, with equal numbers at every call.
fn train_state(model: &Arc<Model>, rank: usize) -> Outcome<TrainState> {
    let settings = AdapterSettings { rank, alpha: 2.0 * rank as f64, ..AdapterSettings::default() };
    Ok(bench_train_state(Policy::new(Arc::clone(model), &settings, PolicySettings::default())?)?)
}

/// The bits of all trained numbers, in order.
fn bits(policy: &Policy) -> Outcome<Vec<u32>> {
    Ok(policy.parameters().values().to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}
