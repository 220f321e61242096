//! Handles, scopes and reserved bytes of tensors; what the operations compute is checked in `tests/ops.rs`.

use std::sync::Arc;

use candle_core::{Device, Var};
use tunebox_compute::budget::Budget;
use tunebox_compute::ops::Node;
use wasmtime::component::Resource;

use super::*;
use crate::bindings::run::Host as Run;
use crate::cause::Cause;
use crate::limits::Limits;
use crate::settings::SessionSettings;
use crate::state::{KEPT_BYTES, OPERAND_BYTES, State, TENSOR_BYTES};
use crate::train_state::tests::shared;

fn state(limits: Limits) -> State {
    let budget = Budget::new(limits.device_bytes);
    State::new(SessionSettings { limits, seed: 7, ..SessionSettings::default() }, budget, shared())
}

/// Returns a handle of a variable of 4 numbers, which stands for a tap that gradients lead to.
fn leaf(state: &mut State) -> Handle {
    let tensor = Var::ones(4, candle_core::DType::F32, &Device::Cpu).unwrap().as_tensor().clone();
    let bytes = Arc::new(state.reserve(16).unwrap());
    state.push_tensor(tensor, bytes).unwrap()
}

/// Returns a borrowed handle of the same tensor.
fn lend(handle: &Handle) -> Handle {
    Resource::new_borrow(handle.rep())
}

/// Returns the cause of a trap; panics for an error that the method would get.
fn cause(refusal: Refusal) -> Cause {
    match refusal {
        Refusal::Trap(error) => error.downcast_ref::<Cause>().unwrap().clone(),
        Refusal::Error(error) => panic!("{} instead of a trap", error.message),
    }
}

#[test]
fn dropping_a_scope_frees_all_made_since_but_what_was_kept() {
    let mut state = state(Limits::default());
    let mut crossing = HostContext::new(&mut state);
    let before = crossing.full(vec![4], 1.).unwrap();
    let scope = HostScope::new(&mut crossing).unwrap();
    let lost = crossing.full(vec![4], 2.).unwrap();
    let kept = crossing.full(vec![4], 3.).unwrap();
    crossing.keep(Resource::new_borrow(scope.rep()), lend(&kept)).unwrap();
    assert_eq!(crossing.budget.held(), 3 * (16 + TENSOR_BYTES) + KEPT_BYTES);
    HostScope::drop(&mut crossing, scope).unwrap();
    assert_eq!(crossing.budget.held(), 2 * (16 + TENSOR_BYTES));
    assert!(matches!(cause(crossing.negate(lend(&lost)).unwrap_err()), Cause::FreedHandle));
    assert_eq!(crossing.copy_to_list(before).unwrap(), [1.; 4]);
    assert_eq!(crossing.copy_to_list(kept).unwrap(), [3.; 4]);
    // The method still drops its own handle of a freed tensor, and nothing is given back twice.
    HostTensor::drop(&mut crossing, lost).unwrap();
    assert_eq!(crossing.budget.held(), 2 * (16 + TENSOR_BYTES));
}

#[test]
fn an_inner_scope_does_not_free_what_the_outer_one_holds() {
    let mut state = state(Limits::default());
    let mut crossing = HostContext::new(&mut state);
    let outer = HostScope::new(&mut crossing).unwrap();
    let first = crossing.full(vec![4], 1.).unwrap();
    let inner = HostScope::new(&mut crossing).unwrap();
    let kept = crossing.full(vec![4], 2.).unwrap();
    crossing.keep(Resource::new_borrow(inner.rep()), lend(&kept)).unwrap();
    HostScope::drop(&mut crossing, inner).unwrap();
    assert_eq!(crossing.budget.held(), 2 * (16 + TENSOR_BYTES));
    HostScope::drop(&mut crossing, outer).unwrap();
    assert_eq!(crossing.budget.held(), 0);
    assert!(crossing.copy_to_list(first).is_err() && crossing.copy_to_list(kept).is_err());
}

#[test]
fn bytes_stay_taken_as_long_as_a_graph_needs_them() {
    let mut state = state(Limits::default());
    let tap = leaf(&mut state);
    let mut crossing = HostContext::new(&mut state);
    let power = crossing.exp(lend(&tap)).unwrap();
    let total = crossing.sum(lend(&power), None, false).unwrap();
    HostTensor::drop(&mut crossing, power).unwrap();
    assert_eq!(crossing.budget.held(), 16 + 16 + 4 + 3 * TENSOR_BYTES + 2 * OPERAND_BYTES);
    HostTensor::drop(&mut crossing, total).unwrap();
    assert_eq!(crossing.budget.held(), 16 + TENSOR_BYTES);
}

