//! The model under training as both twins have it: one implementation, so that they differ only in the way to it.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::optimizer::{AdamW, AdamWSettings, clip_gradients};
use tunebox_compute::{Device, Error as ComputeError};
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, PolicySettings, Scored, Seeds, View};
use tunebox_model::{Model, Rows};
use tunebox_sandbox::{Editing, Learner, Sampling};

/// The rate of every update.
const RATE: f64 = 1e-4;
/// The largest norm of a gradient.
const CLIP: f64 = 1.0;

/// A policy with its optimiser.
pub(crate) struct PolicyLearner {
    policy: Policy,
    optimizer: AdamW,
    device: Device,
    updates: u32,
    accumulated: bool,
}

impl PolicyLearner {
    /// A new low-rank adapter over a model, the same every time.
    pub(crate) fn new(model: Arc<Model>, rank: usize) -> Result<Self, Error> {
        let settings = AdapterSettings { rank, alpha: 2.0 * rank as f64, ..AdapterSettings::default() };
        let policy = Policy::new(model, &settings, PolicySettings::default())?;
        let optimizer = AdamW::new(AdamWSettings::default(), policy.parameters())?;
        let device = policy.parameters().device().clone();
        Ok(Self { policy, optimizer, device, updates: 0, accumulated: false })
    }

    /// The trained numbers, as bits.
    pub(crate) fn bits(&self) -> Result<Vec<u32>, Error> {
        let values = self.policy.parameters().values().to_vec1::<f32>()?;
        Ok(values.into_iter().map(f32::to_bits).collect())
    }
}

impl Sampling for PolicyLearner {
    fn positions(&self) -> u32 {
        u32::try_from(self.policy.model().configuration.max_positions).unwrap_or(u32::MAX)
    }

    fn multiply_adds(&self, tokens: u64) -> u64 {
        self.policy.model().configuration.weights().saturating_mul(tokens)
    }
}

impl Editing for PolicyLearner {}

impl Learner for PolicyLearner {
    fn device(&self) -> &Device {
        &self.device
    }

    fn score(
        &mut self,
        view: &View,
        rows: &Arc<Rows>,
        taps: TapSet,
        temperature: f32,
        keep: bool,
    ) -> Result<Scored, Error> {
        let scored = self.policy.score(view, rows, taps, temperature, keep)?;
        if !scored.tap(Tap::Logprob)?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            return Err(ComputeError::NonFinite("the log-probabilities are not finite".into()).into());
        }
        Ok(scored)
    }

    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        self.accumulated = true;
        self.policy.backward(scored, seeds)
    }

    fn snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.policy.snapshot(name)
    }

    fn has_reference(&self) -> bool {
        self.policy.has_reference()
    }

    fn update(&mut self) -> Result<f32, Error> {
        let parameters = self.policy.parameters();
        let norm = clip_gradients(parameters, CLIP)?;
        self.accumulated = false;
        self.optimizer.update(parameters, RATE)?;
        parameters.clear_gradients()?;
        self.policy.note_update();
        self.updates += 1;
        Ok(norm as f32)
    }

    fn rate(&self) -> f64 {
        RATE
    }

    fn position(&self) -> u32 {
        self.updates
    }

    fn planned(&self) -> u32 {
        u32::MAX
    }

    fn generation(&self) -> u64 {
        self.policy.generation()
    }

    fn has_accumulated(&self) -> bool {
        self.accumulated
    }
}
