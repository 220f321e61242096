//! Activations that a method captured for learning, and their part in the gradient of a loss.

use std::sync::Arc;

use candle_core::{Tensor, Var};
use tunebox_compute::budget::Reservation;
use tunebox_compute::parameters::all_finite;
use tunebox_model::policy::{Captured, View};
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Site, Token};

use crate::refusal::{Refusal, Result, ensure};
use crate::state::{Answer, DEVICE, State};
use crate::train_state::lock;

/// Activations that a method captured for learning in the present call.
pub(crate) struct CaptureRecord {
    /// What the model keeps for the backward pass. Its values share the memory of `leaf`.
    pub(super) captured: Captured,
    /// The activations, a leaf of the graph of a loss.
    pub(super) leaf: Tensor,
    token: Token,
    /// The reservation of the activations' bytes.
    _bytes: Arc<Reservation>,
    /// Whether a gradient went through the activations.
    learned_from: bool,
}

impl CaptureRecord {
    /// Returns the rows whose activations these are.
    pub(super) fn rows(&self) -> &Arc<Rows> {
        &self.captured.rows
    }

    /// Checks that no gradient went through these activations, which would count twice. Errors: `invalid-argument`.
    pub(super) fn check_unlearned(&self) -> Result<()> {
        let again = "a gradient went through these activations already, a second one would count twice; add the losses to one \
                     loss, or capture them again";
        ensure(!self.learned_from, || Refusal::argument(again))
    }

    /// Notes that a gradient goes through these activations.
    pub(super) fn mark_learned(&mut self) {
        self.learned_from = true;
    }

    /// Checks that a gradient may go through these activations. Errors: `invalid-argument` if the weights have changed
    /// since the capture: `generation`, the policy's update count, is another one.
    pub(super) fn check_current(&self, generation: u64) -> Result<()> {
        let updated = "the weights were updated after these activations were captured; capture them again";
        ensure(self.captured.generation == generation, || Refusal::argument(updated))
    }
}

impl State {
    /// Captures activations of the policy for learning and returns the handle of a tensor that is a leaf of the graph
    /// of a loss. The record that its gradient needs stays until the call ends. `bytes` is the reservation of the
    /// numbers. Errors: those of the model; saved activations past `activation_bytes`, or the end of the time, end the
    /// method.
    pub(crate) fn push_capture(
        &mut self,
        rows: &Arc<Rows>,
        layers: &[usize],
        (site, token): (Site, Token),
        bytes: Reservation,
    ) -> Answer {
        let mut captured = self.train_state().policy.capture_for_learning(rows, layers, site, token)?;
        let leaf = Var::from_tensor(&captured.values)?.into_inner();
        captured.values = leaf.detach();
        let bytes = Arc::new(bytes);
        let handle = self.push_tensor(leaf.clone(), Arc::clone(&bytes))?;
        let number = self.next_number();
        let record = CaptureRecord { captured, leaf, token, _bytes: bytes, learned_from: false };
        self.captures.insert(number, record);
        self.check_kept(0)?;
        self.meters.check_time()?;
        Ok(handle)
    }

    /// Returns `gradient`, a gradient with respect to the captured activations `number`, and the reservation of its
    /// bytes. If the activations are those of target tokens, sets it to 0 at all other tokens. Charges its work and
    /// reserves scratch memory meanwhile.
    ///
    /// Errors: `invalid-argument` for an element that is not finite and not set to 0; a limit that is passed.
    pub(super) fn mask_to_captured(&mut self, number: u64, gradient: &Tensor) -> Result<(Tensor, Reservation)> {
        let elements = gradient.elem_count() as u64;
        self.meters.charge_units(elements)?;
        let bytes = self.reserve(4 * elements)?;
        let _scratch = self.reserve(3 * 4 * elements)?;
        let mut chosen = gradient.contiguous()?;
        if let Some(record) = self.captures.get(&number).filter(|record| record.token == Token::Targets) {
            let mask = record.rows().mask_tensor(&DEVICE)?.ne(0f32)?.unsqueeze(2)?.broadcast_as(gradient.shape())?;
            chosen = mask.where_cond(&chosen, &chosen.zeros_like()?)?;
        }
        let broken = "the gradient of a captured activation is not a finite number";
        ensure(all_finite(&chosen)?, || Refusal::argument(broken))?;
        Ok((chosen, bytes))
    }

    /// Runs the backward pass of the activations `number` with the gradient `seed` with respect to them, and charges
    /// it as two forward passes. Consumes the saved activations. Does nothing if there are no activations of this
    /// number.
    pub(super) fn run_captured_backward(&mut self, number: u64, seed: &Tensor) -> Result<()> {
        let Some(record) = self.captures.get_mut(&number) else { return Ok(()) };
        let tokens = record.rows().tokens() as u64;
        let multiply_adds = self.multiply_adds(&View::Policy, tokens);
        self.meters.count_pass(multiply_adds.saturating_mul(2))?;
        // The model copies the gradient of a slice twice: in the order of its rows, and for each layer.
        let _scratch = self.reserve(2 * 4 * seed.elem_count() as u64)?;
        let Some(record) = self.captures.get_mut(&number) else { return Ok(()) };
        Ok(lock(&self.train_state).backward_captured(&mut record.captured, seed)?)
    }
}