#[test]
fn a_view_costs_its_place_and_keeps_the_numbers_of_its_tensor_charged() {
    let mut state = state(Limits::default());
    let mut crossing = HostContext::new(&mut state);
    let whole = crossing.full(vec![4], 1.).unwrap();
    let part = crossing.slice(lend(&whole), 0, 1, 2).unwrap();
    HostTensor::drop(&mut crossing, whole).unwrap();
    assert_eq!(crossing.budget.held(), 16 + TENSOR_BYTES);
    HostTensor::drop(&mut crossing, part).unwrap();
    assert_eq!(crossing.budget.held(), 0);
}

#[test]
fn a_result_past_the_byte_limit_ends_the_method_before_it_is_made() {
    let mut state = state(Limits { device_bytes: 1 << 20, ..Limits::default() });
    let mut crossing = HostContext::new(&mut state);
    let refusal = crossing.zeros(vec![1 << 20], Dtype::F32).unwrap_err();
    assert!(matches!(cause(refusal), Cause::DeviceBytes { .. }));
    assert!(crossing.budget.peak() < 1 << 20);
}

#[test]
fn reading_past_the_step_is_an_error_that_the_method_survives() {
    let mut state = state(Limits { readback_bytes: 20, ..Limits::default() });
    let mut crossing = HostContext::new(&mut state);
    let four = crossing.full(vec![4], 1.).unwrap();
    let one = crossing.slice(lend(&four), 0, 0, 1).unwrap();
    assert_eq!(crossing.copy_to_list(lend(&four)).unwrap(), [1.; 4]);
    assert_eq!(crossing.item(lend(&one)).unwrap(), 1.);
    for refusal in [crossing.item(lend(&one)).map(drop), crossing.copy_to_list(four).map(drop)] {
        let Err(Refusal::Error(error)) = refusal else { panic!("{refusal:?} past the limit") };
        assert_eq!(error.code, "out-of-budget");
    }
    assert!(crossing.negate(one).is_ok());
}

#[test]
fn indices_come_back_as_they_are_and_numbers_do_not() {
    let mut state = state(Limits { readback_bytes: 12, ..Limits::default() });
    let mut crossing = HostContext::new(&mut state);
    let indices = crossing.from_indices(vec![7, u32::MAX], vec![2]).unwrap();
    assert_eq!(crossing.copy_to_indices(lend(&indices)).unwrap(), [7, u32::MAX]);
    let one = crossing.full(vec![1], 1.).unwrap();
    for (tensor, code) in [(one, "dtype-mismatch"), (indices, "out-of-budget")] {
        let Err(Refusal::Error(error)) = crossing.copy_to_indices(tensor) else { panic!("{code:?} is no error") };
        assert_eq!(error.code, code);
    }
}

#[test]
fn a_chain_past_the_depth_of_a_graph_ends_the_method_and_one_without_a_graph_does_not() {
    let mut state = state(Limits { graph_depth: 10, ..Limits::default() });
    let tap = leaf(&mut state);
    let mut crossing = HostContext::new(&mut state);
    let mut free = crossing.detach(lend(&tap)).unwrap();
    for _ in 0..20 {
        free = crossing.negate(free).unwrap();
    }
    let mut tracked = tap;
    for _ in 0..10 {
        tracked = crossing.negate(tracked).unwrap();
    }
    assert!(matches!(cause(crossing.negate(tracked).unwrap_err()), Cause::GraphDepth { limit: 10 }));
}

/// Every link is detached from the one before, so that no graph is deep; only the reserved bytes could grow.
#[test]
fn links_that_are_cut_off_free_what_is_behind_them() {
    let mut state = state(Limits { host_calls: u64::MAX, ..Limits::default() });
    let tap = leaf(&mut state);
    let mut crossing = HostContext::new(&mut state);
    let mut link = crossing.negate(lend(&tap)).unwrap();
    let (mut held, names) = (0, vec!["loss".to_owned()]);
    crossing.reports = crate::reports::Reports::new(names, &Limits::default());
    for round in 0..200_000 {
        let cut = crossing.detach(lend(&link)).unwrap();
        HostTensor::drop(&mut crossing, link).unwrap();
        link = crossing.add(lend(&cut), lend(&tap)).unwrap();
        HostTensor::drop(&mut crossing, cut).unwrap();
        held = if round == 0 { crossing.budget.held() } else { held };
    }
    assert_eq!(crossing.budget.held(), held);
    let value = crossing.sum(lend(&link), None, false).unwrap();
    Run::metric_of(&mut crossing, "loss".into(), value).unwrap();
}

