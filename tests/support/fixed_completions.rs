//! A real model under training that writes completions which were fixed before, and earns fixed rewards.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_compute::fused::TapSet;
use tunebox_model::error::Error;
use tunebox_model::generate::Completion;
use tunebox_model::hub::Hub;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_model::{Model, Policy, PolicySettings, Slice, Source};
use tunebox_sandbox::{Editing, Learner, Question, Sampler, Sampling, Written};

/// The learner. Its reference is the base model.
pub(crate) struct FixedCompletions {
    pub(crate) policy: Policy,
    base: Policy,
    completions: Vec<Vec<u32>>,
    rewards: Vec<f32>,
}

impl FixedCompletions {
    /// A model with an adapter, scored in slices of some rows.
    pub(crate) fn new(model: &Path, adapter: &Path, slice: Slice, completions: &[Vec<u32>], rewards: &[f32]) -> Self {
        let hub = Hub::from_environment(true);
        let source = Source::find(&model.to_string_lossy(), None, &hub, &mut |_| {}).unwrap();
        let model = Arc::new(Model::open(&source, &Device::Cpu).unwrap());
        let settings = PolicySettings { slice, ..PolicySettings::default() };
        let policy = Policy::open(model.clone(), Some(adapter), settings).unwrap();
        let base = Policy::open(model, None, settings).unwrap();
        let (completions, rewards) = (completions.to_vec(), rewards.to_vec());
        Self { policy, base, completions, rewards }
    }
}

impl Editing for FixedCompletions {}

impl Sampling for FixedCompletions {
    fn new_tokens(&self) -> u32 {
        64
    }

    fn generate(&mut self, _: &View, _: &Arc<Rows>, _: &Sampler) -> Result<Vec<Completion>, Error> {
        let one = |ids: &Vec<u32>| Completion { logprobs: vec![0.0; ids.len()], ids: ids.clone(), finished: true };
        Ok(self.completions.iter().map(one).collect())
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        vec![("fixed".into(), 1.0)]
    }

    fn judge(&mut self, _: &[Question], _: &Written) -> Result<Vec<f32>, Error> {
        Ok(self.rewards.clone())
    }
}

impl Learner for FixedCompletions {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, taps: TapSet, heat: f32, keep: bool) -> Result<Scored, Error> {
        match view {
            View::Reference => self.base.score(&View::Policy, rows, taps, heat, false),
            view => self.policy.score(view, rows, taps, heat, keep),
        }
    }

    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        self.policy.backward(scored, seeds)
    }

    fn has_reference(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.policy.generation()
    }
}
