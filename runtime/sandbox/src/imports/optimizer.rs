//! Implements `wit/optimizer.wit`: one function for each of the interface, in its order.
//!
//! The parameters belong to the run. A method gets copies of values and gradients, which are reserved like other
//! tensors, and changes the parameters by whole tensors, which are checked first. State, extra parameters and the copy
//! for a perturbation count against `activation_bytes`; what of them a checkpoint saves, against `parameter_state_bytes`.

mod checks;
mod names;

use tunebox_compute::{DType, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::View;
use wasmtime::component::Resource;

use self::checks::check_shape;
use self::names::{layer_of, role_of};
use crate::bindings::optimizer::{Host, HostParameter, HostPerturbation};
use crate::method_parameters::{ALL_PARAMETERS, Extra, count_bytes};
use crate::refusal::{ErrorCode, Refusal, Result, ensure};
use crate::state::{Answer, Handle, HostContext, ParameterEntry, PerturbationEntry, State};

/// The most states of one parameter.
const MAX_STATES: usize = 16;

/// The most extra parameters of a run.
const MAX_EXTRAS: usize = 64;

/// A handle of a parameter.
type Parameter = Handle<ParameterEntry>;

impl HostParameter for HostContext<'_> {
    /// Returns the parameter's name; `*` for all parameters as one vector.
    fn name(&mut self, this: Parameter) -> wasmtime::Result<String> {
        self.enter("optimizer.parameter.name")?;
        let entry = self.parameter(&this)?;
        Ok(self.parameter_name(&entry)?)
    }

    /// Returns what the parameter is: `all` for all parameters as one vector, `extra` for an extra parameter, or the
    /// role of a slot (see [`role_of`]).
    fn role(&mut self, this: Parameter) -> wasmtime::Result<String> {
        self.enter("optimizer.parameter.role")?;
        let entry = self.parameter(&this)?;
        let name = self.parameter_name(&entry)?;
        let role = match entry {
            ParameterEntry::All => "all",
            ParameterEntry::Extra(_) => "extra",
            ParameterEntry::Slot(_) => role_of(&name),
        };
        Ok(role.to_owned())
    }

    /// Returns the block that a slot belongs to, from 0; `None` outside of the blocks and for parameters that are no
    /// slot.
    fn layer(&mut self, this: Parameter) -> wasmtime::Result<Option<u32>> {
        self.enter("optimizer.parameter.layer")?;
        let entry = self.parameter(&this)?;
        let name = self.parameter_name(&entry)?;
        Ok(matches!(entry, ParameterEntry::Slot(_)).then(|| layer_of(&name)).flatten())
    }

    /// Returns the dimensions of the parameter.
    fn shape(&mut self, this: Parameter) -> wasmtime::Result<Vec<u32>> {
        self.enter("optimizer.parameter.shape")?;
        let entry = self.parameter(&this)?;
        Ok(self.parameter_shape(&entry)?.into_iter().map(u32::try_from).collect::<Result<_, _>>()?)
    }

    /// Returns a handle of a copy of the value. For an extra parameter, the tensor is a leaf of the graph of a loss,
    /// so that `learn.backward` adds to the parameter's gradient. Charges work for each number.
    fn value(&mut self, this: Parameter) -> Answer {
        self.enter("optimizer.parameter.value")?;
        let entry = self.parameter(&this)?;
        let elements = self.charge_parameter(&entry)?;
        self.push_new_tensor(elements, |state| match &entry {
            ParameterEntry::Extra(name) => {
                state.train_state().method_parameters.extra_mut(name).ok_or_else(missing_parameter)?.leaf()
            }
            entry => Ok(state.train_state().policy.parameters().copy_value(slot_number(entry))?),
        })
    }

    /// Returns a handle of a copy of the gradient that has accumulated; of zeros if there is none. Charges work for
    /// each number.
    fn gradient(&mut self, this: Parameter) -> Answer {
        self.enter("optimizer.parameter.gradient")?;
        let entry = self.parameter(&this)?;
        let elements = self.charge_parameter(&entry)?;
        self.push_new_tensor(elements, |state| match &entry {
            ParameterEntry::Extra(name) => {
                state.train_state().method_parameters.extra(name).ok_or_else(missing_parameter)?.gradient()
            }
            entry => Ok(state.train_state().policy.parameters().copy_gradient(slot_number(entry))?),
        })
    }

    /// Returns a handle of the tensor that the method stored for this parameter under `name`, sharing its numbers; if
    /// there is none, of zeros in the shape of the parameter. Charges work for each number. Errors: `invalid-argument`
    /// for a name that is not allowed.
    fn state(&mut self, this: Parameter, name: String) -> Answer {
        self.enter("optimizer.parameter.state")?;
        self.check_name(&name)?;
        let entry = self.parameter(&this)?;
        let parameter = self.parameter_name(&entry)?;
        let known = self.train_state().method_parameters.state(&parameter, &name).cloned();
        let shape = match &known {
            Some(state) => state.dims().to_vec(),
            None => self.parameter_shape(&entry)?,
        };
        let elements = shape.iter().product::<usize>() as u64;
        self.meters.charge_units(elements)?;
        self.push_new_tensor(elements, |_| {
            known.map_or_else(|| Tensor::zeros(shape, DType::F32, &crate::state::DEVICE), Ok)
        })
    }

    /// Sets the tensor that the method keeps for this parameter under `name`, such as a momentum, and creates it if
    /// there is none. Errors: `invalid-argument` for a name that is not allowed or numbers that are not finite,
    /// `dtype-mismatch` unless the tensor is f32, `out-of-budget` for more than [`MAX_STATES`] names. More bytes than
    /// `parameter_state_bytes` or `activation_bytes` leaves end the method.
    fn set_state(&mut self, this: Parameter, name: String, value: Handle) -> Result<()> {
        self.enter("optimizer.parameter.set-state")?;
        self.check_name(&name)?;
        let entry = self.parameter(&this)?;
        let parameter = self.parameter_name(&entry)?;
        let value = self.detach_finite(&value)?;
        let fits = self.train_state().method_parameters.other_states(&parameter, &name) < MAX_STATES;
        let full = || Refusal::new(ErrorCode::OutOfBudget, format!("a parameter has at most {MAX_STATES} states"));
        ensure(fits, full)?;
        let bytes = count_bytes(&value);
        let replaced = self.train_state().method_parameters.state(&parameter, &name).map_or(0, count_bytes);
        self.check_saved(bytes, replaced)?;
        self.check_kept(bytes)?;
        Ok(self.train_state().method_parameters.set_state(&parameter, &name, &value)?)
    }

    /// Replaces the value. For parameters that the run trains, first runs the scoring passes that were deferred.
    /// Errors: those of [`State::read_parameter_change`].
    fn assign(&mut self, this: Parameter, value: Handle) -> Result<()> {
        self.enter("optimizer.parameter.assign")?;
        let (entry, value) = self.read_parameter_change(&this, &value)?;
        match &entry {
            ParameterEntry::Extra(name) => Ok(self.train_state().method_parameters.set_extra(name, &value)?),
            entry => self.change_weights(|state| Ok(state.policy.parameters().assign(slot_number(entry), &value)?)),
        }
    }

    /// Subtracts a tensor from the value. For parameters that the run trains, first runs the scoring passes that were
    /// deferred. Errors: those of [`State::read_parameter_change`].
    fn subtract(&mut self, this: Parameter, change: Handle) -> Result<()> {
        self.enter("optimizer.parameter.subtract")?;
        let (entry, change) = self.read_parameter_change(&this, &change)?;
        match &entry {
            ParameterEntry::Extra(name) => {
                let parameters = &mut self.train_state().method_parameters;
                let value = (parameters.extra(name).ok_or_else(missing_parameter)?.value() - &change)?;
                Ok(parameters.set_extra(name, &value)?)
            }
            entry => {
                self.change_weights(|state| Ok(state.policy.parameters().subtract(slot_number(entry), &change)?))
            }
        }
    }

    /// Deletes the handle; the parameter stays. Not counted as a call.
    fn drop(&mut self, this: Parameter) -> wasmtime::Result<()> {
        Ok(self.table.delete(this).map(drop)?)
    }
}

