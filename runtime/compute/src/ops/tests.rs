//! What holds for operations together: long graphs, budgets, zeros that stay zeros, element types.
//!
//! Single operations are checked by the table in `tests/ops.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, TensorId, Var};

use super::{Cost, Meter, Node, Output};
use crate::budget::{Budget, Reservation};
use crate::error::{Error, Result};
use crate::ops;

mod hostile;

fn ledger() -> Budget {
    Budget::new(64 << 20)
}

fn leaf(numbers: &[f32]) -> Tensor {
    Var::from_tensor(&Tensor::new(numbers, &Device::Cpu).unwrap()).unwrap().as_tensor().clone()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    ops::list(tensor).unwrap()
}

/// The nodes of all results so far, by tensor.
#[derive(Default)]
struct Graph(HashMap<TensorId, Arc<Node>>);

impl Graph {
    /// Keeps a result as a node, and returns its tensor.
    fn keep(&mut self, output: Result<Output>) -> Tensor {
        let output = output.unwrap();
        let [bytes, own] = [0, 0].map(|bytes| ledger().reserve(bytes).unwrap());
        let node = Node::new(output.tensor.clone(), Arc::new(bytes), own);
        let operands = output.grad_fn.iter().flat_map(|grad_fn| grad_fn.operands()).map(|operand| self.node(operand));
        let node = node.with_operands(operands.collect(), output.grad_fn, output.backward);
        self.0.insert(output.tensor.id(), Arc::new(node));
        output.tensor
    }

    /// The node of a tensor: a leaf if no operation made it.
    fn node(&self, tensor: &Tensor) -> Arc<Node> {
        let [bytes, own] = [0, 0].map(|bytes| ledger().reserve(bytes).unwrap());
        let leaf = || Arc::new(Node::new(tensor.clone(), Arc::new(bytes), own));
        self.0.get(&tensor.id()).map_or_else(leaf, Arc::clone)
    }

    /// The gradients of the sum of a tensor.
    fn back(&mut self, budget: &mut Budget, y: &Tensor, leaves: &[&Tensor]) -> Vec<Option<Vec<f32>>> {
        let loss = self.keep(ops::sum(budget, y, None, false));
        let found = ops::gradients(budget, &self.node(&loss).order(), leaves).unwrap();
        found.iter().map(|gradient| gradient.as_ref().map(numbers)).collect()
    }
}

