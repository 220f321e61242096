//! Implements `wit/weights.wit`: one function for each of the interface, in its order.
//!
//! An edited matrix belongs to the run, not to the method: the policy keeps at most one copy of each matrix and of each
//! snapshot, or an adapter beside them that grows by a rank with every edit. Edits are charged as work and as bytes of
//! a rank, and copies count against `activation_bytes`. Rows that are read are reserved like other tensors, and count
//! as bytes read back.

use tunebox_model::decoder::Site;
use tunebox_model::edit;

use super::hidden::check_finite;
use crate::bindings::weights::{Form, Host, Role};
use crate::refusal::{Refusal, Result, ensure};
use crate::state::{Answer, Handle, HostContext, State};

/// Seconds that an edit takes for each number of its matrix on a slow machine, as an estimate: nothing interrupts an
/// edit.
const NUMBER_SECONDS: f64 = 40e-9;

impl Host for HostContext<'_> {
    /// Selects whether later edits change the weights themselves or become ranks of an adapter.
    ///
    /// Errors: `invalid-argument` once an edit was made the other way; `unsupported` for an adapter when all weights
    /// are trained.
    fn keep_as(&mut self, form: Form) -> Result<()> {
        self.enter("weights.keep-as")?;
        let form = match form {
            Form::Edited => edit::Form::Weights,
            Form::Adapter => edit::Form::Adapter,
        };
        Ok(self.train_state().policy.keep_edits_as(form)?)
    }

    /// Returns rows and columns, (out, in), of the matrix with this role in block `layer`, which is ignored for
    /// embedding and head.
    ///
    /// Errors: `invalid-argument` for a missing layer.
    fn shape(&mut self, role: Role, layer: u32) -> Result<(u32, u32)> {
        self.enter("weights.shape")?;
        let (rows, columns) = self.train_state().policy.matrix_shape(model_role(role), layer as usize)?;
        let length = |length| {
            u32::try_from(length).map_err(|_| Refusal::argument(format!("an axis of {length} passes 32 bits")))
        };
        Ok((length(rows)?, length(columns)?))
    }

    /// Returns a handle of `count` rows, from `first` on, of the matrix with this role in block `layer`: `[count, in]`,
    /// `f32`, with edits and full training applied but not the adapter. `layer` is ignored for embedding and head.
    /// Charges work and counts the bytes as read back.
    ///
    /// Errors: `invalid-argument` for a missing layer, no rows or rows past the matrix; `out-of-budget` past the bytes
    /// that a step may read back.
    fn read_rows(&mut self, role: Role, layer: u32, first: u32, count: u32) -> Answer {
        self.enter("weights.read-rows")?;
        let (rows, columns) = self.train_state().policy.matrix_shape(model_role(role), layer as usize)?;
        let end = u64::from(first) + u64::from(count);
        let outside = || Refusal::argument(format!("rows {first} to {end} are asked for, the matrix has {rows}"));
        ensure(count > 0 && end <= rows as u64, outside)?;
        let elements = u64::from(count) * columns as u64;
        self.meters.charge_units(elements)?;
        self.meters.count_readback(4 * elements)?;
        let (role, layer, first, count) = (model_role(role), layer as usize, first as usize, count as usize);
        self.push_new_tensor(elements, |state| state.train_state().policy.read_rows(role, layer, first, count))
    }

    /// Adds `scale` · `left` `right`ᵀ to the matrix `[out, in]` with this role in block `layer`, which is ignored for
    /// embedding and head. `left` is `[out]` and `right` `[in]`, both `f32`. First runs the scoring passes that were
    /// deferred, with the weights as they are. Earlier scores take no gradient afterwards.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`; `invalid-argument` for a missing layer, a number that is not finite,
    /// or a product that could overflow `f32`; `unsupported` for a matrix that cannot be edited.
    fn add_outer(&mut self, role: Role, layer: u32, left: Handle, right: Handle, scale: f32) -> Result<()> {
        self.enter("weights.add-outer")?;
        let (rows, columns) = self.train_state().policy.matrix_shape(model_role(role), layer as usize)?;
        check_finite("the scale", scale)?;
        let left = self.read_vector(&left, rows, "the matrix's output")?;
        let right = self.read_vector(&right, columns, "the matrix's input")?;
        let largest = |vector: &[f32]| vector.iter().fold(0.0_f64, |most, value| most.max(f64::from(value.abs())));
        if largest(&left) * largest(&right) * f64::from(scale.abs()).max(1.0) > f64::from(f32::MAX) {
            return Err(Refusal::argument("the product of the vectors and the scale is not a finite number"));
        }
        self.charge_edit(model_role(role), layer as usize)?;
        Ok(self.train_state().policy.add_outer(model_role(role), layer as usize, &left, &right, scale)?)
    }

    /// Changes the matrix W `[out, in]` with this role in block `layer` to W − `strength` · r rᵀ W, where r is
    /// `direction`, `[out]`, at length 1. For the embedding, `direction` is `[in]`, and each row loses its component
    /// along it. `keep_norms` restores the length of each row. Unless edits are kept as an adapter, also changes a bias
    /// b of the matrix to b − `strength` · r rᵀ b. First runs the scoring passes that were deferred. Earlier scores
    /// take no gradient afterwards.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`; `invalid-argument` for a missing layer, a strength outside −16 to
    /// 16, or a direction that has no length or is not finite; `unsupported` for a matrix that cannot be edited, and
    /// for `keep_norms` where edits are kept as an adapter.
    fn project_out(
        &mut self,
        role: Role,
        layer: u32,
        direction: Handle,
        strength: f32,
        keep_norms: bool,
    ) -> Result<()> {
        self.enter("weights.project-out")?;
        let (rows, columns) = self.train_state().policy.matrix_shape(model_role(role), layer as usize)?;
        let allowed = || Refusal::argument(format!("a strength is −16 to 16, this is {strength}"));
        ensure((-16.0..=16.0).contains(&strength), allowed)?;
        let width = if matches!(role, Role::Embedding) { columns } else { rows };
        let direction = self.read_vector(&direction, width, "the matrix's output")?;
        self.charge_edit(model_role(role), layer as usize)?;
        Ok(self.train_state().policy.project_out(model_role(role), layer as usize, &direction, strength, keep_norms)?)
    }
}

