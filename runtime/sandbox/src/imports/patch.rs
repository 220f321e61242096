//! Implements `wit/patch.wit`: one function for each of the interface, in its order.
//!
//! Every active patch is work for each later pass, so their number has a limit of its own.

use tunebox_model::stream::Patch;

use super::hidden::{check_finite, stream_site};
use crate::bindings::hidden::Site;
use crate::bindings::patch::{Host, HostPatch};
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, ensure};
use crate::state::{Answer, Handle, HostContext, PatchEntry, State, TENSOR_BYTES};

impl HostPatch for HostContext<'_> {
    /// Deletes the handle and removes its patch from the policy. First runs the scoring passes that were deferred,
    /// which still see the patch. Not counted as a call.
    fn drop(&mut self, this: Handle<PatchEntry>) -> wasmtime::Result<()> {
        self.run_pending_scores()?;
        let PatchEntry { number, .. } = self.table.delete(this)?;
        self.patches = self.patches.saturating_sub(1);
        self.train_state().policy.unpatch(number);
        Ok(())
    }
}

impl Host for HostContext<'_> {
    /// Makes a patch active that adds `coefficient` · `vector`, `[dimension]`, to the activations of these layers at a
    /// site; with `answers_only`, only at target tokens, and while sampling only at new tokens.
    ///
    /// Errors: `out-of-budget` past the number of active patches; `invalid-argument` for no layers, one that is missing
    /// or named twice, or numbers or products that are not finite; `shape-mismatch` and `dtype-mismatch` for `vector`.
    fn add(
        &mut self,
        layers: Vec<u32>,
        site: Site,
        vector: Handle,
        coefficient: f32,
        answers_only: bool,
    ) -> Answer<PatchEntry> {
        self.enter("patch.add")?;
        let layers = self.layer_indices(layers)?;
        check_finite("the coefficient", coefficient)?;
        let vector = self.read_stream_vector(&vector)?;
        self.push_patch(Patch::add(layers, stream_site(site), &vector, coefficient, answers_only)?)
    }

    /// Makes a patch active that removes the component along `direction`, `[dimension]`, from the activations of all
    /// tokens in these layers at a site.
    ///
    /// Errors: `out-of-budget` past the number of active patches; `invalid-argument` for no layers, one that is missing
    /// or named twice, or a direction of length 0 or not finite; `shape-mismatch` and `dtype-mismatch` for `direction`.
    fn ablate(&mut self, layers: Vec<u32>, site: Site, direction: Handle) -> Answer<PatchEntry> {
        self.enter("patch.ablate")?;
        let layers = self.layer_indices(layers)?;
        let direction = self.read_stream_vector(&direction)?;
        self.push_patch(Patch::ablate(layers, stream_site(site), &direction)?)
    }

    /// Makes a patch active that sets the component along `direction`, `[dimension]`, to `value` in the activations of
    /// all tokens in these layers at a site.
    ///
    /// Errors: `out-of-budget` past the number of active patches; `invalid-argument` for no layers, one that is missing
    /// or named twice, a value that is not finite, or a direction of length 0 or not finite; `shape-mismatch` and
    /// `dtype-mismatch` for `direction`.
    fn project(&mut self, layers: Vec<u32>, site: Site, direction: Handle, value: f32) -> Answer<PatchEntry> {
        self.enter("patch.project")?;
        let layers = self.layer_indices(layers)?;
        check_finite("the value", value)?;
        let direction = self.read_stream_vector(&direction)?;
        self.push_patch(Patch::project(layers, stream_site(site), &direction, value)?)
    }
}

impl State {
    /// Returns the bytes to reserve for a patch: [`TENSOR_BYTES`], 4 for each number of its vector, and 8 for each
    /// block of the model, however many layers it names.
    pub(crate) fn patch_bytes(&self) -> u64 {
        TENSOR_BYTES + 4 * self.configuration.hidden as u64 + 8 * self.configuration.layers as u64
    }

    /// Adds a patch to the policy and returns its handle. Reserves [`patch_bytes`](Self::patch_bytes) until the handle
    /// is dropped. First runs the scoring passes that were deferred, without the patch.
    ///
    /// Errors: `out-of-budget` past the number of active patches; past `handles` ends the method.
    fn push_patch(&mut self, patch: Patch) -> Answer<PatchEntry> {
        let message = || format!("a run has at most {} active patches; drop one", self.limits.patches);
        ensure(self.patches < self.limits.patches, || Refusal::new(ErrorCode::OutOfBudget, message()))?;
        self.run_pending_scores()?;
        let bytes = self.reserve(self.patch_bytes())?;
        let number = self.train_state().policy.patch(patch)?;
        match self.table.push(PatchEntry { number, _bytes: bytes }) {
            Ok(handle) => {
                self.patches += 1;
                Ok(handle)
            }
            Err(full) => {
                self.train_state().policy.unpatch(number);
                Err(full.into())
            }
        }
    }
}
