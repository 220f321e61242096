//! What the functions of `wit/tensor.wit` have in common: count the call, look the operands up, let
//! `compute::ops` pay from the session's purse and compute, give the result out.

use candle_core::{DType, Device, Tensor};
use tunebox_compute::error::Result as Computed;
use tunebox_compute::ops::{self, Admit, Made};
use tunebox_compute::random::Stream;
use wasmtime::component::Resource;

use crate::bindings::types::{Dtype, ErrorCode};
use crate::refusal::Refusal;
use crate::state::{State, TensorEntry};

/// A handle of a tensor, lent or given out.
pub(super) type Handle = Resource<TensorEntry>;
/// What almost every function answers.
pub(super) type Answer = Result<Handle, Refusal>;

impl State {
    /// A function of one tensor.
    pub(super) fn unary(
        &mut self,
        name: &'static str,
        x: &Handle,
        function: impl FnOnce(&mut dyn Admit, &Tensor) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        let x = self.held(x)?;
        let made = function(&mut self.purse(), &x.tensor)?;
        self.give_made(made, &[&x])
    }

    /// A function of two tensors.
    pub(super) fn pair(
        &mut self,
        name: &'static str,
        [a, b]: [&Handle; 2],
        function: impl FnOnce(&mut dyn Admit, &Tensor, &Tensor) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        let (a, b) = (self.held(a)?, self.held(b)?);
        let made = function(&mut self.purse(), &a.tensor, &b.tensor)?;
        self.give_made(made, &[&a, &b])
    }

    /// A function of three tensors.
    pub(super) fn triple(
        &mut self,
        name: &'static str,
        [a, b, c]: [&Handle; 3],
        function: impl FnOnce(&mut dyn Admit, &Tensor, &Tensor, &Tensor) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        let (a, b, c) = (self.held(a)?, self.held(b)?, self.held(c)?);
        let made = function(&mut self.purse(), &a.tensor, &b.tensor, &c.tensor)?;
        self.give_made(made, &[&a, &b, &c])
    }

    /// A function of a list of tensors.
    pub(super) fn several(
        &mut self,
        name: &'static str,
        tensors: &[Handle],
        function: impl FnOnce(&mut dyn Admit, &[&Tensor]) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        // Before anything is made for each of them: one handle may be named millions of times.
        if tensors.len() > ops::MAX_PARTS {
            return Err(Refusal::argument(format!("{} tensors, {} are allowed", tensors.len(), ops::MAX_PARTS)));
        }
        let held = tensors.iter().map(|tensor| self.held(tensor)).collect::<Result<Vec<_>, _>>()?;
        let operands: Vec<&Tensor> = held.iter().map(|held| &held.tensor).collect();
        let made = function(&mut self.purse(), &operands)?;
        self.give_made(made, &held.iter().collect::<Vec<_>>())
    }

    /// A new tensor.
    pub(super) fn create(
        &mut self,
        name: &'static str,
        function: impl FnOnce(&mut dyn Admit, &Device) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        let device = self.device();
        let made = function(&mut self.purse(), &device)?;
        self.give_made(made, &[])
    }

    /// A new tensor of random numbers.
    pub(super) fn draw(
        &mut self,
        name: &'static str,
        sequence: &str,
        function: impl FnOnce(&mut dyn Admit, &Device, &mut Stream) -> Computed<Made>,
    ) -> Answer {
        self.enter(name)?;
        let device = self.device();
        let (stream, mut purse) = self.stream(sequence)?;
        let made = function(&mut purse, &device, stream)?;
        self.give_made(made, &[])
    }
}

/// The element type that the contract names.
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

/// The contract's name of an element type.
pub(super) fn element_type_of(dtype: DType) -> Result<Dtype, Refusal> {
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
