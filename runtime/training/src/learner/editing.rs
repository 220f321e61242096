//! The student read and edited beside training: activations, patches, single matrices, text.
//!
//! Everything is the policy's; what a method publishes is kept here until the artifact is written.

use tunebox_compute::Tensor;
use tunebox_model::edit::{Form, Role};
use tunebox_model::error::Error;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Patch, Site, Token};
use tunebox_sandbox::{Direction, Editing, Sizes};

use super::Student;

impl Editing for Student {
    fn sizes(&self) -> Sizes {
        let configuration = &self.policy.model().configuration;
        Sizes { layers: configuration.layers, dimension: configuration.hidden, vocabulary: configuration.vocabulary }
    }

    fn capture(
        &mut self,
        view: &View,
        rows: &Rows,
        layers: &[usize],
        site: Site,
        token: Token,
    ) -> Result<Tensor, Error> {
        self.policy.capture(view, rows, layers, site, token)
    }

    fn next_token(&mut self, view: &View, rows: &Rows, ids: &[u32]) -> Result<Tensor, Error> {
        self.policy.next_token(view, rows, ids)
    }

    fn divergence(&mut self, view: &View, other: &View, rows: &Rows) -> Result<Tensor, Error> {
        self.policy.divergence(view, other, rows)
    }

    fn patch(&mut self, patch: Patch) -> Result<u64, Error> {
        self.policy.patch(patch)
    }

    fn unpatch(&mut self, number: u64) {
        self.policy.unpatch(number);
    }

    fn unpatch_all(&mut self) {
        self.policy.unpatch_all();
    }

    fn matrix(&self, role: Role, layer: usize) -> Result<(usize, usize), Error> {
        self.policy.matrix(role, layer)
    }

    fn keep_edits_as(&mut self, form: Form) -> Result<(), Error> {
        self.policy.keep_edits_as(form)
    }

    fn read_rows(&mut self, role: Role, layer: usize, first: usize, count: usize) -> Result<Tensor, Error> {
        self.policy.read_rows(role, layer, first, count)
    }

    fn add_outer(&mut self, role: Role, layer: usize, left: &[f32], right: &[f32], scale: f32) -> Result<(), Error> {
        self.policy.add_outer(role, layer, left, right, scale)
    }

    fn project_out(
        &mut self,
        role: Role,
        layer: usize,
        direction: &[f32],
        strength: f32,
        keep_norms: bool,
    ) -> Result<(), Error> {
        self.policy.project_out(role, layer, direction, strength, keep_norms)
    }

    fn publish(&mut self, direction: Direction) -> Result<(), Error> {
        let other = |known: &Direction| {
            (known.site, known.token, known.coefficient) != (direction.site, direction.token, direction.coefficient)
        };
        // One layer alone may be published anew with other words about it.
        let others = self.published.iter().any(|(layer, known)| *layer != direction.layer && other(known));
        if others {
            let what = "the directions of a run are read at one site and token, and have one coefficient";
            return Err(Error::Argument(what.into()));
        }
        self.published.insert(direction.layer, direction);
        Ok(())
    }

    fn decode(&mut self, ids: &[u32]) -> Result<String, Error> {
        Ok(self.policy.model().tokenizer()?.decode(ids, true)?)
    }

    fn encode(&mut self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(self.policy.model().tokenizer()?.encode(text, false)?)
    }
}