impl HostPerturbation for HostContext<'_> {
    /// Deletes the handle and restores the values from before the perturbation, bit for bit, if it is still active. Not
    /// counted as a call.
    fn drop(&mut self, this: Handle<PerturbationEntry>) -> wasmtime::Result<()> {
        let PerturbationEntry(number) = self.table.delete(this)?;
        if number == self.perturbation {
            self.run_pending_scores()?;
            self.train_state().end_perturbation().map_err(Refusal::from)?;
        }
        Ok(())
    }
}

impl Host for HostContext<'_> {
    /// Returns a handle of every slot that the run trains, in order. Charges work for each.
    fn parameters(&mut self) -> wasmtime::Result<Vec<Resource<ParameterEntry>>> {
        self.enter("optimizer.parameters")?;
        let count = self.train_state().policy.parameters().slots().len();
        self.meters.charge_units(count as u64)?;
        let handles = (0..count).map(|number| self.table.push(ParameterEntry::Slot(number)));
        Ok(handles.collect::<Result<_, _>>().map_err(Refusal::from)?)
    }

    /// Returns a handle of all parameters that the run trains as one vector.
    fn all(&mut self) -> wasmtime::Result<Parameter> {
        self.enter("optimizer.all")?;
        Ok(self.table.push(ParameterEntry::All).map_err(Refusal::from)?)
    }

    /// Returns a handle of the extra parameter of this name. Makes it with the value [`State::start_value`] if there is
    /// none; an existing one keeps its value. Errors: `invalid-argument` for a name that is not allowed or numbers that
    /// are not finite, `dtype-mismatch` unless `initial` is `f32`, `shape-mismatch` if an existing one has another
    /// shape, `out-of-budget` past [`MAX_EXTRAS`]. More bytes than `parameter_state_bytes` or `activation_bytes` leaves
    /// end the method.
    fn extra(&mut self, name: String, initial: Handle) -> Answer<ParameterEntry> {
        self.enter("optimizer.extra")?;
        self.check_name(&name)?;
        let initial = self.detach_finite(&initial)?;
        self.meters.charge_units(initial.elem_count() as u64)?;
        let known = self.train_state().method_parameters.extra(&name).map(|extra| extra.value().dims().to_vec());
        match known {
            Some(shape) => check_shape(&name, &shape, initial.dims())?,
            None => {
                let fits = self.train_state().method_parameters.extra_count() < MAX_EXTRAS;
                let full =
                    || Refusal::new(ErrorCode::OutOfBudget, format!("a run has at most {MAX_EXTRAS} extra parameters"));
                ensure(fits, full)?;
                let value = self.start_value(&name, initial)?;
                self.check_saved(count_bytes(&value), 0)?;
                self.check_kept(Extra::bytes(&value))?;
                self.train_state().method_parameters.set_extra(&name, &value)?;
            }
        }
        Ok(self.table.push(ParameterEntry::Extra(name))?)
    }

    /// Counts an update of the weights, clears all gradients, and returns the norm of the gradient of the parameters
    /// that the run trains. Counts one pass, and first runs the scoring passes that were deferred. Errors:
    /// `unsupported` where the host updates the parameters, `invalid-argument` while a perturbation is active or if the
    /// accumulation window does not end with this batch.
    fn done(&mut self) -> Result<f32> {
        self.enter("optimizer.done")?;
        self.check_can_change()?;
        self.check_window_ends()?;
        let count = self.train_state().policy.parameters().len();
        self.meters.charge_units(count as u64)?;
        self.count_pass(&View::Policy, 1)?;
        self.run_pending_scores()?;
        Ok(self.train_state().count_update()?)
    }

    /// Sets all gradients to zero, those of extra parameters included.
    fn clear_gradients(&mut self) -> Result<()> {
        self.enter("optimizer.clear-gradients")?;
        let count = self.train_state().policy.parameters().len();
        self.meters.charge_units(count as u64)?;
        Ok(self.train_state().clear_gradient()?)
    }

    /// Adds `scale` · z to all parameters that the run trains, with standard normal z from the random stream of this
    /// sequence and number, after running the scoring passes that were deferred. The values from before are restored
    /// when the returned handle is dropped or the call of the method ends. Errors: `invalid-argument` for a name that
    /// is not allowed, a scale that is not finite, and while a perturbation is active. A copy of the values that
    /// exceeds `activation_bytes` ends the method.
    fn perturb(&mut self, sequence: String, number: u32, scale: f32) -> Answer<PerturbationEntry> {
        self.enter("optimizer.perturb")?;
        self.check_noise(&sequence, scale)?;
        self.check_unperturbed()?;
        let count = self.train_state().policy.parameters().len() as u64;
        self.meters.charge_units(count)?;
        self.check_kept(4 * count)?;
        let latest = self.perturbation + 1;
        self.perturbation = latest;
        let handle = self.table.push(PerturbationEntry(latest))?;
        let (seed, name) = (self.seed(), noise_name(&sequence, number));
        self.run_pending_scores()?;
        self.train_state().perturb(seed, &name, scale)?;
        Ok(handle)
    }

    /// Adds `scale` · z to all parameters that the run trains, as `perturb` does, but permanently. Errors:
    /// `unsupported` where the host updates the parameters; `invalid-argument` for a name that is not allowed, a scale
    /// that is not finite, and while a perturbation is active.
    fn add_noise(&mut self, sequence: String, number: u32, scale: f32) -> Result<()> {
        self.enter("optimizer.add-noise")?;
        self.check_can_change()?;
        self.check_noise(&sequence, scale)?;
        let count = self.train_state().policy.parameters().len() as u64;
        self.meters.charge_units(count)?;
        let (seed, name) = (self.seed(), noise_name(&sequence, number));
        self.change_weights(|state| Ok(state.policy.parameters().add_noise(seed, &name, scale)?))
    }
}