/// The handle at the end of a long graph is dropped on a thread with a stack of the default size.
#[test]
fn a_graph_is_freed_on_a_small_stack() {
    let mut state = state(Limits { graph_depth: 20_000, ..Limits::default() });
    let tap = leaf(&mut state);
    let mut crossing = HostContext::new(&mut state);
    let mut link = crossing.negate(lend(&tap)).unwrap();
    for _ in 1..20_000 {
        let next = crossing.add(lend(&link), lend(&tap)).unwrap();
        HostTensor::drop(&mut crossing, std::mem::replace(&mut link, next)).unwrap();
    }
    HostTensor::drop(&mut crossing, link).unwrap();
}

/// A loss of 400 powers of 100,000 numbers: a gradient goes back through one in milliseconds, and through all in a
/// second.
fn powers(state: &mut State) -> Arc<Node> {
    let tensor = Var::ones(100_000, candle_core::DType::F32, &Device::Cpu).unwrap().as_tensor().clone();
    let bytes = Arc::new(state.reserve(400_000).unwrap());
    let mut link = state.push_tensor(tensor, bytes).unwrap();
    for _ in 0..400 {
        state.meters.begin(10.0);
        link = HostContext::new(state).power(link, 1.5).unwrap();
    }
    let loss = HostContext::new(state).sum(link, None, false).unwrap();
    state.meters.begin(10.0);
    state.tensor_node(&loss).unwrap()
}

#[test]
fn a_gradient_ends_when_the_time_of_its_step_is_up() {
    let limits = Limits { step_wall_seconds: 0.2, device_bytes: 8 << 30, ..Limits::default() };
    let mut state = state(limits);
    let loss = powers(&mut state);
    let begun = std::time::Instant::now();
    let error = ops::gradients(&mut state.operation_budget(), &loss.order(), &[]).unwrap_err();
    assert!(matches!(error, tunebox_compute::Error::OutOfTime { .. }), "{error}");
    assert!((0.1..0.7).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
}

#[test]
fn a_list_that_names_one_handle_too_often_is_refused_before_it_is_looked_up() {
    let mut state = state(Limits::default());
    let mut crossing = HostContext::new(&mut state);
    let one = crossing.full(vec![1], 1.).unwrap();
    let many = (0..100_000).map(|_| lend(&one)).collect();
    let Err(Refusal::Error(error)) = crossing.concat(many, 0) else { panic!("no refusal") };
    assert_eq!(error.code, "invalid-argument");
}

#[test]
fn a_resumed_random_sequence_goes_on_where_it_was() {
    let mut first = state(Limits::default());
    let mut crossing = HostContext::new(&mut first);
    crossing.randn("noise".into(), vec![5]).unwrap();
    let positions = crossing.stream_positions();
    let next = crossing.randn("noise".into(), vec![5]).unwrap();
    let next = crossing.copy_to_list(next).unwrap();
    let mut second = state(Limits::default());
    second.restore_streams(&positions);
    let mut crossing = HostContext::new(&mut second);
    let resumed = crossing.randn("noise".into(), vec![5]).unwrap();
    assert_eq!(crossing.copy_to_list(resumed).unwrap(), next);
}

#[test]
fn a_side_without_rows_has_no_tensors() {
    let mut state = state(Limits::default());
    let none = Arc::new(tunebox_model::rows::Rows::new(Vec::new(), Vec::new()).unwrap());
    let rows = state.push_rows(&none).unwrap();
    let mut host = HostContext::new(&mut state);
    let held = host.budget.held();
    let error = match crate::bindings::data::HostRows::mask(&mut host, Resource::new_borrow(rows.rep())) {
        Err(Refusal::Error(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.code == "invalid-argument" && error.message.contains("no rows"), "{error:?}");
    assert_eq!(host.budget.held(), held);
}
