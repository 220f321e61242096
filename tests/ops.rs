//! Every operation of `wit/tensor.wit` against numbers from elsewhere.
//!
//! The table is `golden/ops.jsonl`; `golden/ops.py` says where each number comes from. A row gives
//! results and gradients, or the kind of refusal. Gradients are also checked against finite
//! differences, so that a wrong one in the table would be found as well.

mod call;
mod operations;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::golden;
use row::{Numbers, Row, rows};
use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::error::Error;
use tunebox_compute::ops::{Cost, Meter, Node, Output};
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor, ops};

/// What a row may take; the hostile ones ask for gigabytes.
const BUDGET: u64 = 64 << 20;

#[test]
fn results_are_those_of_the_table() {
    for row in rows().iter().filter(|row| row.refusal.is_none()) {
        let output = call::call(row, &row.tensors(false), &mut Budget::new(BUDGET));
        let output = output.unwrap_or_else(|error| panic!("{row}: {error}"));
        assert_eq!(output.len(), row.results.len(), "{row}");
        for (tensor, expected) in output.iter().zip(&row.results) {
            assert_eq!((tensor.dims(), tensor.dtype()), (expected.shape.as_slice(), expected.dtype), "{row}");
            expected.assert_close(&numbers(tensor), &row.to_string());
        }
    }
}