impl State {
    /// Returns what a handle of a parameter stands for.
    fn parameter(&self, handle: &Parameter) -> Result<ParameterEntry> {
        Ok(self.table.get(handle)?.clone())
    }

    /// Returns the name of a parameter: that of its slot or of the extra parameter, or [`ALL_PARAMETERS`].
    fn parameter_name(&self, entry: &ParameterEntry) -> Result<String> {
        match entry {
            ParameterEntry::All => Ok(ALL_PARAMETERS.to_owned()),
            ParameterEntry::Extra(name) => Ok(name.clone()),
            ParameterEntry::Slot(number) => {
                let train_state = self.train_state();
                let slot = train_state.policy.parameters().slots().get(*number);
                Ok(slot.ok_or_else(missing_parameter)?.name.clone())
            }
        }
    }

    /// Returns the dimensions of a parameter: `[count]` for all as one vector. Errors: `invalid-argument` for a
    /// parameter that the run no longer has.
    fn parameter_shape(&self, entry: &ParameterEntry) -> Result<Vec<usize>> {
        let train_state = self.train_state();
        let parameters = train_state.policy.parameters();
        match entry {
            ParameterEntry::All => Ok(vec![parameters.len()]),
            ParameterEntry::Extra(name) => {
                Ok(train_state.method_parameters.extra(name).ok_or_else(missing_parameter)?.value().dims().to_vec())
            }
            ParameterEntry::Slot(number) => {
                Ok(parameters.slots().get(*number).ok_or_else(missing_parameter)?.shape.clone())
            }
        }
    }

