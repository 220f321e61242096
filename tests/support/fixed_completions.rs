//! A run of a real model whose completions and rewards are fixed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tunebox_compute::Device;
use tunebox_compute::precision::{Compute, PrecisionRequest};
use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::hub::Hub;
use tunebox_model::policy::{Scored, View};
use tunebox_model::rows::Rows;
use tunebox_model::{Model, Policy, PolicySettings, Slice, Source};
use tunebox_sandbox::{Completions, Question, RunHooks, ScoreRequest, TrainState};

/// Hooks with fixed completions. The reference is the base model.
pub(crate) struct FixedCompletions {
    base: Policy,
    completions: Vec<Vec<u32>>,
    rewards: Vec<f32>,
}

impl FixedCompletions {
    /// A model with an adapter, in a number format, scored in slices of some rows.
    pub(crate) fn train_state(
        model: &Path,
        adapter: &Path,
        compute: Compute,
        slice: Slice,
        completions: &[Vec<u32>],
        rewards: &[f32],
    ) -> TrainState<Self> {
        let hub = Hub::from_environment(true);
        let source = Source::find(&model.to_string_lossy(), None, &hub).unwrap();
        let precision = PrecisionRequest { compute, ..PrecisionRequest::default() };
        let model = Arc::new(Model::open_in(&source, &Device::Cpu, precision).unwrap());
        let settings = PolicySettings { slice, ..PolicySettings::default() };
        let policy = Policy::open(model.clone(), Some(adapter), settings).unwrap();
        let base = Policy::open(model, None, settings).unwrap();
        let (completions, rewards) = (completions.to_vec(), rewards.to_vec());
        TrainState::new(policy, Self { base, completions, rewards })
    }
}

impl RunHooks for FixedCompletions {
    fn max_new_tokens(&self) -> u32 {
        64
    }

    fn generate(
        &mut self,
        _: &Policy,
        _: &View,
        _: &Arc<Rows>,
        _: &Sampling,
        _: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        let logprobs = |ids: &Vec<u32>| vec![0.0; ids.len()];
        let one = |ids: &Vec<u32>| Completion {
            logprobs: logprobs(ids),
            ids: ids.clone(),
            finished: true,
            ..Completion::default()
        };
        Ok(self.completions.iter().map(one).collect())
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        vec![("fixed".into(), 1.0)]
    }

    fn judge(&mut self, _: &Policy, _: &[Question], _: &Completions, _: Option<Instant>) -> Result<Vec<f32>, Error> {
        Ok(self.rewards.clone())
    }

    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        let ScoreRequest { view, taps, temperature, learning } = request;
        match view {
            View::Reference => self.base.score(&View::Policy, rows, taps.clone(), *temperature, false),
            view => policy.score(view, rows, taps.clone(), *temperature, *learning),
        }
    }
}
