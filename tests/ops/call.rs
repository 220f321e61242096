//! From a row to the call: its arguments by name, and the functions that are no operations.

use serde_json::Value;
use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Meter, Output};
use tunebox_compute::{DType, Device, Tensor};

use super::operations;
use super::row::{Row, dtype, number};

/// The results of a row.
pub(crate) fn call(row: &Row, tensors: &[Tensor], budget: &mut dyn Meter) -> Result<Vec<Tensor>> {
    Ok(call_with_reservations(row, tensors, budget)?.into_iter().map(|output| output.tensor).collect())
}

/// The results of a row with their reservations.
pub(crate) fn call_with_reservations(row: &Row, tensors: &[Tensor], budget: &mut dyn Meter) -> Result<Vec<Output>> {
    let read = |output: Result<Tensor>| {
        output.map(|tensor| vec![Output { tensor, reservation: None, backward: ops::Cost::default(), grad_fn: None }])
    };
    match (row.op.as_str(), tensors) {
        ("shape", [x]) => {
            let dims: Vec<u32> = x.dims().iter().map(|length| u32::try_from(*length).unwrap()).collect();
            read(Ok(Tensor::new(dims, &Device::Cpu).unwrap()))
        }
        ("dtype", [x]) => read(Ok(x.clone())),
        ("item", [x]) => read(ops::item(x).map(|number| Tensor::new(number, &Device::Cpu).unwrap())),
        ("copy-to-list", [x]) => read(ops::list(x).map(|list| Tensor::new(list, &Device::Cpu).unwrap())),
        ("copy-to-indices", [x]) => read(ops::indices(x).map(|list| Tensor::new(list, &Device::Cpu).unwrap())),
        _ => operations::call(row, tensors, budget),
    }
}

/// One result as a list.
pub(crate) fn one(output: Result<Output>) -> Result<Vec<Output>> {
    output.map(|output| vec![output])
}

impl Row {
    /// An argument by the name that the contract gives it; null where the row has none.
    pub(crate) fn argument<T: Argument>(&self, name: &str) -> T {
        T::read(&self.arguments[name])
    }
}

/// A value that a row of the table can hold.
pub(crate) trait Argument {
    /// Reads it. Panics if it is another kind of value.
    fn read(value: &Value) -> Self;
}

macro_rules! arguments {
    ($($kind:ty: |$value:ident| $read:expr;)+) => {
        $(
            impl Argument for $kind {
                fn read($value: &Value) -> Self {
                    $read
                }
            }
        )+
    };
}

arguments! {
    f64: |value| number(value);
    f32: |value| number(value) as f32;
    u32: |value| u32::try_from(value.as_u64().unwrap()).unwrap();
    i32: |value| i32::try_from(value.as_i64().unwrap()).unwrap();
    bool: |value| value.as_bool().unwrap();
    DType: |value| dtype(value);
}

impl<T: Argument> Argument for Option<T> {
    fn read(value: &Value) -> Self {
        (!value.is_null()).then(|| T::read(value))
    }
}

impl<T: Argument> Argument for Vec<T> {
    fn read(value: &Value) -> Self {
        value.as_array().unwrap().iter().map(T::read).collect()
    }
}
