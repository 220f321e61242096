//! Scores that a method holds, and the way of a gradient from its loss back to them.
//!
//! Taps scored for learning are leaves of the loss's graph. The gradient that arrives at a leaf
//! is the seed of the model's own backward pass, which the learner walks.
//!
//! A learner that gains by it gets scores that were asked for one after another in one pass: nothing is computed
//! before somebody looks at a tap or changes what the model is.

mod pass;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use candle_core::{Tensor, TensorId, Var};
use tunebox_compute::fused::TapSet;
use tunebox_compute::ops;
use tunebox_model::policy::{Seeds, Taps, View};
use tunebox_model::rows::Rows;

use crate::cause::Cause;
use crate::refusal::Refusal;
use crate::state::{Charge, Held, State};
pub(crate) use pass::Pass;
use pass::{Part, join, together};

/// How rows are to be scored. Those that are to be scored alike may go through the model together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) view: View,
    pub(crate) taps: TapSet,
    pub(crate) temperature: f32,
    /// Whether the taps are leaves of a gradient.
    pub(crate) learning: bool,
}

/// What came out of a pass for one score.
struct Made {
    taps: Taps,
    /// The pass, by number.
    pass: u64,
}

/// The taps of a score, with the bytes that they hold.
pub(crate) struct ScoreRecord {
    pub(crate) asked: Asked,
    pub(crate) rows: Arc<Rows>,
    /// None as long as nobody has looked.
    made: Option<Made>,
    /// The weights that it was scored with.
    pub(crate) generation: u64,
    /// Bytes of the taps.
    pub(crate) charge: Arc<Charge>,
    /// Whether the method still has the handle.
    pub(crate) held: bool,
}

impl ScoreRecord {
    /// A record whose handle the method is about to get.
    pub(crate) fn new(asked: Asked, rows: Arc<Rows>, generation: u64, charge: Arc<Charge>) -> Self {
        Self { asked, rows, made: None, generation, charge, held: true }
    }

