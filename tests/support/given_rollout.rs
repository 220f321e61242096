//! A learner that writes, scores and judges what it was given: completions, ℓ, ℓ_old, ℓ_ref, entropies, rewards.

use std::sync::{Arc, Mutex};

use tunebox_compute::fused::{Tap, TapSet, Taps};
use tunebox_compute::{Device, Tensor};
use tunebox_model::error::Error;
use tunebox_model::generate::Completion;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Editing, Learner, Question, Sampler, Sampling, Written};

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

/// The learner.
pub(crate) struct GivenRollout {
    rollout: Rollout,
    arrived: Arrived,
    updates: u64,
    accumulated: bool,
}

impl GivenRollout {
    /// A learner and what arrives at it.
    pub(crate) fn with_arrivals(rollout: Rollout) -> (Box<dyn Learner>, Arrived) {
        let arrived = Arrived::default();
        let learner = Self { rollout, arrived: arrived.clone(), updates: 0, accumulated: false };
        (Box::new(learner), arrived)
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

impl Editing for GivenRollout {}

impl Sampling for GivenRollout {
    fn new_tokens(&self) -> u32 {
        64
    }

    fn generate(&mut self, _: &View, prompts: &Arc<Rows>, sampler: &Sampler) -> Result<Vec<Completion>, Error> {
        assert_eq!(prompts.count() * sampler.completions as usize, self.rollout.lengths.len());
        let one = |row: usize| Completion {
            ids: vec![FIRST + row as u32; self.rollout.lengths[row]],
            logprobs: self.rollout.old[row][..self.rollout.lengths[row]].to_vec(),
            finished: self.rollout.finished[row],
        };
        Ok((0..self.rollout.lengths.len()).map(one).collect())
    }

    fn verifiers(&self) -> Vec<(String, f32)> {
        self.rollout.weights.iter().enumerate().map(|(at, weight)| (format!("verifier-{at}"), *weight)).collect()
    }

    fn judge(&mut self, _: &[Question], _: &Written) -> Result<Vec<f32>, Error> {
        Ok(self.rollout.rewards.clone())
    }
}

impl Learner for GivenRollout {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, taps: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        let logprob = match view {
            View::Reference => &self.rollout.reference,
            _ if self.updates == 0 => &self.rollout.old,
            _ => &self.rollout.logprob,
        };
        let mut found = Taps::from_iter([(Tap::Logprob, Self::placed(rows, logprob)?)]);
        if taps.contains(Tap::Entropy) {
            found.insert(Tap::Entropy, Self::placed(rows, &self.rollout.entropy)?);
        }
        Ok(Scored::of_taps(view.clone(), rows.clone(), found, self.updates))
    }

    fn backward(&mut self, _: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let seeds = seeds.get(Tap::Logprob).map(Tensor::to_vec2::<f32>).transpose()?.unwrap_or_default();
        self.arrived.lock().unwrap().push(seeds.into_iter().map(|row| row[1..].to_vec()).collect());
        self.accumulated = true;
        Ok(())
    }

    fn has_reference(&self) -> bool {
        true
    }

    fn update(&mut self) -> Result<f32, Error> {
        self.updates += 1;
        self.accumulated = false;
        Ok(1.0)
    }

    fn generation(&self) -> u64 {
        self.updates
    }

    fn has_accumulated(&self) -> bool {
        self.accumulated
    }
}
