//! Back-propagates the loss of a method: through its graph to the leaves, then from the leaves through the model.

use std::collections::{BTreeMap, HashSet};

use candle_core::{Tensor, TensorId};
use tunebox_compute::fused::Tap;
use tunebox_compute::ops::{self, Node};
use tunebox_compute::parameters::all_finite;
use tunebox_model::policy::Seeds;

use crate::cause::Cause;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::State;

/// The work charged for visiting a node of a graph, or one of its operands.
const NODE_WORK: u64 = 16;

/// What a leaf of the graph of a loss stands for.
enum Leaf {
    /// A tap of the scores with this number.
    Tap(u64, Tap),
    /// The captured activations with this number.
    Captured(u64),
    /// The present value of the extra parameter of this name.
    Extra(String),
}

/// Checks the leaves that a loss depends on (`ends`): there is at least one, all are among `known`, the leaves of this
/// step, and those that are taps are [differentiable](Tap::is_differentiable). Errors: `invalid-argument` otherwise.
fn check_leaves(ends: &HashSet<TensorId>, known: &[(Leaf, Tensor)]) -> Result<()> {
    let none = "the loss depends on no scores or activations for learning, so no gradient leads from it to the model";
    ensure(!ends.is_empty(), || Refusal::argument(none))?;
    let reached = known.iter().filter(|(_, tensor)| ends.contains(&tensor.id()));
    let earlier = "the loss depends on scores or activations of an earlier step, or on an extra parameter before its last \
                   change; score the rows again, and read the value again";
    ensure(reached.clone().count() == ends.len(), || Refusal::argument(earlier))?;
    let constant = reached.filter_map(|(leaf, _)| match leaf {
        Leaf::Tap(_, tap) => (!tap.is_differentiable()).then_some(*tap),
        Leaf::Captured(_) | Leaf::Extra(_) => None,
    });
    let lost = |tap: Tap| format!("no gradient goes through the tap `{}`; `detach` it where that is meant", tap.name());
    constant.into_iter().next().map_or(Ok(()), |tap| Err(Refusal::argument(lost(tap))))
}

impl State {
    /// Back-propagates a loss to its leaves: taps of scores for learning, captured activations and extra parameters.
    /// Takes the gradients of taps and activations through the model and adds the result to the policy's gradient;
    /// then adds those of extra parameters to theirs.
    ///
    /// Errors: `invalid-argument` if the loss depends on no leaf, on leaves of an earlier step or of earlier weights,
    /// or on a tap without a gradient; if a gradient went through the same scores, activations or rows before; or if a
    /// gradient is not finite. No gradient is added then.
    pub(crate) fn backward_from_loss(&mut self, loss: &Node) -> Result<()> {
        let order = loss.order();
        let ends = self.charge_gradient(&order)?;
        let leaves = self.leaves();
        check_leaves(&ends, &leaves)?;
        let tensors: Vec<&Tensor> = leaves.iter().map(|(_, tensor)| tensor).collect();
        let gradients = ops::gradients(&mut self.operation_budget(), &order, &tensors);
        self.meters.check_time()?;
        let gradients = gradients?;
        let numbers: usize = gradients.iter().flatten().map(Tensor::elem_count).sum();
        let _gradients = self.reserve(4 * numbers as u64)?;
        let (mut scores, mut captures, mut extras) = (BTreeMap::<u64, Seeds>::new(), BTreeMap::new(), Vec::new());
        for ((leaf, _), gradient) in leaves.iter().zip(gradients) {
            match (leaf, gradient) {
                (_, None) => {}
                (Leaf::Tap(number, tap), Some(gradient)) => {
                    let gradient = self.mask_to_targets(*number, &gradient)?;
                    scores.entry(*number).or_default().insert(*tap, gradient);
                }
                (Leaf::Captured(number), Some(gradient)) => {
                    captures.insert(*number, self.mask_to_captured(*number, &gradient)?);
                }
                (Leaf::Extra(name), Some(gradient)) => extras.push((name.as_str(), gradient)),
            }
        }
        let generation = self.train_state().policy.generation();
        for record in scores.keys().filter_map(|number| self.scores.get(number)) {
            record.check_current(generation)?;
        }
        for record in captures.keys().filter_map(|number| self.captures.get(number)) {
            record.check_current(generation)?;
        }
        self.check_extra_gradients(&extras)?;
        self.backward_scores(scores, &captures)?;
        for (name, gradient) in &extras {
            self.train_state().method_parameters.add_gradient(name, gradient)?;
        }
        Ok(())
    }

    /// Returns the leaves that the graph of a loss may end at, with what each stands for: the taps of scores for
    /// learning that still exist, captured activations, and the present values of extra parameters.
    fn leaves(&self) -> Vec<(Leaf, Tensor)> {
        let taps = self.scores.iter().flat_map(|(number, record)| {
            record.leaves().map(|(tap, tensor)| (Leaf::Tap(*number, tap), tensor.clone()))
        });
        let captured = self.captures.iter().map(|(number, record)| (Leaf::Captured(*number), record.leaf.clone()));
        let train_state = self.train_state();
        let extras = train_state.method_parameters.leaves();
        let extras = extras.map(|(name, leaf)| (Leaf::Extra(name.clone()), leaf.clone()));
        taps.chain(captured).chain(extras).collect()
    }

    /// Checks gradients of extra parameters, given by name, before any gradient is added. Charges the work. Errors:
    /// `invalid-argument` for one that is not finite.
    fn check_extra_gradients(&mut self, gradients: &[(&str, Tensor)]) -> Result<()> {
        for (name, gradient) in gradients {
            self.meters.charge_units(gradient.elem_count() as u64)?;
            let finite = all_finite(&gradient.contiguous()?)?;
            ensure(finite, || Refusal::argument(format!("the gradient of `{name}` has a number that is not finite")))?;
        }
        Ok(())
    }

    /// Charges the work of a gradient through the nodes in `order` before any of them is walked, and returns the leaves
    /// that the gradient ends at. What is charged stays charged if the gradient is refused afterwards.
    fn charge_gradient(&mut self, order: &[&Node]) -> Result<HashSet<TensorId>, Cause> {
        let mut leaves = HashSet::new();
        for node in order {
            if node.is_leaf() {
                leaves.insert(node.tensor.id());
            }
            let work = NODE_WORK * (1 + node.operand_count() as u64);
            self.meters.charge_work(node.backward.work.saturating_add(work))?;
        }
        Ok(leaves)
    }
}
