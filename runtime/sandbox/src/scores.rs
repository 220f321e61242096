//! Runs the scoring passes that a method requests, and back-propagates its losses through them.
//!
//! Taps scored for learning, and activations captured for learning, are leaves of the loss's graph. The gradient that
//! arrives at a leaf is the seed of the model's own backward pass, which the train state runs.
//!
//! Where a pass can share common prefixes of rows, scoring is deferred, and scores that were requested one after
//! another run in one pass: it runs when a tap is read or the model changes.

mod captured;
mod learned;
mod loss;
mod pass;
mod record;

use std::collections::{BTreeMap, HashSet};

use candle_core::Tensor;
use tunebox_compute::budget::Reservation;
use tunebox_compute::memory::ProcessMemory;
use tunebox_model::policy::{PassMemory, Seeds, TapRequest, View};
use tunebox_model::rows::Rows;

use crate::cause::Cause;
use crate::refusal::{Refusal, Result, ensure};
use crate::run_hooks::ScoreRequest;
use crate::state::{DEVICE, State, TENSOR_BYTES};
use crate::train_state::lock;
pub(crate) use captured::CaptureRecord;
pub(crate) use learned::LearnedRows;
pub(crate) use pass::Pass;
use pass::{Part, count_joinable, join_rows};
pub(crate) use record::{ScoreRecord, missing_scores_error};

/// Activations of at most this many bytes are not compared with the free memory.
const UNCHECKED_BYTES: u64 = 64 << 20;

/// The work charged for a logit of a divergence: it is read, and its terms and their gradient are computed, for both
/// views.
const LOGIT_WORK: u64 = 8;

/// Returns the bytes that the tensors which `blocks` blocks save for a backward pass take beside their numbers:
/// [`TENSOR_BYTES`] for each of about twenty tensors a block.
pub(crate) fn saved_block_bytes(blocks: usize) -> u64 {
    20 * TENSOR_BYTES * blocks as u64
}

impl State {
    /// Runs the deferred passes of all scores; scores with equal requests share a pass, as many as [`count_joinable`]
    /// allows. Does nothing if none is deferred. Called before a tap is read and before weights, patches or snapshots
    /// change. A score whose pass fails keeps the error, and reading its taps returns it. Errors: only those that end
    /// the method.
    pub(crate) fn run_pending_scores(&mut self) -> Result<()> {
        while let Some(record) = self.scores.values().find(|record| record.is_waiting()) {
            let request = record.request.clone();
            let alike = self.scores.iter().filter(|(_, record)| record.is_waiting() && record.request == request);
            let mut parts: Vec<Part> = alike.map(|(number, record)| Part::new(*number, record.rows.clone())).collect();
            parts.truncate(count_joinable(&parts));
            self.score_or_split(&request, parts)?;
        }
        Ok(())
    }

    /// Runs one pass for these scores. If the model refuses it, stores the error in the score if there is only one;
    /// else runs and charges one pass for each score alone. Errors: only those that end the method.
    fn score_or_split(&mut self, request: &ScoreRequest, parts: Vec<Part>) -> Result<()> {
        match self.score_joined(request, parts.clone()) {
            Err(Refusal::Error(error)) => {
                self.meters.check_time()?;
                if let [part] = parts.as_slice() {
                    if let Some(record) = self.scores.get_mut(&part.score) {
                        record.set_error(error);
                    }
                    return Ok(());
                }
                parts.into_iter().try_for_each(|part| {
                    self.count_pass(&request.view, part.rows.tokens())?;
                    self.charge_divergence(&request.view, &request.taps, &part.rows)?;
                    self.score_or_split(request, vec![part])
                })
            }
            made_or_ended => made_or_ended,
        }
    }

    /// Runs one forward pass for the joined rows of these scores, stores each score's taps, and keeps the pass for the
    /// backward pass. Checks the memory before the pass, and the saved bytes and the time after it; past a limit ends
    /// the method. Does not charge the pass.
    fn score_joined(&mut self, request: &ScoreRequest, mut parts: Vec<Part>) -> Result<()> {
        let rows = join_rows(&mut parts)?;
        self.check_pass_memory(&request.view, &rows, request.learning)?;
        if let Some(to) = request.taps.divergence() {
            let needed = self.train_state().policy.divergence_memory(&to.view, &rows);
            self.check_memory(self.kept_bytes().saturating_add(needed))?;
        }
        let scored = self.train_state().score(&rows, request)?;
        let mut pass = Pass::new(scored, parts);
        let number = self.next_number();
        for (score, taps) in pass.take_taps()? {
            if let Some(record) = self.scores.get_mut(&score) {
                record.set_taps(taps, number)?;
            }
        }
        self.passes.insert(number, pass);
        self.check_activations(self.kept_bytes())?;
        Ok(self.meters.check_time()?)
    }

