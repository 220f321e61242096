//! Scores that a method holds, and the way of a gradient from its loss back to them.
//!
//! Taps scored for learning are leaves of the loss's graph. The gradient that arrives at a leaf
//! is the seed of the model's own backward pass, which the learner walks.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use candle_core::{Tensor, TensorId, Var};
use tunebox_compute::ops;
use tunebox_model::policy::{Scored, Seeds, View};

use crate::cause::Cause;
use crate::refusal::Refusal;
use crate::state::{Charge, Held, State};

/// The taps of a score, with the bytes that they hold.
pub(crate) struct ScoreRecord {
    /// What the learner gave, and what its backward pass needs.
    pub(crate) scored: Scored,
    /// Whether its taps are leaves of a gradient.
    pub(crate) learning: bool,
    /// The weights that it was scored with.
    pub(crate) generation: u64,
    /// Bytes of the taps.
    pub(crate) charge: Arc<Charge>,
    /// Whether the method still has the handle.
    pub(crate) held: bool,
}

impl ScoreRecord {
    /// Makes the differentiable taps of a score leaves of the coming loss.
    pub(crate) fn learn(scored: &mut Scored) -> Result<(), Refusal> {
        scored.taps.logprob = leaf(&scored.taps.logprob)?;
        for tap in [&mut scored.taps.entropy, &mut scored.taps.mean_logprob] {
            if let Some(tensor) = tap.take() {
                *tap = Some(leaf(&tensor)?);
            }
        }
        Ok(())
    }

    /// A record whose handle the method is about to get.
    pub(crate) fn new(scored: Scored, learning: bool, generation: u64, charge: Arc<Charge>) -> Self {
        Self { scored, learning, generation, charge, held: true }
    }

    /// The log-probabilities, ready to hand out.
    pub(crate) fn logprob(&self) -> Held {
        self.hold(&self.scored.taps.logprob)
    }

    /// Another tap by its name in WIT. `invalid-argument` when it was not asked for.
    pub(crate) fn tap(&self, name: &str) -> Result<Held, Refusal> {
        let taps = &self.scored.taps;
        let tap = match name {
            "entropy" => &taps.entropy,
            "log-sum-square" => &taps.log_sum_square,
            "mean-logit" => &taps.mean_logit,
            "mean-logprob" => &taps.mean_logprob,
            _ => &taps.top_one,
        };
        let missing = || Refusal::argument(format!("the tap `{name}` was not asked for when the rows were scored"));
        tap.as_ref().map(|tensor| self.hold(tensor)).ok_or_else(missing)
    }

    fn hold(&self, tensor: &Tensor) -> Held {
        Held { tensor: tensor.clone(), charge: self.charge.clone(), depth: 0 }
    }

    /// Whether the record is still about the weights as they are, seen through the policy.
    pub(crate) fn check_current(&self, generation: u64) -> Result<(), Refusal> {
        if !matches!(self.scored.view, View::Policy) {
            return Err(Refusal::argument("only scores of the policy take a gradient, these are of another view"));
        }
        if self.generation != generation {
            return Err(Refusal::argument(
                "the weights were updated after these scores were made; score the rows again",
            ));
        }
        Ok(())
    }

    /// The taps that a loss may hang on.
    fn leaves(&self) -> impl Iterator<Item = (Leaf, &Tensor)> {
        let taps = &self.scored.taps;
        let all = [
            (Leaf::Logprob, Some(&taps.logprob)),
            (Leaf::Entropy, taps.entropy.as_ref()),
            (Leaf::MeanLogprob, taps.mean_logprob.as_ref()),
        ];
        all.into_iter().filter_map(|(leaf, tensor)| tensor.map(|tensor| (leaf, tensor)))
    }
}

/// A tap that a gradient can reach.
#[derive(Clone, Copy, Debug)]
enum Leaf {
    Logprob,
    Entropy,
    MeanLogprob,
}

impl Leaf {
    /// The place of this tap's gradient.
    fn of(self, seeds: &mut Seeds) -> &mut Option<Tensor> {
        match self {
            Self::Logprob => &mut seeds.logprob,
            Self::Entropy => &mut seeds.entropy,
            Self::MeanLogprob => &mut seeds.mean_logprob,
        }
    }
}