#[test]
fn gradients_are_those_of_the_table() {
    for row in rows().iter().filter(|row| row.gradients.is_some()) {
        let leaves = row.tensors(true);
        let found = gradients(row, &leaves);
        for ((expected, found), leaf) in row.gradients.as_ref().unwrap().iter().zip(&found).zip(&leaves) {
            match (expected, found) {
                (None, None) => {}
                (Some(expected), Some(found)) => {
                    assert_eq!(found.dims(), leaf.dims(), "{row}");
                    let expected = Numbers::of(leaf.dtype(), leaf.dims(), expected);
                    expected.assert_close(&numbers(found), &format!("gradient of {row}"));
                }
                (expected, found) => panic!("{row}: gradient {found:?} where the table has {expected:?}"),
            }
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_results() {
    const STEP: f64 = 1e-5;
    let mut checked = BTreeSet::new();
    for row in rows().iter().filter(|row| row.differences && row.operands.iter().any(Numbers::is_double)) {
        let leaves = row.tensors(true);
        for ((place, leaf), found) in leaves.iter().enumerate().zip(gradients(row, &leaves)) {
            let Some(found) = found.filter(|_| leaf.dtype() == DType::F64) else { continue };
            for (entry, found) in numbers(&found).into_iter().enumerate().filter(|(_, found)| found.is_finite()) {
                let [above, below] = [STEP, -STEP].map(|step| loss_at(row, place, entry, step));
                let slope = (above - below) / (2. * STEP);
                let tolerance = 1e-7 * (1. + slope.abs().max(above.abs()));
                assert!((slope - found).abs() < tolerance, "{row}: {found} is not the slope {slope} of entry {entry}");
                checked.insert(row.op.clone());
            }
        }
    }
    assert!(checked.len() > 50, "only {checked:?} were checked");
}

#[test]
fn hostile_arguments_are_refused_and_nothing_is_held() {
    for row in rows().iter().filter(|row| row.refusal.is_some()) {
        let mut ledger = Budget::new(BUDGET);
        let error = call::call(row, &row.tensors(false), &mut ledger).err();
        let error = error.unwrap_or_else(|| panic!("{row} is not refused"));
        assert_eq!(Some(kind(&error)), row.refusal.as_deref(), "{row}: {error}");
        assert_eq!(ledger.held(), 0, "{row}");
    }
}

#[test]
fn every_function_of_the_contract_has_a_row() {
    let promised = promised(include_str!("../wit/tensor.wit"));
    let rows: BTreeSet<String> = rows().into_iter().map(|row| row.op).collect();
    // Handles and their scopes belong to the sandbox, whose own tests hold them to the contract.
    let elsewhere: BTreeSet<String> = ["keep".to_owned()].into();
    assert!(promised.len() > 90, "the contract was not understood: {promised:?}");
    let missing: Vec<_> = promised.difference(&rows).filter(|name| !elsewhere.contains(*name)).collect();
    let unknown: Vec<_> = rows.difference(&promised).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:?}; not in the contract: {unknown:?}");
}

#[test]
fn what_an_operation_holds_is_the_size_of_its_result() {
    for row in rows().iter().filter(|row| row.refusal.is_none()) {
        let mut ledger = Budget::new(BUDGET);
        let output = call::call_with_reservations(row, &row.tensors(false), &mut ledger).unwrap();
        let owned = output.iter().filter(|output| output.reservation.is_some());
        let bytes: usize = owned.map(|output| output.tensor.elem_count() * output.tensor.dtype().size_in_bytes()).sum();
        assert_eq!(ledger.held(), bytes as u64, "{row}");
        drop(output);
        assert_eq!(ledger.held(), 0, "{row}");
    }
}

/// Sums what operations say that they cost, and lets them do it.
#[derive(Default)]
struct Bill {
    total: Cost,
}

impl Meter for Bill {
    fn charge(&mut self, cost: Cost) -> tunebox_compute::Result<Reservation> {
        let Cost { bytes, scratch, work, .. } = self.total;
        let sums = (bytes + cost.bytes, scratch + cost.scratch, work + cost.work);
        self.total = Cost { bytes: sums.0, scratch: sums.1, work: sums.2, ..cost };
        Budget::new(BUDGET).reserve(cost.bytes + cost.scratch)
    }
}

/// A budget is worth as much as the costs that it is spent on: they are the same on every machine, and a change of
/// any of them needs a new version of the table.
#[test]
fn costs_are_those_of_this_version_of_the_table() {
    let mut bills: BTreeMap<String, (Bill, u64)> = BTreeMap::new();
    for row in rows().iter().filter(|row| row.refusal.is_none()) {
        let (bill, back) = bills.entry(row.op.clone()).or_default();
        call::call(row, &row.tensors(false), bill).unwrap();
        let output = call::call_with_reservations(row, &row.tensors(true), &mut Budget::new(BUDGET)).unwrap();
        *back += output.iter().map(|output| output.backward.work).sum::<u64>();
    }
    let line = |(op, (bill, back)): (&String, &(Bill, u64))| {
        let Cost { kind, bytes, scratch, work, .. } = bill.total;
        format!("{op} {kind:?}: work {work}, of a gradient {back}; bytes {bytes}, scratch {scratch}\n")
    };
    let lines: String = bills.iter().map(line).collect();
    golden::assert_file("tests/golden/costs.txt", &format!("version {}\n{lines}", ops::COSTS));
}

#[test]
fn random_numbers_come_from_the_sequence_and_from_nothing_else() {
    let draw = |position: u64| {
        let (budget, sequence) = (&mut Budget::new(BUDGET), &mut Stream::at(7, "noise", position));
        let normal = ops::randn(budget, &Device::Cpu, sequence, &[64, 64]).unwrap().tensor;
        let uniform = ops::rand(budget, &Device::Cpu, sequence, &[4096]).unwrap().tensor;
        let order = ops::randperm(budget, &Device::Cpu, sequence, 100).unwrap().tensor;
        ([normal, uniform, order].map(|tensor| numbers(&tensor)), sequence.position())
    };
    let ([normal, uniform, mut order], position) = draw(0);
    assert_eq!(draw(0).0, [normal.clone(), uniform.clone(), order.clone()]);
    assert_ne!(draw(position).0[1], uniform);
    // Four standard errors of a mean of 4,096 numbers are 0.0625 for the normal ones, 0.018 for the others.
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
    assert!(mean(&normal).abs() < 0.0625 && (mean(&uniform) - 0.5).abs() < 0.018);
    assert!(uniform.iter().all(|number| (0. ..1.).contains(number)));
    order.sort_by(f64::total_cmp);
    assert_eq!(order, (0..100).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn a_refused_draw_leaves_the_sequence_where_it_was() {
    let sequence = &mut Stream::new(7, "noise");
    assert!(ops::randn(&mut Budget::new(15), &Device::Cpu, sequence, &[4]).is_err());
    assert_eq!(sequence.position(), 0);
}

/// The names of all functions in a WIT interface.
fn promised(wit: &str) -> BTreeSet<String> {
    let lines = wit.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines
        .filter_map(|line| line.split_once(": func("))
        .map(|(name, _)| name.trim_start_matches('%').to_owned())
        .collect()
}

/// The kind of an error, as the table writes it.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Argument(_) => "argument",
        Error::Shape(_) => "shape",
        Error::Dtype(_) => "dtype",
        Error::OutOfMemory { .. } => "memory",
        _ => "another",
    }
}

/// All numbers of a tensor.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// The weight of the i-th number of a result in the loss.
fn weight(place: usize) -> f64 {
    ((7 * place) % 5) as f64 / 2. - 1. + 0.25
}

/// The gradients of the weighted sum of a row's results.
fn gradients(row: &Row, leaves: &[Tensor]) -> Vec<Option<Tensor>> {
    let mut ledger = Budget::new(BUDGET);
    let output =
        call::call_with_reservations(row, leaves, &mut ledger).unwrap_or_else(|error| panic!("{row}: {error}"));
    let (mut place, mut loss) = (0, None);
    for part in output {
        let weights: Vec<f64> = (place..place + part.tensor.elem_count()).map(weight).collect();
        place += part.tensor.elem_count();
        if !part.tensor.dtype().is_float() {
            continue;
        }
        let weights = Tensor::from_vec(weights, part.tensor.dims(), part.tensor.device()).unwrap();
        let part = keep(part, leaves.iter().map(|leaf| node(leaf.clone())).collect());
        let wide = keep(ops::cast(&mut ledger, &part.tensor, DType::F64).unwrap(), vec![part]);
        let product = keep(ops::multiply(&mut ledger, &wide.tensor, &weights).unwrap(), vec![wide]);
        let sum = keep(ops::sum(&mut ledger, &product.tensor, None, false).unwrap(), vec![product]);
        loss = Some(match loss {
            None => sum,
            Some(loss) => {
                let loss: Arc<Node> = loss;
                keep(ops::add(&mut ledger, &loss.tensor, &sum.tensor).unwrap(), vec![loss, sum])
            }
        });
    }
    let leaves: Vec<&Tensor> = leaves.iter().collect();
    loss.map_or(vec![None; leaves.len()], |loss| ops::gradients(&mut ledger, &loss.order(), &leaves).unwrap())
}

/// A tensor that no operation made.
fn node(tensor: Tensor) -> Arc<Node> {
    Arc::new(Node::new(tensor, Arc::new(Budget::new(0).reserve(0).unwrap()), Budget::new(0).reserve(0).unwrap()))
}

/// The result of an operation on these operands.
fn keep(output: Output, operands: Vec<Arc<Node>>) -> Arc<Node> {
    let [bytes, own] = [0, 0].map(|bytes| Budget::new(0).reserve(bytes).unwrap());
    Arc::new(Node::new(output.tensor, Arc::new(bytes), own).with_operands(operands, output.grad_fn, output.backward))
}

/// The weighted sum of a row's results with one number of one operand moved.
fn loss_at(row: &Row, place: usize, entry: usize, step: f64) -> f64 {
    let mut row = row.clone();
    row.operands[place].values[entry] += step;
    let output = call::call(&row, &row.tensors(false), &mut Budget::new(BUDGET)).unwrap();
    output.iter().flat_map(numbers).enumerate().map(|(place, number)| weight(place) * number).sum()
}
