//! A run around a tiny model: every target token scores −1, every other tap of it 1, and what arrives is recorded.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tunebox_compute::fused::Tap;
use tunebox_compute::{Device, Tensor};
use tunebox_model::Policy;
use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Completions, Question, RunHooks, ScoreRequest, TrainState};

use super::tiny_policy::tiny_policy;

/// What arrived at a fake run, and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The seeds of the log-probabilities of every backward pass, row by row.
    pub seeds: Vec<Vec<Vec<f32>>>,
    /// Updates made.
    pub updates: u32,
    /// Whether scoring panics, as a fault of the host would.
    pub panics: bool,
}

/// Hooks with fixed scores. A completion is two tokens long, and one verifier accepts all of them.
pub(crate) struct FakeRun(Arc<Mutex<Record>>);

impl FakeRun {
    /// A train state over a tiny model of four layers and sixteen tokens, and the record of its run.
    pub(crate) fn with_record() -> (TrainState<Self>, Arc<Mutex<Record>>) {
        let record = Arc::<Mutex<Record>>::default();
        (TrainState::new(tiny_policy(4, 16, 0.5), Self(record.clone())), record)
    }
}

/// Two rows, of three and two tokens, with two targets and one.
pub(crate) fn rows() -> Arc<Rows> {
    let ids = vec![vec![5, 6, 7], vec![8, 9]];
    let targets = vec![vec![false, true, true], vec![false, true]];
    Arc::new(Rows::new(ids, targets).unwrap())
}

impl RunHooks for FakeRun {
    fn learning_rate(&self) -> f64 {
        0.001
    }

    fn position(&self) -> u32 {
        self.0.lock().unwrap().updates
    }

    fn planned_steps(&self) -> u32 {
        10
    }

    fn max_new_tokens(&self) -> u32 {
        8
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        vec![("pleased".into(), 1.0)]
    }

    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        assert!(!self.0.lock().unwrap().panics, "the model fell over");
        let logprob = rows.mask_tensor(&Device::Cpu)?.neg()?;
        let ones = logprob.neg()?;
        let values = |tap| if tap == Tap::Logprob { logprob.clone() } else { ones.clone() };
        let taps = request.taps.set().iter().map(|tap| (tap, values(tap))).collect();
        Ok(Scored::of_taps(request.view.clone(), rows.clone(), taps, policy.generation()))
    }

    fn backward(&mut self, _: &Policy, _: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let seeds = seeds.get(Tap::Logprob).map(Tensor::to_vec2::<f32>).transpose()?.unwrap_or_default();
        self.0.lock().unwrap().seeds.push(seeds);
        Ok(())
    }

    fn update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        self.0.lock().unwrap().updates += 1;
        policy.note_update();
        Ok(1.0)
    }

    fn generate(
        &mut self,
        _: &Policy,
        _: &View,
        prompts: &Arc<Rows>,
        sampling: &Sampling,
        _: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        let one = Completion { ids: vec![3, 4], logprobs: vec![-0.5, -0.25], finished: true, ..Completion::default() };
        Ok(vec![one; prompts.count() * sampling.completions])
    }

    fn judge(
        &mut self,
        _: &Policy,
        _: &[Question],
        written: &Completions,
        _: Option<Instant>,
    ) -> Result<Vec<f32>, Error> {
        Ok(vec![1.0; written.rows.count()])
    }
}