/// A chain of operations as long as a run may allow at most, and five times that, on a thread with little stack.
#[test]
fn a_long_graph_is_walked_and_freed() {
    let work = move || {
        let (budget, mut graph) = (&mut ledger(), Graph::default());
        let x = leaf(&[1.]);
        let mut y = x.clone();
        for _ in 0..100_000 {
            y = graph.keep(ops::add_scalar(budget, &y, 1.));
        }
        graph.back(budget, &y, &[&x])
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap();
    assert_eq!(thread.join().unwrap(), [Some(vec![1.])]);
}

/// A join holds a list of operands, and a view refers to the tensor that it shows.
#[test]
fn a_long_graph_of_joins_and_views_is_walked_and_freed() {
    let work = || {
        let (budget, mut graph) = (&mut ledger(), Graph::default());
        let x = leaf(&[1., 2.]);
        let mut y = x.clone();
        for _ in 0..20_000 {
            let pair = graph.keep(ops::stack(budget, &[&y], 1));
            let row = graph.keep(ops::transpose(&pair, 0, 1));
            y = graph.keep(ops::squeeze(&row, 0));
        }
        graph.back(budget, &y, &[&x])
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap();
    assert_eq!(thread.join().unwrap(), [Some(vec![1., 1.])]);
}

/// Two thousand rows of a matrix: their gradients are added in place, not as 2,000 matrices.
#[test]
fn a_gradient_through_many_slices_costs_what_they_are_long() {
    let (budget, mut graph) = (&mut Budget::new(1 << 30), Graph::default());
    let x = Var::zeros((2_000, 2_000), DType::F32, &Device::Cpu).unwrap().into_inner();
    let rows: Vec<Tensor> = (0..2_000).map(|row| graph.keep(ops::slice(&x, 0, row, 1))).collect();
    let halves = rows.chunks(1_000).map(|half| {
        let parts: Vec<&Tensor> = half.iter().collect();
        graph.keep(ops::concat(budget, &parts, 0))
    });
    let halves: Vec<Tensor> = halves.collect();
    let total = graph.keep(ops::add(budget, &halves[0], &halves[1]));
    let loss = graph.keep(ops::sum(budget, &total, None, false));
    let begun = std::time::Instant::now();
    let found = ops::gradients(budget, &graph.node(&loss).order(), &[&x]).unwrap();
    let sum = found[0].as_ref().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
    assert!(sum == 4e6 && begun.elapsed().as_secs_f64() < 2.0, "{sum}, {:?}", begun.elapsed());
}

/// A budget that stops a backward pass after a number of operations.
struct Ending(u32);

impl Meter for Ending {
    fn charge(&mut self, _: Cost) -> Result<Reservation> {
        ledger().reserve(0)
    }

    fn continue_gradient(&mut self, _: &Cost) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(Error::OutOfTime { seconds: 1., limit: 1. })?;
        Ok(())
    }
}

#[test]
fn a_gradient_ends_between_two_operations_when_it_is_told_to() {
    let (budget, mut graph) = (&mut ledger(), Graph::default());
    let x = leaf(&[1.]);
    let mut y = x.clone();
    for _ in 0..10 {
        y = graph.keep(ops::exp(budget, &y));
    }
    let loss = graph.node(&y);
    assert!(ops::gradients(&mut Ending(10), &loss.order(), &[&x]).is_ok());
    assert!(matches!(ops::gradients(&mut Ending(9), &loss.order(), &[&x]), Err(Error::OutOfTime { .. })));
}

#[test]
fn masked_numbers_do_not_spoil_the_gradient_of_others() {
    let (budget, mut graph) = (&mut ledger(), Graph::default());
    let x = leaf(&[-1., 4.]);
    let root = graph.keep(ops::sqrt(budget, &x));
    let mask = Tensor::new(&[0_u8, 1], &Device::Cpu).unwrap();
    let sum = graph.keep(ops::masked_sum(budget, &root, &mask, None, false));
    assert_eq!(graph.back(budget, &sum, &[&x]), [Some(vec![0., 0.25])]);
}

#[test]
fn a_tensor_used_twice_gets_both_gradients() {
    let (budget, mut graph) = (&mut ledger(), Graph::default());
    let x = leaf(&[3., 1.]);
    let square = graph.keep(ops::multiply(budget, &x, &x));
    let sum = graph.keep(ops::add(budget, &square, &x));
    // A slice adds to what came before it, and what comes after it to the slice; a whole one is the tensor itself.
    let part = graph.keep(ops::slice(&x, 0, 1, 1));
    let whole = graph.keep(ops::slice(&x, 0, 0, 2));
    let parts = graph.keep(ops::concat(budget, &[&part, &sum, &part, &whole], 0));
    assert_eq!(graph.back(budget, &parts, &[&x]), [Some(vec![8., 6.])]);
}

#[test]
fn nothing_flows_through_detach_or_to_a_leaf_that_was_not_used() {
    let (budget, mut graph) = (&mut ledger(), Graph::default());
    let (x, other) = (leaf(&[3.]), leaf(&[1.]));
    let frozen = graph.keep(ops::detach(&x));
    let product = graph.keep(ops::multiply(budget, &x, &frozen));
    assert_eq!(graph.back(budget, &product, &[&x, &other]), [Some(vec![3.]), None]);
    assert_eq!(graph.back(budget, &frozen, &[&x]), [None]);
}

#[test]
fn a_loss_of_two_elements_is_refused() {
    let x = leaf(&[1., 2.]);
    let loss = Graph::default().node(&x);
    assert!(matches!(ops::gradients(&mut ledger(), &loss.order(), &[&x]), Err(Error::Shape(_))));
}

#[test]
fn a_gradient_that_does_not_fit_is_refused() {
    let (budget, mut graph) = (&mut ledger(), Graph::default());
    let x = leaf(&[0.; 1024]);
    let y = graph.keep(ops::exp(budget, &x));
    let loss = graph.keep(ops::sum(budget, &y, None, false));
    let loss = graph.node(&loss);
    assert!(matches!(ops::gradients(&mut Budget::new(4096), &loss.order(), &[&x]), Err(Error::OutOfMemory { .. })));
}

/// An operand that fits, a result that does not: views of any size are free, copies of them are not.
#[test]
fn an_expanded_view_is_paid_for_when_it_is_used() {
    let mut budget = Budget::new(1 << 20);
    let x = Tensor::new(1_f32, &Device::Cpu).unwrap();
    let view = ops::expand(&x, &[2_147_483_647]).unwrap().tensor;
    let few = Tensor::new(&[1_f32, 2.], &Device::Cpu).unwrap();
    let places = ops::expand(&Tensor::new(0_u32, &Device::Cpu).unwrap(), &[2_147_483_647]).unwrap().tensor;
    for refused in [
        ops::exp(&mut budget, &view),
        ops::sum(&mut budget, &view, None, false),
        ops::add(&mut budget, &view, &view),
        ops::sort(&mut budget, &view, 0, false),
        ops::quantile(&mut budget, &view, 0.5),
        ops::flip(&mut budget, &view, 0),
        ops::concat(&mut budget, &[&view], 0),
        ops::reshape(&mut budget, &view, &[1, 2_147_483_647]),
        ops::is_finite(&mut budget, &view),
        ops::cast(&mut budget, &view, DType::F64),
        ops::dot(&mut budget, &view, &view),
        ops::masked_mean(&mut budget, &x, &view, None, false),
        ops::gather(&mut budget, &few, 0, &places),
        ops::index_select(&mut budget, &few, 0, &places),
        ops::index_add(&mut budget, &few, 0, &places, &view),
        ops::segment_sum(&mut budget, &view, &places, 1),
    ] {
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    }
    assert_eq!(budget.held(), 0);
}

/// Counts work without a limit.
struct Counter(Cost);

impl Meter for Counter {
    fn charge(&mut self, cost: Cost) -> Result<Reservation> {
        self.0 = cost;
        Budget::new(u64::MAX).reserve(cost.bytes + cost.scratch)
    }
}

#[test]
fn a_product_is_charged_for_its_multiplications_and_its_gradient_for_twice_as_many() {
    let mut counter = Counter(Cost::default());
    let (a, b) = (Tensor::zeros((20, 30), DType::F32, &Device::Cpu).unwrap(), leaf(&[0.; 1200]));
    let b = ops::reshape(&mut counter, &b, &[30, 40]).unwrap().tensor;
    let plain = ops::matmul(&mut counter, &a, &b.detach()).unwrap();
    let once = counter.0.work;
    assert_eq!((once, plain.backward), (20 * 30 * 40 + 600 + 1200 + 800, Cost::default()));
    let learning = ops::matmul(&mut counter, &a, &b).unwrap();
    assert_eq!((counter.0.work, learning.backward.work), (once, 2 * once));
}

#[test]
fn a_gradient_through_a_slice_is_charged_for_the_slice() {
    let x = leaf(&[0.; 1000]);
    assert_eq!(ops::slice(&x, 0, 7, 2).unwrap().backward.work, 2 * (2 + 2));
    assert_eq!(ops::slice(&x.detach(), 0, 7, 1).unwrap().backward, Cost::default());
}

#[test]
fn half_precision_is_computed_in_single_and_rounded_once() {
    let mut budget = ledger();
    // 1 + 256 steps of 1/256 is 2; added up in bf16 the sum would stop at 1.
    let x = Tensor::full(0.003_906_25_f32, 256, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
    let x = ops::concat(&mut budget, &[&Tensor::ones(1, DType::BF16, &Device::Cpu).unwrap(), &x], 0).unwrap().tensor;
    let sum = ops::sum(&mut budget, &x, None, false).unwrap().tensor;
    assert_eq!((sum.dtype(), ops::item(&sum).unwrap()), (DType::BF16, 2.));
}

#[test]
fn results_do_not_depend_on_the_layout_of_the_operand() {
    let mut budget = ledger();
    let x = Tensor::arange(0_f32, 12., &Device::Cpu).unwrap().reshape((3, 4)).unwrap();
    let turned = x.t().unwrap();
    let straight = turned.contiguous().unwrap();
    for op in [ops::softmax, ops::cumsum, ops::log_softmax] {
        for axis in 0..2 {
            let [a, b] = [&turned, &straight].map(|x| numbers(&op(&mut budget, x, axis).unwrap().tensor));
            assert_eq!(a, b);
        }
    }
    let slice = ops::slice(&turned, 0, 1, 2).unwrap().tensor;
    assert_eq!(numbers(&ops::sum(&mut budget, &slice, Some(0), false).unwrap().tensor), [3., 11., 19.]);
}

#[test]
fn matrices_behind_several_axes_are_multiplied_in_any_layout() {
    let mut budget = ledger();
    let numbers_of = |dims: &[usize]| {
        let count = dims.iter().product::<usize>();
        let list = (0..count).map(|place| (place % 7) as f32 - 3.).collect();
        Tensor::from_vec::<_, f32>(list, dims, &Device::Cpu).unwrap()
    };
    let (a, b) = (numbers_of(&[6, 4]), numbers_of(&[3, 2, 1, 4, 5]));
    for b in [b.clone(), b.transpose(0, 1).unwrap(), b.transpose(1, 2).unwrap()] {
        let whole = ops::matmul(&mut budget, &a, &b).unwrap().tensor;
        assert_eq!(whole.dims()[3..], [6, 5]);
        let flat = b.contiguous().unwrap().reshape((6, 4, 5)).unwrap();
        for (place, matrix) in whole.reshape((6, 6, 5)).unwrap().chunk(6, 0).unwrap().iter().enumerate() {
            let one = a.matmul(&flat.get(place).unwrap()).unwrap();
            assert_eq!(numbers(matrix), numbers(&one));
        }
    }
}

#[test]
fn the_logarithm_of_one_more_than_a_number_near_the_largest_is_finite() {
    let x = Tensor::new(&[1.4e38_f32, f32::MAX, -0.5, 1e-30], &Device::Cpu).unwrap();
    let found = numbers(&ops::log1p(&mut ledger(), &x).unwrap().tensor);
    let wanted = [87.834_7_f32, 88.722_84, -std::f32::consts::LN_2, 1e-30];
    assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= 1e-3), "{found:?}");
}

#[test]
fn an_index_that_was_expanded_from_a_scalar_is_an_index() {
    let mut budget = ledger();
    let x = Tensor::new(&[1.5_f32], &Device::Cpu).unwrap();
    let place = Tensor::new(0_u32, &Device::Cpu).unwrap();
    let index = ops::expand(&place, &[1]).unwrap().tensor;
    assert_eq!(numbers(&ops::gather(&mut budget, &x, 0, &index).unwrap().tensor), [1.5]);
    assert_eq!(numbers(&ops::segment_sum(&mut budget, &x, &index, 2).unwrap().tensor), [1.5, 0.]);
}
