//! A run whose completions, scores and verdicts are given: completions, ℓ, ℓ_old, ℓ_ref, entropies, rewards.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tunebox_compute::fused::{Tap, Taps};
use tunebox_compute::{Device, Tensor};
use tunebox_model::Policy;
use tunebox_model::error::Error;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Completions, Question, RunHooks, ScoreRequest, TrainState};

use super::tiny_policy::tiny_policy;

/// What the completions of one update are, a list a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    /// Tokens of each completion.
    pub lengths: Vec<usize>,
    /// Whether it ended by itself.
    pub finished: Vec<bool>,
    /// ℓ once the weights were updated, token by token.
    pub logprob: Vec<Vec<f32>>,
    /// ℓ before.
    pub old: Vec<Vec<f32>>,
    /// ℓ of the reference.
    pub reference: Vec<Vec<f32>>,
    /// Entropies.
    pub entropy: Vec<Vec<f32>>,
    /// Verdicts, `[rows, verifiers]`.
    pub rewards: Vec<f32>,
    /// Weights of the verifiers.
    pub weights: Vec<f32>,
}

/// dL/dℓ of every backward pass, row by row, without the prompt.
pub(crate) type Arrived = Arc<Mutex<Vec<Vec<Vec<f32>>>>>;

/// The tokens of the first completion; those of the next are one more.
const FIRST: u32 = 10;

/// Hooks over a rollout.
pub(crate) struct GivenRollout {
    rollout: Rollout,
    arrived: Arrived,
}

impl GivenRollout {
    /// A train state and the gradients that arrive at it.
    pub(crate) fn with_arrivals(rollout: Rollout) -> (TrainState<Self>, Arrived) {
        let arrived = Arrived::default();
        let hooks = Self { rollout, arrived: arrived.clone() };
        (TrainState::new(tiny_policy(1, 16, 0.5), hooks), arrived)
    }

    /// Numbers of the completions at their places in rows of one prompt token; a token says which completion it is of.
    fn placed(rows: &Rows, values: &[Vec<f32>]) -> Result<Tensor, Error> {
        let (count, width) = (rows.count(), rows.width());
        let at = |row: usize, place: usize| match rows.targets[row].get(place) {
            Some(true) => values[(rows.ids[row][place] - FIRST) as usize][place - 1],
            _ => 0.0,
        };
        let flat: Vec<f32> = (0..count * width).map(|at_all| at(at_all / width, at_all % width)).collect();
        Ok(Tensor::from_vec(flat, (count, width), &Device::Cpu)?)
    }
}

impl RunHooks for GivenRollout {
    fn max_new_tokens(&self) -> u32 {
        64
    }

    fn generate(
        &mut self,
        _: &Policy,
        _: &View,
        prompts: &Arc<Rows>,
        sampling: &Sampling,
        _: Option<&[Question]>,
    ) -> Result<Vec<Completion>, Error> {
        assert_eq!(prompts.count() * sampling.completions, self.rollout.lengths.len());
        let one = |row: usize| Completion {
            ids: vec![FIRST + row as u32; self.rollout.lengths[row]],
            logprobs: self.rollout.old[row][..self.rollout.lengths[row]].to_vec(),
            finished: self.rollout.finished[row],
            ..Completion::default()
        };
        Ok((0..self.rollout.lengths.len()).map(one).collect())
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        self.rollout.weights.iter().enumerate().map(|(at, weight)| (format!("verifier-{at}"), *weight)).collect()
    }

    fn judge(&mut self, _: &Policy, _: &[Question], _: &Completions, _: Option<Instant>) -> Result<Vec<f32>, Error> {
        Ok(self.rollout.rewards.clone())
    }

    fn score(&mut self, policy: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        let logprob = match request.view {
            View::Reference => &self.rollout.reference,
            _ if policy.generation() == 0 => &self.rollout.old,
            _ => &self.rollout.logprob,
        };
        let mut taps = Taps::from_iter([(Tap::Logprob, Self::placed(rows, logprob)?)]);
        if request.taps.set().contains(Tap::Entropy) {
            taps.insert(Tap::Entropy, Self::placed(rows, &self.rollout.entropy)?);
        }
        Ok(Scored::of_taps(request.view.clone(), rows.clone(), taps, policy.generation()))
    }

    fn backward(&mut self, _: &Policy, _: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let seeds = seeds.get(Tap::Logprob).map(Tensor::to_vec2::<f32>).transpose()?.unwrap_or_default();
        self.arrived.lock().unwrap().push(seeds.into_iter().map(|row| row[1..].to_vec()).collect());
        Ok(())
    }

    fn update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        policy.note_update();
        Ok(1.0)
    }
}
