//! One line of `golden/ops.jsonl`.

use std::fmt;

use candle_core::Var;
use serde_json::Value;
use tunebox_compute::{DType, Device, Tensor};

/// An operation, what goes in, and what comes of it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The name in `wit/tensor.wit`.
    pub(crate) op: String,
    /// The tensors that go in.
    pub(crate) operands: Vec<Numbers>,
    /// The other arguments, by name.
    pub(crate) arguments: Value,
    /// The tensors that come out.
    pub(crate) results: Vec<Numbers>,
    /// The gradient of each operand.
    pub(crate) gradients: Option<Vec<Option<Vec<f64>>>>,
    /// Whether the results are smooth where the row looks, so that differences tell the slope.
    pub(crate) differences: bool,
    /// The kind of error.
    pub(crate) refusal: Option<String>,
}

/// Numbers with a shape and an element type.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// The element type.
    pub(crate) dtype: DType,
    /// The length of each axis.
    pub(crate) shape: Vec<usize>,
    /// The numbers in row-major order.
    pub(crate) values: Vec<f64>,
}

/// The whole table.
pub(crate) fn rows() -> Vec<Row> {
    include_str!("../golden/ops.jsonl").lines().map(|line| Row::read(&serde_json::from_str(line).unwrap())).collect()
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes: Vec<_> = self.operands.iter().map(|operand| (&operand.shape, operand.dtype)).collect();
        write!(f, "`{}` of {shapes:?} with {}", self.op, self.arguments)
    }
}

impl Row {
    fn read(line: &Value) -> Self {
        let list =
            |name: &str| line[name].as_array().map_or(&[][..], Vec::as_slice).iter().map(Numbers::read).collect();
        let gradient = |numbers: &Value| numbers.as_array().map(|numbers| numbers.iter().map(number).collect());
        Self {
            op: line["op"].as_str().unwrap().to_owned(),
            operands: list("operands"),
            arguments: line["arguments"].clone(),
            results: list("results"),
            gradients: line["gradients"].as_array().map(|operands| operands.iter().map(gradient).collect()),
            differences: line["differences"].as_bool().unwrap_or(false),
            refusal: line["refusal"].as_str().map(str::to_owned),
        }
    }

    /// The operands as tensors; the floating-point ones as leaf variables if asked for.
    pub(crate) fn tensors(&self, leaves: bool) -> Vec<Tensor> {
        let leaf = |numbers: &Numbers| {
            let tensor = numbers.tensor();
            if leaves && tensor.dtype().is_float() {
                return Var::from_tensor(&tensor).unwrap().as_tensor().clone();
            }
            tensor
        };
        self.operands.iter().map(leaf).collect()
    }
}

impl Numbers {
    fn read(numbers: &Value) -> Self {
        let shape: Vec<usize> =
            numbers["shape"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap() as usize).collect();
        let values = match numbers["values"].as_array() {
            Some(values) => values.iter().map(number).collect(),
            None => vec![number(&numbers["fill"]); shape.iter().product()],
        };
        Self { dtype: dtype(&numbers["dtype"]), shape, values }
    }

    /// Numbers that a gradient should be.
    pub(crate) fn of(dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        Self { dtype, shape: shape.to_vec(), values: values.to_vec() }
    }

    /// Whether they are exact enough for finite differences.
    pub(crate) fn is_double(&self) -> bool {
        self.dtype == DType::F64
    }

    fn tensor(&self) -> Tensor {
        let numbers = Tensor::from_vec(self.values.clone(), self.shape.as_slice(), &Device::Cpu).unwrap();
        numbers.to_dtype(self.dtype).unwrap()
    }

    /// Compares within a few units in the last place of the element type (of the largest number for zeros).
    pub(crate) fn assert_close(&self, found: &[f64], what: &str) {
        let relative = match self.dtype {
            DType::F64 => 1e-12,
            DType::F32 => 1e-6,
            DType::F16 => 1e-3,
            DType::BF16 => 8e-3,
            _ => 0.,
        };
        assert_eq!(self.values.len(), found.len(), "{what}");
        let largest = self.values.iter().filter(|value| value.is_finite()).fold(0_f64, |a, b| a.max(b.abs()));
        for (place, (expected, found)) in self.values.iter().zip(found).enumerate() {
            let same = expected == found || (expected.is_nan() && found.is_nan());
            let scale = if *expected == 0. { largest } else { expected.abs() };
            let close = (expected - found).abs() <= relative * scale.max(largest * 1e-3);
            assert!(same || close, "{what}: number {place} is {found}, not {expected}");
        }
    }
}

/// A number of the table; JSON has no NaN and no infinity.
pub(crate) fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        Some(other) => panic!("`{other}` is not a number"),
        None => value.as_f64().unwrap(),
    }
}

/// An element type by the contract's name.
pub(crate) fn dtype(name: &Value) -> DType {
    match name.as_str().unwrap() {
        "u8" => DType::U8,
        "u32" => DType::U32,
        "s64" => DType::I64,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        other => panic!("`{other}` is not an element type"),
    }
}
