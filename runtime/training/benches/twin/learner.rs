//! The model under training as both twins have it: one implementation, so that only the way to it differs.

use std::sync::Arc;

use tunebox_compute::Error as ComputeError;
use tunebox_compute::fused::Tap;
use tunebox_compute::optimizer::{AdamW, AdamWSettings, clip_gradients};
use tunebox_model::adapter::AdapterSettings;
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, PolicySettings, Scored};
use tunebox_model::{Model, Rows};
use tunebox_sandbox::{RunHooks, ScoreRequest, TrainState};

/// The learning rate of every update.
const RATE: f64 = 1e-4;
/// The largest norm of a gradient.
const CLIP: f64 = 1.0;

/// An optimizer.
pub(crate) struct Optimizer {
    adamw: AdamW,
    updates: u32,
}

/// A new low-rank adapter over a model, the same every time, with an optimizer.
pub(crate) fn train_state(model: Arc<Model>, rank: usize) -> Result<TrainState<Optimizer>, Error> {
    let settings = AdapterSettings { rank, alpha: 2.0 * rank as f64, ..AdapterSettings::default() };
    let policy = Policy::new(model, &settings, PolicySettings::default())?;
    let adamw = AdamW::new(AdamWSettings::default(), policy.parameters())?;
    Ok(TrainState::new(policy, Optimizer { adamw, updates: 0 }))
}

/// The trained numbers, as bits.
pub(crate) fn bits(policy: &Policy) -> Result<Vec<u32>, Error> {
    let values = policy.parameters().values().to_vec1::<f32>()?;
    Ok(values.into_iter().map(f32::to_bits).collect())
}

impl RunHooks for Optimizer {
    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        let scored = policy.score(&request.view, rows, request.taps, request.temperature, request.learning)?;
        if !scored.tap(Tap::Logprob)?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            return Err(ComputeError::NonFinite("the log-probabilities are not finite".into()).into());
        }
        Ok(scored)
    }

    fn update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        let parameters = policy.parameters();
        let norm = clip_gradients(parameters, CLIP)?;
        self.adamw.update(parameters, RATE)?;
        parameters.clear_gradients()?;
        policy.note_update();
        self.updates += 1;
        Ok(norm as f32)
    }

    fn learning_rate(&self) -> f64 {
        RATE
    }

    fn position(&self) -> u32 {
        self.updates
    }

    fn planned_steps(&self) -> u32 {
        u32::MAX
    }
}