    /// Runs the backward passes of these scores and captured activations, given, by number, the seeds (gradients
    /// `[rows, width]` of the taps) of scores and the gradient of activations. Scores that came from one forward pass
    /// share a backward pass. Consumes the saved activations. Marks scores, activations and rows as used before the
    /// first pass runs, so they stay marked if a pass fails. Errors: `invalid-argument` for scores and activations that
    /// a gradient went through before, and for rows that have one since the last update.
    pub(crate) fn backward_scores(
        &mut self,
        seeds: BTreeMap<u64, Seeds>,
        captures: &BTreeMap<u64, (Tensor, Reservation)>,
    ) -> Result<()> {
        for record in seeds.keys().filter_map(|number| self.scores.get(number)) {
            record.check_unlearned()?;
        }
        for record in captures.keys().filter_map(|number| self.captures.get(number)) {
            record.check_unlearned()?;
        }
        let begins = !self.train_state().has_gradient();
        let scored = seeds.keys().filter_map(|number| self.scores.get(number)).map(|record| &record.rows);
        let captured = captures.keys().filter_map(|number| self.captures.get(number)).map(CaptureRecord::rows);
        self.learned_rows.add(scored.chain(captured), begins)?;
        for number in seeds.keys() {
            self.scores.get_mut(number).map(ScoreRecord::mark_learned);
        }
        for number in captures.keys() {
            self.captures.get_mut(number).map(CaptureRecord::mark_learned);
        }
        let mut passes: BTreeMap<u64, BTreeMap<u64, Seeds>> = BTreeMap::new();
        for (number, seeds) in seeds {
            let pass = self.scores.get(&number).and_then(ScoreRecord::pass).ok_or_else(missing_scores_error)?;
            passes.entry(pass).or_default().insert(number, seeds);
        }
        passes.into_iter().try_for_each(|(pass, seeds)| self.run_backward(pass, &seeds))?;
        captures.iter().try_for_each(|(number, (seed, _))| self.run_captured_backward(*number, seed))
    }

    /// Runs the backward pass of the forward pass `number` with the seeds of its scores, and charges it as two forward
    /// passes. If some of its scores have no seeds, only the rows with seeds go through the model again, forward and
    /// backward, which is charged as three forward passes, and their memory is checked first. Errors:
    /// `invalid-argument` if the pass is gone; a limit of work, memory or time ends the method.
    fn run_backward(&mut self, number: u64, seeds: &BTreeMap<u64, Seeds>) -> Result<()> {
        let rows = seeds.keys().filter_map(|score| self.scores.get(score)).map(|record| record.rows.tokens());
        let multiply_adds = self.multiply_adds(&View::Policy, rows.sum::<usize>() as u64);
        let pass = self.passes.get_mut(&number).ok_or_else(missing_scores_error)?;
        if pass.is_covered_by(seeds) {
            // A backward pass costs as much as two forward passes.
            self.meters.count_pass(multiply_adds.saturating_mul(2))?;
            let seeds = pass.all_seeds(seeds)?;
            return Ok(lock(&self.train_state).backward(&mut pass.scored, &seeds)?);
        }
        self.meters.count_pass(multiply_adds.saturating_mul(3))?;
        let (mut scored, seeds) = pass.restrict_to(seeds)?;
        self.check_pass_memory(&View::Policy, &scored.rows, true)?;
        Ok(self.train_state().backward(&mut scored, &seeds)?)
    }

    /// Returns the bytes that the model keeps for the method: activations that all passes together save for a backward
    /// pass, snapshots, edited matrices, and what it keeps of parameters.
    fn kept_bytes(&self) -> u64 {
        let passes = self.passes.values().map(|pass| pass.scored.saved_bytes());
        let captures = self.captures.values().map(|record| record.captured.saved_bytes());
        let saved = passes.chain(captures).map(|bytes| bytes as u64).sum::<u64>();
        let train_state = self.train_state();
        saved.saturating_add(train_state.policy.copied_bytes()).saturating_add(train_state.method_parameters.bytes())
    }

    /// Checks that the model may keep `more` further bytes for the method. Otherwise returns the cause that ends it:
    /// [`Cause::Activations`] past `activation_bytes`, or that of [`check_memory`](Self::check_memory).
    pub(crate) fn check_kept(&self, more: u64) -> Result<(), Cause> {
        let held = self.kept_bytes().saturating_add(more);
        self.check_activations(held)?;
        self.check_memory(held)
    }

    /// Charges what the divergence in `taps` costs beside the pass of `view`: a pass of the other view, and work for
    /// the logits of both at each target. Does nothing if `taps` has no divergence.
    pub(crate) fn charge_divergence(&mut self, view: &View, taps: &TapRequest, rows: &Rows) -> Result<(), Cause> {
        let Some(to) = taps.divergence() else { return Ok(()) };
        let words = self.configuration_of(view).vocabulary.max(self.configuration_of(&to.view).vocabulary) as u64;
        self.meters.charge_units((LOGIT_WORK * rows.targets() as u64).saturating_mul(words))?;
        self.count_pass(&to.view, rows.tokens())
    }

