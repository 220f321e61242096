//! How the host runs a tensor operation: count the call, look up the operands, let `compute::ops` charge the session's
//! budget and compute, return a handle of the result.

use candle_core::{DType, Device, Tensor};
use tunebox_compute::error::Result as Computed;
use tunebox_compute::ops::{Meter, Output};
use tunebox_compute::random::Stream;

use crate::bindings::types::Dtype;
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result};
use crate::state::{Answer, DEVICE, Handle, State};

impl State {
    /// Runs a tensor operation on a fixed number of operands: counts the call under `name`, looks up the operands, runs
    /// `function` within the session's budget, and returns a handle of the result.
    pub(super) fn operate<const N: usize>(
        &mut self,
        name: &'static str,
        operands: [&Handle; N],
        function: impl FnOnce(&mut dyn Meter, [&Tensor; N]) -> Computed<Output>,
    ) -> Answer {
        self.enter(name)?;
        let held = operands.into_iter().map(|operand| self.tensor_node(operand)).collect::<Result<Vec<_>, _>>()?;
        let tensors: Vec<&Tensor> = held.iter().map(|held| &held.tensor).collect();
        let wrong = |_| Refusal::new(ErrorCode::Internal, "an operand was lost");
        let output = function(&mut self.operation_budget(), tensors.try_into().map_err(wrong)?)?;
        self.push_result(output, &held)
    }

    /// Runs a tensor operation on a list of operands, counted as `name`; `invalid-argument` for more than `limit`
    /// operands.
    pub(super) fn operate_on_list(
        &mut self,
        name: &'static str,
        tensors: &[Handle],
        limit: usize,
        function: impl FnOnce(&mut dyn Meter, &[&Tensor]) -> Computed<Output>,
    ) -> Answer {
        self.enter(name)?;
        // Before any handle is looked up: a list may name one handle millions of times.
        if tensors.len() > limit {
            return Err(Refusal::argument(format!("{} tensors, {limit} are allowed", tensors.len())));
        }
        let held = tensors.iter().map(|tensor| self.tensor_node(tensor)).collect::<Result<Vec<_>, _>>()?;
        let operands: Vec<&Tensor> = held.iter().map(|held| &held.tensor).collect();
        let output = function(&mut self.operation_budget(), &operands)?;
        self.push_result(output, &held)
    }

    /// Cuts a tensor into views of it with `function`, counted as one call of `name`, and returns a handle of each, in
    /// order. Charges no work beside the call.
    pub(super) fn split(
        &mut self,
        name: &'static str,
        x: &Handle,
        function: impl FnOnce(&Tensor) -> Computed<Vec<Output>>,
    ) -> Result<Vec<Handle>> {
        self.enter(name)?;
        let held = [self.tensor_node(x)?];
        function(&held[0].tensor)?.into_iter().map(|part| self.push_result(part, &held)).collect()
    }

    /// Runs `function`, which creates a tensor on the CPU without operands, within the session's budget, counted as one
    /// call of `name`. Returns the tensor's handle.
    pub(super) fn create(
        &mut self,
        name: &'static str,
        function: impl FnOnce(&mut dyn Meter, &Device) -> Computed<Output>,
    ) -> Answer {
        self.enter(name)?;
        let output = function(&mut self.operation_budget(), &DEVICE)?;
        self.push_result(output, &[])
    }

    /// Runs `function`, which creates a tensor on the CPU from the method's random sequence named `sequence` and
    /// advances the sequence, within the session's budget, counted as one call of `name`. Returns the tensor's handle.
    /// Errors: `invalid-argument` for an empty or too long name, or for one sequence too many.
    pub(super) fn draw(
        &mut self,
        name: &'static str,
        sequence: &str,
        function: impl FnOnce(&mut dyn Meter, &Device, &mut Stream) -> Computed<Output>,
    ) -> Answer {
        self.enter(name)?;
        let (stream, mut budget) = self.stream(sequence)?;
        let output = function(&mut budget, &DEVICE, stream)?;
        self.push_result(output, &[])
    }
}

/// Converts an element type of the contract to candle's.
pub(super) fn element_type(dtype: Dtype) -> DType {
    match dtype {
        Dtype::U8 => DType::U8,
        Dtype::U32 => DType::U32,
        Dtype::S64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
    }
}

/// Converts candle's element type to the contract's; `internal` for a type that the contract lacks.
pub(super) fn element_type_of(dtype: DType) -> Result<Dtype> {
    Ok(match dtype {
        DType::U8 => Dtype::U8,
        DType::U32 => Dtype::U32,
        DType::I64 => Dtype::S64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::Bf16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        other => return Err(Refusal::new(ErrorCode::Internal, format!("`{}` is not in the contract", other.as_str()))),
    })
}
