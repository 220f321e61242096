//! Implements `wit/learn.wit`: one function for each of the interface, in its order.

use std::collections::BTreeMap;

use candle_core::DType;
use tunebox_compute::fused::Tap;
use tunebox_compute::{Tensor, ops};
use tunebox_model::policy::Seeds;
use tunebox_model::policy::View;

use crate::bindings::learn::Host;
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::state::{Handle, HostContext, ScoresEntry, State};

impl Host for HostContext<'_> {
    /// Back-propagates a loss to the taps, captured activations and extra parameters that it depends on. Adds the
    /// gradients of extra parameters to theirs; takes those of taps and activations through the model and adds the
    /// result to the policy's gradient. Charges the work of the graph, and a backward pass for each forward pass that
    /// it goes back through.
    ///
    /// Errors: `invalid-argument` if the loss is not one finite `f32` element; if it depends on nothing that takes a
    /// gradient, on a tap without one, or on scores of an earlier step, of earlier weights, or that a gradient went
    /// through before; if the rows have a gradient since the last update and repeats are not allowed; or if a gradient
    /// is not finite.
    fn backward(&mut self, loss: Handle) -> Result<()> {
        self.enter("learn.backward")?;
        let loss = self.tensor_node(&loss)?;
        let (shape, dtype) = (loss.tensor.dims(), loss.tensor.dtype());
        let one = loss.tensor.elem_count() == 1;
        ensure(one, || Refusal::argument(format!("a loss is one element, this is {shape:?}")))?;
        let float = dtype == DType::F32;
        ensure(float, || Refusal::argument(format!("a loss is `f32`, this is `{}`", dtype.as_str())))?;
        let value = ops::item(&loss.tensor)?;
        ensure(value.is_finite(), || {
            Refusal::argument(format!("the loss is `{value}`, not a finite number; `log` its parts"))
        })?;
        self.backward_from_loss(&loss)
    }

    /// Adds the gradient of Σ `logprob` · log-probability + Σ `entropy` · entropy over the target tokens of `scores` to
    /// the policy's; both coefficients are `[rows, width]`, `f32`. Runs the pass of the scores first if it was
    /// deferred.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`; `invalid-argument` for a coefficient at a target token that is not
    /// finite, for scores of another view than the policy, if the weights have changed since the scores were made, or
    /// if a gradient went through the scores before; the error of the scores' pass if it failed.
    fn backward_from(&mut self, scores: Handle<ScoresEntry>, logprob: Handle, entropy: Option<Handle>) -> Result<()> {
        self.enter("learn.backward-from")?;
        self.run_and_read_record(&scores)?.check_scored()?;
        let logprob = self.read_coefficients(&scores, &logprob)?;
        let entropy = entropy.map(|entropy| self.read_coefficients(&scores, &entropy)).transpose()?;
        let ScoresEntry(number) = *self.table.get(&scores)?;
        self.score_record(&scores)?.check_current(self.train_state().policy.generation())?;
        let seeds = [(Tap::Logprob, Some(logprob)), (Tap::Entropy, entropy)];
        let seeds: Seeds = seeds.into_iter().filter_map(|(tap, seed)| Some((tap, seed?))).collect();
        self.backward_scores(BTreeMap::from([(number, seeds)]), &BTreeMap::new())
    }

    /// Allows several gradients through the same rows for one update, for the rest of the session.
    fn allow_repeats(&mut self) -> wasmtime::Result<()> {
        self.enter("learn.allow-repeats")?;
        self.learned_rows.allows_repeats = true;
        Ok(())
    }

    /// Updates the weights with the accumulated gradient, clears the gradient, and returns its norm before clipping.
    /// Counts one pass, and first runs the scoring passes that were deferred.
    ///
    /// Errors: `unsupported` if the method updates the parameters itself; `invalid-argument` while a perturbation is
    /// active, if the accumulation window does not end with this batch, or if no gradient has accumulated since the
    /// last update; the error of the run's `update` hook.
    fn update(&mut self) -> Result<f32> {
        self.enter("learn.update")?;
        let own = "the method updates the parameters itself, as its manifest says; `optimizer.done` ends an update";
        ensure(!self.updates_itself, || Refusal::new(ErrorCode::Unsupported, own))?;
        self.check_unperturbed()?;
        self.check_window_ends()?;
        let nothing = || Refusal::argument("no gradient has accumulated since the last update");
        ensure(self.train_state().has_gradient(), nothing)?;
        self.count_pass(&View::Policy, 1)?;
        self.run_pending_scores()?;
        Ok(self.train_state().update()?)
    }

    /// Counts the call and returns the learning rate of the next update.
    fn rate(&mut self) -> wasmtime::Result<f64> {
        self.enter("learn.rate")?;
        Ok(self.train_state().hooks.learning_rate())
    }
}

impl State {
    /// Checks `coefficients` for a tap of `scores`: `[rows, width]`, `f32`. Returns them without a graph and with 0 off
    /// the target tokens.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`, `invalid-argument` for a number at a target token that is not
    /// finite.
    fn read_coefficients(&mut self, scores: &Handle<ScoresEntry>, coefficients: &Handle) -> Result<Tensor> {
        let ScoresEntry(number) = *self.table.get(scores)?;
        let coefficients = self.tensor_node(coefficients)?.tensor.detach();
        let wanted = self.score_record(scores)?.shape();
        let shape = || format!("coefficients are {wanted:?} like the scores, these are {:?}", coefficients.dims());
        ensure(coefficients.dims() == wanted, || Refusal::new(ErrorCode::ShapeMismatch, shape()))?;
        let dtype = || format!("coefficients are `f32`, these are `{}`", coefficients.dtype().as_str());
        ensure(coefficients.dtype() == DType::F32, || Refusal::new(ErrorCode::DtypeMismatch, dtype()))?;
        self.mask_to_targets(number, &coefficients)
    }
}