impl State {
    /// Charges an edit of a matrix before it is made: its elements as work, and for the rest of the session the bytes
    /// of the rank that the edit adds where edits are kept as an adapter. Runs the scoring passes that were deferred. A
    /// copy of the matrix that exceeds `activation_bytes` or the memory that is left ends the method, and so does an
    /// edit that may outlast the step.
    fn charge_edit(&mut self, role: edit::Role, layer: usize) -> Result<()> {
        let (rows, columns) = self.train_state().policy.matrix_shape(role, layer)?;
        self.meters.charge_units(rows as u64 * columns as u64)?;
        self.edits.push(self.reserve(4 * (rows + columns) as u64)?);
        self.run_pending_scores()?;
        self.meters.check_time_for(rows as f64 * columns as f64 * NUMBER_SECONDS)?;
        let bytes = self.train_state().policy.edit_bytes(role, layer)?;
        Ok(self.check_kept(bytes)?)
    }
}

/// Converts a matrix's role of the contract to that of the model crate.
fn model_role(role: Role) -> edit::Role {
    match role {
        Role::Embedding => edit::Role::Embedding,
        Role::Query => edit::Role::Linear(Site::Query),
        Role::Key => edit::Role::Linear(Site::Key),
        Role::Value => edit::Role::Linear(Site::Value),
        Role::AttentionOutput => edit::Role::Linear(Site::AttentionOutput),
        Role::Gate => edit::Role::Linear(Site::Gate),
        Role::Up => edit::Role::Linear(Site::Up),
        Role::Down => edit::Role::Linear(Site::Down),
        Role::Head => edit::Role::Head,
    }
}

#[cfg(test)]
mod tests {
    use tunebox_compute::budget::Budget;

    use super::*;
    use crate::bindings::tensor::HostTensor;
    use crate::settings::SessionSettings;
    use crate::train_state::tests::shared;

    #[test]
    fn the_shape_of_a_matrix_is_that_of_its_rows() {
        let mut state = State::new(SessionSettings::default(), Budget::new(1 << 24), shared());
        let mut host = HostContext::new(&mut state);
        for role in [Role::Embedding, Role::Key, Role::Gate, Role::Down, Role::Head] {
            let (rows, columns) = Host::shape(&mut host, role, 0).unwrap();
            let read = host.read_rows(role, 0, rows - 1, 1).unwrap();
            assert_eq!(HostTensor::shape(&mut host, read).unwrap(), [1, columns]);
            assert!(host.read_rows(role, 0, rows, 1).is_err());
        }
        assert!(matches!(Host::shape(&mut host, Role::Down, u32::MAX), Err(Refusal::Error(_))));
    }
}