    /// Checks the memory of a pass of a view over these rows before it runs; `learning` says whether a backward pass
    /// follows. Returns [`Cause::Activations`], which ends the method, if the saved activations would exceed
    /// `activation_bytes`, or the error of [`check_memory`](Self::check_memory) if the pass needs more memory than is
    /// left.
    pub(crate) fn check_pass_memory(&self, view: &View, rows: &Rows, learning: bool) -> Result<(), Cause> {
        let needed = self.train_state().policy.score_memory(view, rows, learning);
        self.check_needed(needed)
    }

    /// Checks the memory of capturing activations up to block `last` before the pass runs, as
    /// [`check_pass_memory`](Self::check_pass_memory) does for a pass.
    pub(crate) fn check_capture_memory(
        &self,
        view: &View,
        rows: &Rows,
        last: usize,
        learning: bool,
    ) -> Result<(), Cause> {
        let needed = self.train_state().policy.capture_memory(view, rows, last, learning);
        self.check_needed(needed)
    }

    /// Checks that the bytes that a pass saves stay within `activation_bytes`, and that these and its temporary
    /// tensors fit into the memory that is left. Returns the cause that ends the method otherwise.
    fn check_needed(&self, needed: PassMemory) -> Result<(), Cause> {
        let held = self.kept_bytes().saturating_add(needed.kept);
        self.check_activations(held)?;
        self.check_memory(held.saturating_add(needed.scratch).saturating_add(needed.head))
    }

    /// Checks that `activations` bytes and the method's tensors fit into fifteen sixteenths of the memory that the
    /// machine and the limits of this process leave for the method; otherwise returns [`Cause::Memory`], which ends the
    /// method. Without this check, an allocation that fails would end the process without a message. Does nothing if
    /// `activations` is at most [`UNCHECKED_BYTES`], where the system does not report the memory, or where the model is
    /// not on the CPU: there the device reports that its memory is full.
    fn check_memory(&self, activations: u64) -> Result<(), Cause> {
        let Some(before) = self.held_before.filter(|_| activations > UNCHECKED_BYTES) else { return Ok(()) };
        let Some(now) = ProcessMemory::read() else { return Ok(()) };
        // What the process has for the method: all that it may hold, less what it held before. Freed memory that the
        // allocator keeps is part of it.
        let room = now.held.saturating_add(now.free).saturating_sub(before) / 16 * 15;
        let wanted = activations.saturating_add(self.budget.held());
        ensure(wanted <= room, || Cause::Memory { wanted, room })
    }

    /// Returns [`Cause::Activations`] if `held`, the bytes that the model keeps for the method, exceed
    /// `activation_bytes`.
    fn check_activations(&self, held: u64) -> Result<(), Cause> {
        let limit = self.limits.activation_bytes;
        ensure(held <= limit, || Cause::Activations { held, limit })
    }

    /// Returns `gradient`, a gradient `[rows, width]` of score `number`, set to exactly 0 off the target tokens.
    /// Charges its work and reserves scratch memory meanwhile.
    ///
    /// Errors: `invalid-argument` for a number at a target token that is not finite, or if the score was freed.
    pub(crate) fn mask_to_targets(&mut self, number: u64, gradient: &Tensor) -> Result<Tensor> {
        let rows = self.scores.get(&number).ok_or_else(missing_scores_error)?.rows.clone();
        let elements = gradient.elem_count() as u64;
        self.meters.charge_units(elements)?;
        let _scratch = self.reserve(3 * 4 * elements)?;
        let mask = rows.mask_tensor(&DEVICE)?;
        let chosen = mask.ne(0f32)?.where_cond(gradient, &mask.zeros_like()?)?;
        // A sum over numbers that are not all finite is not finite; times 0 nothing overflows.
        if chosen.affine(0.0, 0.0)?.sum_all()?.to_scalar::<f32>()? == 0.0 {
            return Ok(chosen);
        }
        Err(Refusal::argument("the gradient at a target token is not a finite number"))
    }

    /// Drops the scores whose handle the method has dropped, then the passes without scores, and all captured
    /// activations.
    pub(crate) fn release_scores(&mut self) {
        self.captures.clear();
        self.scores.retain(|_, record| record.has_handle);
        let needed: HashSet<u64> = self.scores.values().filter_map(ScoreRecord::pass).collect();
        self.passes.retain(|number, _| needed.contains(number));
    }

    /// Drops one score, and its pass if no other score came from it. Does nothing if there is no such score.
    pub(crate) fn release_score(&mut self, number: u64) {
        let Some(pass) = self.scores.remove(&number).and_then(|record| record.pass()) else { return };
        let is_needed = |pass: &Pass| pass.scores().any(|score| self.scores.contains_key(&score));
        if !self.passes.get(&pass).is_some_and(is_needed) {
            self.passes.remove(&pass);
        }
    }
}

#[cfg(test)]
mod tests;