    /// The shape of every tap.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows.count(), self.rows.width()]
    }

    /// Whether a loss may hang on its taps after the method has let go of it.
    pub(crate) fn may_be_learned_from(&self) -> bool {
        self.asked.learning && self.made.is_some()
    }

    fn taps(&self) -> Result<&Taps, Refusal> {
        self.made.as_ref().map(|made| &made.taps).ok_or_else(|| Refusal::argument("these scores are gone"))
    }

    /// The log-probabilities, ready to hand out.
    pub(crate) fn logprob(&self) -> Result<Held, Refusal> {
        Ok(self.hold(&self.taps()?.logprob))
    }

    /// Another tap by its name in WIT. `invalid-argument` when it was not asked for.
    pub(crate) fn tap(&self, name: &str) -> Result<Held, Refusal> {
        let taps = self.taps()?;
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
        if self.asked.view != View::Policy {
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
        let taps = self.made.as_ref().filter(|_| self.asked.learning).map(|made| &made.taps);
        let all = [
            (Leaf::Logprob, taps.map(|taps| &taps.logprob)),
            (Leaf::Entropy, taps.and_then(|taps| taps.entropy.as_ref())),
            (Leaf::MeanLogprob, taps.and_then(|taps| taps.mean_logprob.as_ref())),
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

/// Makes the differentiable taps of a score leaves of the coming loss.
fn learn(taps: &mut Taps) -> Result<(), Refusal> {
    taps.logprob = leaf(&taps.logprob)?;
    for tap in [&mut taps.entropy, &mut taps.mean_logprob] {
        if let Some(tensor) = tap.take() {
            *tap = Some(leaf(&tensor)?);
        }
    }
    Ok(())
}

fn leaf(tensor: &Tensor) -> Result<Tensor, Refusal> {
    Ok(Var::from_tensor(&tensor.detach())?.into_inner())
}

impl State {
    /// Makes the scores that nobody has looked at yet, those that were asked for alike in one pass. Comes before every
    /// look at a tap and every change of what a view shows.
    pub(crate) fn make_scores_asked_for(&mut self) -> Result<(), Refusal> {
        let waiting = |record: &&ScoreRecord| record.made.is_none();
        while let Some(asked) = self.scores.values().find(waiting).map(|record| record.asked.clone()) {
            let alike = self.scores.iter().filter(|(_, record)| record.made.is_none() && record.asked == asked);
            let mut parts: Vec<Part> = alike.map(|(number, record)| Part::new(*number, record.rows.clone())).collect();
            parts.truncate(together(&parts));
            let numbers: Vec<u64> = parts.iter().map(|part| part.score).collect();
            if let Err(refusal) = self.make(&asked, parts) {
                self.scores.retain(|number, _| !numbers.contains(number));
                return Err(refusal);
            }
            self.check_kept()?;
            self.meters.check_time()?;
        }
        Ok(())
    }

    fn make(&mut self, asked: &Asked, mut parts: Vec<Part>) -> Result<(), Refusal> {
        let rows = join(&mut parts)?;
        let scored = self.learner.score(&asked.view, &rows, asked.taps, asked.temperature, asked.learning)?;
        let mut pass = Pass::new(scored, parts);
        let number = self.next_number();
        for (score, mut taps) in pass.take_taps()? {
            if asked.learning {
                learn(&mut taps)?;
            }
            if let Some(record) = self.scores.get_mut(&score) {
                record.made = Some(Made { taps, pass: number });
            }
        }
        self.passes.insert(number, pass);
        Ok(())
    }

    /// Walks a loss back to its taps and hands each score's seeds to the learner, in the order
    /// in which the scores were made.
    pub(crate) fn walk_back(&mut self, loss: &Tensor) -> Result<(), Refusal> {
        let leaves: Vec<(u64, Leaf, Tensor)> = self
            .scores
            .iter()
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
        self.backward(seeds)
    }

    /// Walks the seeds of some scores back through the model, pass by pass, which uses up what the passes kept.
    pub(crate) fn backward(&mut self, seeds: BTreeMap<u64, Seeds>) -> Result<(), Refusal> {
        let mut passes: BTreeMap<u64, BTreeMap<u64, Seeds>> = BTreeMap::new();
        for (number, seeds) in seeds {
            let made = self.scores.get(&number).and_then(|record| record.made.as_ref());
            let made = made.ok_or_else(|| Refusal::argument("these scores are gone"))?;
            passes.entry(made.pass).or_default().insert(number, seeds);
        }
        passes.into_iter().try_for_each(|(pass, seeds)| self.backward_of(pass, &seeds))
    }

    /// A pass whose scores all have seeds is walked back as it is. Of another one, only the rows with seeds go through
    /// the model again: what the others keep would cost their whole way back.
    fn backward_of(&mut self, number: u64, seeds: &BTreeMap<u64, Seeds>) -> Result<(), Refusal> {
        let rows = seeds.keys().filter_map(|score| self.scores.get(score)).map(|record| record.rows.tokens());
        let multiply_adds = self.learner.multiply_adds(rows.sum::<usize>() as u64);
        let Some(pass) = self.passes.get_mut(&number) else {
            return Err(Refusal::argument("these scores are gone"));
        };
        if pass.is_covered_by(seeds) {
            // Back is twice the way there.
            self.meters.pass(multiply_adds.saturating_mul(2))?;
            let seeds = pass.all_seeds(seeds)?;
            return Ok(self.learner.backward(&mut pass.scored, &seeds)?);
        }
        self.meters.pass(multiply_adds.saturating_mul(3))?;
        let (mut scored, seeds) = pass.only(seeds)?;
        Ok(self.learner.backward(&mut scored, &seeds)?)
    }

    /// Bytes that the scores together keep for learning.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.passes.values().map(|pass| pass.scored.kept_bytes() as u64).sum()
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
        let rows = record.rows.clone();
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
        self.forget_passes();
    }

    /// Forgets the passes that no score came from any more.
    pub(crate) fn forget_passes(&mut self) {
        let needed: HashSet<u64> = self.scores.values().filter_map(|record| Some(record.made.as_ref()?.pass)).collect();
        self.passes.retain(|number, _| needed.contains(number));
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
