//! Checks of what a method gives the interface `optimizer`, and of when it may change parameters.

use tunebox_compute::parameters::all_finite;
use tunebox_compute::{DType, Tensor};
use tunebox_foundation::explain::Explanation;

use crate::cause::Cause;
use crate::imports::check_tensor_name;
use crate::refusal::{ErrorCode, Refusal, Result, ensure};
use crate::state::{Handle, State};

impl State {
    /// Returns a tensor that becomes state or part of a parameter, without its graph. Charges the work for each number.
    /// Errors: `dtype-mismatch` unless it is `f32`, `invalid-argument` for a number that is not finite.
    pub(super) fn detach_finite(&mut self, handle: &Handle) -> Result<Tensor> {
        let tensor = self.tensor_node(handle)?.tensor.detach();
        let dtype = || format!("parameters are `f32`, this is `{}`", tensor.dtype().as_str());
        ensure(tensor.dtype() == DType::F32, || Refusal::new(ErrorCode::DtypeMismatch, dtype()))?;
        self.meters.charge_units(tensor.elem_count() as u64)?;
        // An expanded view is made contiguous.
        let _scratch = self.reserve(4 * tensor.elem_count() as u64)?;
        let tensor = tensor.contiguous()?;
        ensure(all_finite(&tensor)?, || Refusal::argument("a number of the tensor is not finite"))?;
        Ok(tensor)
    }

    /// Returns `unsupported` if the host updates the parameters, `invalid-argument` while a perturbation is active.
    pub(super) fn check_can_change(&self) -> Result<()> {
        let host =
            "the host updates the parameters; a method that does it itself says `update: \"method\"` in its manifest";
        ensure(self.updates_itself, || Refusal::new(ErrorCode::Unsupported, host))?;
        self.check_unperturbed()
    }

    /// Returns `invalid-argument` while a perturbation is active.
    pub(crate) fn check_unperturbed(&self) -> Result<()> {
        let active = "a perturbation is active; drop its handle first";
        ensure(self.train_state().method_parameters.unperturbed.is_none(), || Refusal::argument(active))
    }

    /// Returns `invalid-argument` if the accumulation window does not end with the batch of this call: the losses so
    /// far have the denominator of the whole window.
    pub(crate) fn check_window_ends(&self) -> Result<()> {
        let open = "the accumulation window goes on after this batch, so its gradient is not complete; update when \
                    `batch.ends-window` is true";
        ensure(!self.window_is_open, || Refusal::argument(open))
    }

    /// Checks that checkpoints may save `more` bytes in place of `less` bytes of the state and extra parameters that the
    /// method keeps. Returns [`Cause::ParameterState`], which ends the method, past `parameter_state_bytes`.
    pub(super) fn check_saved(&self, more: u64, less: u64) -> Result<(), Cause> {
        let saved = self.train_state().method_parameters.saved_bytes();
        let (wanted, limit) = (saved.saturating_sub(less).saturating_add(more), self.limits.parameter_state_bytes);
        ensure(wanted <= limit, || Cause::ParameterState { wanted, limit })
    }

    /// Returns the value that a new extra parameter begins with: its value in the run whose adapter or model this run continues,
    /// if that run saved one of this name, else `initial`. A saved value of another shape than `initial` ends the method.
    pub(super) fn start_value(&self, name: &str, initial: Tensor) -> Result<Tensor, Cause> {
        let Some(start) = self.train_state().start_values.get(name).cloned() else { return Ok(initial) };
        let (wanted, found) = (initial.dims(), start.dims());
        ensure(wanted == found, || {
            let what = format!(
                "the extra parameter `{name}` has the shape {wanted:?}, and {found:?} beside what the run continues"
            );
            let problem = Explanation::new("config", what)
                .with_why("the run continues an adapter or a model of a run that saved it so");
            let hint = "set the method as in that run, or continue a copy without `extra_parameters.safetensors`";
            Cause::from_explanation(problem.with_hint(hint))
        })?;
        Ok(start)
    }

    /// Returns `invalid-argument` unless a name of a state, an extra parameter or a sequence has 1 to `name_bytes`
    /// letters, digits, `_`, `.` and `-` of ASCII, and is no name that safetensors files reserve.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        check_tensor_name(name)?;
        let longest = self.limits.name_bytes;
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let good = (1..=longest).contains(&name.len()) && name.bytes().all(letter);
        let rule = || {
            Refusal::argument(format!("a name has 1 to {longest} of the characters a-z, A-Z, 0-9, `_`, `.` and `-`"))
        };
        ensure(good, rule)
    }

    /// Returns `invalid-argument` for a sequence's name that is not allowed or a scale that is not finite.
    pub(super) fn check_noise(&self, sequence: &str, scale: f32) -> Result<()> {
        self.check_name(sequence)?;
        super::super::hidden::check_finite("the scale", scale)
    }
}

/// Returns `shape-mismatch` unless `given`, the shape of a tensor, is `wanted`, the shape of the parameter `name`.
pub(super) fn check_shape(name: &str, wanted: &[usize], given: &[usize]) -> Result<()> {
    let other = || format!("`{name}` has the shape {wanted:?}, the tensor has {given:?}");
    ensure(wanted == given, || Refusal::new(ErrorCode::ShapeMismatch, other()))
}
