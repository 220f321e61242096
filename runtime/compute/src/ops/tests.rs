//! What holds for operations together: long graphs, budgets, zeros that stay zeros, element types.
//!
//! Single operations are checked by the table in `tests/ops.rs`.

use candle_core::{DType, Device, Tensor, Var};

use super::{Admit, Cost};
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

/// The gradients of the sum of a tensor.
fn back(budget: &mut Budget, y: &Tensor, leaves: &[&Tensor]) -> Vec<Option<Vec<f32>>> {
    let loss = ops::sum(budget, y, None, false).unwrap().tensor;
    let found = ops::gradients(budget, &loss, leaves).unwrap();
    found.iter().map(|gradient| gradient.as_ref().map(numbers)).collect()
}

/// 20,000 operations on one another, on a thread with the stack that threads have by default.
#[test]
fn a_graph_of_the_greatest_depth_is_walked_and_freed() {
    let depth = 20_000;
    let work = move || {
        let mut budget = ledger();
        let x = leaf(&[1.]);
        let mut y = x.clone();
        for _ in 0..depth {
            y = ops::add_scalar(&mut budget, &y, 1.).unwrap().tensor;
        }
        // The last handle is dropped on this very thread, as a session would.
        back(&mut budget, &y, &[&x])
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap();
    assert_eq!(thread.join().unwrap(), [Some(vec![1.])]);
}

/// Joins put up to three of candle's nodes into the graph, and hold lists of operands. A session lets 4,096
/// operations hang on one another, and its thread may have spent half a MiB of stack on the method.
#[test]
fn a_long_graph_of_joins_is_walked_and_freed() {
    let work = || {
        let mut budget = ledger();
        let x = leaf(&[1., 2.]);
        let mut y = x.clone();
        for _ in 0..4096 {
            let pair = ops::stack(&mut budget, &[&y], 1).unwrap().tensor;
            y = ops::concat(&mut budget, &[&ops::transpose(&pair, 0, 1).unwrap().tensor], 0).unwrap().tensor;
            y = ops::squeeze(&y, 0).unwrap().tensor;
        }
        back(&mut budget, &y, &[&x])
    };
    let thread = std::thread::Builder::new().stack_size(3 << 19).spawn(work).unwrap();
    assert_eq!(thread.join().unwrap(), [Some(vec![1., 1.])]);
}

#[test]
fn masked_numbers_do_not_spoil_the_gradient_of_others() {
    let mut budget = ledger();
    let x = leaf(&[-1., 4.]);
    let root = ops::sqrt(&mut budget, &x).unwrap().tensor;
    let mask = Tensor::new(&[0_u8, 1], &Device::Cpu).unwrap();
    let sum = ops::masked_sum(&mut budget, &root, &mask, None, false).unwrap().tensor;
    assert_eq!(back(&mut budget, &sum, &[&x]), [Some(vec![0., 0.25])]);
}

#[test]
fn a_tensor_used_twice_gets_both_gradients() {
    let mut budget = ledger();
    let x = leaf(&[3.]);
    let square = ops::multiply(&mut budget, &x, &x).unwrap().tensor;
    let sum = ops::add(&mut budget, &square, &x).unwrap().tensor;
    assert_eq!(back(&mut budget, &sum, &[&x]), [Some(vec![7.])]);
}

#[test]
fn nothing_flows_through_detach_or_to_a_leaf_that_was_not_used() {
    let mut budget = ledger();
    let (x, other) = (leaf(&[3.]), leaf(&[1.]));
    let frozen = ops::detach(&x).unwrap().tensor;
    let product = ops::multiply(&mut budget, &x, &frozen).unwrap().tensor;
    assert_eq!(back(&mut budget, &product, &[&x, &other]), [Some(vec![3.]), None]);
    assert_eq!(back(&mut budget, &frozen, &[&x]), [None]);
}

#[test]
fn a_loss_of_two_elements_is_refused() {
    let x = leaf(&[1., 2.]);
    assert!(matches!(ops::gradients(&mut ledger(), &x, &[&x]), Err(Error::Shape(_))));
}

#[test]
fn a_gradient_that_does_not_fit_is_refused() {
    let mut budget = ledger();
    let x = leaf(&[0.; 1024]);
    let y = ops::exp(&mut budget, &x).unwrap().tensor;
    let loss = ops::sum(&mut budget, &y, None, false).unwrap().tensor;
    assert!(matches!(ops::gradients(&mut Budget::new(4096), &loss, &[&x]), Err(Error::OutOfMemory { .. })));
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

/// Counts work and lets everything pass.
struct Counter(Cost);

impl Admit for Counter {
    fn admit(&mut self, cost: Cost) -> Result<Reservation> {
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

/// The gradient of a slice is as large as what it was cut from.
#[test]
fn a_gradient_through_a_slice_is_charged_for_all_of_its_operand() {
    let x = leaf(&[0.; 1000]);
    assert_eq!(ops::slice(&x, 0, 7, 1).unwrap().backward.work, 2 * 1001);
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
    for op in [ops::softmax, ops::cumulative_sum, ops::log_softmax] {
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
    let found = numbers(&ops::log_one_plus(&mut ledger(), &x).unwrap().tensor);
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