fn leaf(tensor: &Tensor) -> Result<Tensor, Refusal> {
    Ok(Var::from_tensor(&tensor.detach())?.into_inner())
}

impl State {
    /// Walks a loss back to its taps and hands each score's seeds to the learner, in the order
    /// in which the scores were made.
    pub(crate) fn walk_back(&mut self, loss: &Tensor) -> Result<(), Refusal> {
        let learning = self.scores.iter().filter(|(_, record)| record.learning);
        let leaves: Vec<(u64, Leaf, Tensor)> = learning
            .flat_map(|(number, record)| record.leaves().map(|(leaf, tensor)| (*number, leaf, tensor.clone())))
            .collect();
        let tensors: Vec<&Tensor> = leaves.iter().map(|(.., tensor)| tensor).collect();
        check_leaves(loss, &tensors)?;
        let gradients = ops::gradients(&mut self.purse(), loss, &tensors)?;
        let mut seeds: BTreeMap<u64, Seeds> = BTreeMap::new();
        for ((number, leaf, _), gradient) in leaves.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                *leaf.of(seeds.entry(*number).or_default()) = Some(self.on_targets(*number, &gradient)?);
            }
        }
        let generation = self.learner.generation();
        for record in seeds.keys().filter_map(|number| self.scores.get(number)) {
            record.check_current(generation)?;
        }
        for (number, seeds) in &seeds {
            self.backward(*number, seeds)?;
        }
        Ok(())
    }

    /// Walks the seeds of a score back through the model, which uses up what the score kept.
    pub(crate) fn backward(&mut self, number: u64, seeds: &Seeds) -> Result<(), Refusal> {
        let tokens = self.scores.get(&number).map_or(0, |record| record.scored.rows.tokens());
        // Back is twice the way there.
        self.meters.pass(self.learner.multiply_adds(tokens as u64).saturating_mul(2))?;
        match self.scores.get_mut(&number) {
            Some(record) => Ok(self.learner.backward(&mut record.scored, seeds)?),
            None => Err(Refusal::argument("these scores are gone")),
        }
    }

    /// Bytes that the scores together keep for learning.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.scores.values().map(|record| record.scored.kept_bytes() as u64).sum()
    }

    /// Ends the method when its scores together keep more than they may.
    pub(crate) fn check_kept(&self) -> Result<(), Cause> {
        let held = self.kept_bytes();
        let limit = self.limits.activation_bytes;
        if held > limit { Err(Cause::Activations { held, limit }) } else { Ok(()) }
    }

    /// Seeds of a score: exactly 0 where the mask is 0, whatever stood there, and finite elsewhere.
    pub(crate) fn on_targets(&mut self, number: u64, given: &Tensor) -> Result<Tensor, Refusal> {
        let Some(record) = self.scores.get(&number) else { return Err(Refusal::argument("these scores are gone")) };
        let rows = record.scored.rows.clone();
        let elements = given.elem_count() as u64;
        self.work(elements)?;
        let _scratch = self.reserve(3 * 4 * elements)?;
        let mask = rows.mask_tensor(&self.device())?;
        let chosen = mask.ne(0f32)?.where_cond(given, &mask.zeros_like()?)?;
        // A sum over numbers that are not all finite is not finite; times 0 nothing overflows.
        if chosen.affine(0.0, 0.0)?.sum_all()?.to_scalar::<f32>()? == 0.0 {
            return Ok(chosen);
        }
        Err(Refusal::argument("the gradient at a target token is not a finite number"))
    }

    /// Forgets the scores of a step that the method has no handle of any more.
    pub(crate) fn forget_scores(&mut self) {
        self.scores.retain(|_, record| record.held);
    }
}

/// Whether a loss hangs on taps, and on none that the session has forgotten.
fn check_leaves(loss: &Tensor, known: &[&Tensor]) -> Result<(), Refusal> {
    let known: HashSet<TensorId> = known.iter().map(|tensor| tensor.id()).collect();
    let mut leaves = loss.sorted_nodes().into_iter().filter(|node| node.is_variable()).peekable();
    if leaves.peek().is_none() {
        return Err(Refusal::argument("the loss depends on no tap of `score-for-learning`"));
    }
    if leaves.any(|leaf| !known.contains(&leaf.id())) {
        return Err(Refusal::argument("the loss depends on scores of an earlier step; score the rows again"));
    }
    Ok(())
}