    /// Charges, for each number of a parameter, the work of the host function entered last; returns how many numbers
    /// there are.
    fn charge_parameter(&mut self, entry: &ParameterEntry) -> Result<u64> {
        let elements = self.parameter_shape(entry)?.iter().product::<usize>() as u64;
        self.meters.charge_units(elements)?;
        Ok(elements)
    }

    /// Returns what the handle `parameter` stands for, and the tensor `change`, which has the parameter's shape,
    /// without its graph. Errors: `unsupported` for a parameter that the host updates; `invalid-argument` while a
    /// perturbation is active, and for a number that is not finite; `dtype-mismatch`, `shape-mismatch`.
    fn read_parameter_change(&mut self, parameter: &Parameter, change: &Handle) -> Result<(ParameterEntry, Tensor)> {
        let entry = self.parameter(parameter)?;
        match entry {
            ParameterEntry::Extra(_) => self.check_unperturbed()?,
            _ => self.check_can_change()?,
        }
        let change = self.detach_finite(change)?;
        check_shape(&self.parameter_name(&entry)?, &self.parameter_shape(&entry)?, change.dims())?;
        Ok((entry, change))
    }

    /// Runs the scoring passes that were deferred, counts an update of the weights, then runs `work`, which changes
    /// them. The update stays counted if `work` fails.
    fn change_weights(
        &mut self,
        work: impl FnOnce(&mut crate::train_state::TrainState) -> Result<(), Error>,
    ) -> Result<()> {
        self.run_pending_scores()?;
        let mut train_state = self.train_state();
        train_state.policy.note_update();
        Ok(work(&mut train_state)?)
    }
}

/// Returns the index of a slot; `None` for all parameters as one vector. Must not be called for an extra parameter,
/// which would be taken for all of them.
fn slot_number(entry: &ParameterEntry) -> Option<usize> {
    match entry {
        ParameterEntry::Slot(number) => Some(*number),
        _ => None,
    }
}

/// Returns the name of the random stream for noise number `number` of a method's sequence. No other stream's name
/// begins so.
fn noise_name(sequence: &str, number: u32) -> String {
    format!("method-noise/{number}/{sequence}")
}

/// Builds the error for a handle whose parameter the run no longer has.
fn missing_parameter() -> Error {
    Error::Argument("the run no longer has this parameter".into())
}

#[cfg(test)]
mod tests;
