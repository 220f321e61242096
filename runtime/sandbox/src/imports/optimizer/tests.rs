//! Parameters, their state, perturbations and extra parameters, on a tiny model with an adapter.

use std::sync::{Arc, Mutex};

use tunebox_compute::budget::Budget;
use tunebox_model::policy::Policy;

use super::*;
use crate::cause::Cause;
use crate::limits::Limits;
use crate::run_hooks::RunHooks;
use crate::settings::SessionSettings;
use crate::train_state::tests::tiny;

/// A run that counts the updates of a method.
struct Counting;

impl RunHooks for Counting {
    fn count_update(&mut self, policy: &mut Policy) -> Result<f32, Error> {
        policy.note_update();
        let norm = policy.parameters().gradient_norm()?;
        policy.parameters().clear_gradients()?;
        Ok(norm as f32)
    }
}

fn state_with(limits: Limits, updates_itself: bool) -> State {
    let settings = SessionSettings { limits, seed: 7, updates_itself, ..SessionSettings::default() };
    State::new(settings, Budget::new(1 << 24), Arc::new(Mutex::new(tiny(Counting))))
}

fn state() -> State {
    state_with(Limits::default(), true)
}

/// A borrowed handle of the same object.
fn lend<T: 'static>(handle: &Resource<T>) -> Resource<T> {
    Resource::new_borrow(handle.rep())
}

fn values(state: &State) -> Vec<f32> {
    state.train_state().policy.parameters().copy_value(None).unwrap().to_vec1().unwrap()
}

/// The code of an error that the method gets; panics if it ends.
fn code<T: std::fmt::Debug>(answer: Result<T>) -> String {
    match answer.unwrap_err() {
        Refusal::Error(error) => error.code,
        Refusal::Trap(error) => panic!("{error} instead of an error"),
    }
}

#[test]
fn parameters_have_the_names_roles_layers_and_shapes_of_the_adapter() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let parameters = host.parameters().unwrap();
    let described: Vec<_> = parameters
        .iter()
        .take(2)
        .map(|parameter| {
            let [name, role] = [host.name(lend(parameter)).unwrap(), host.role(lend(parameter)).unwrap()];
            (name, role, host.layer(lend(parameter)).unwrap(), host.shape(lend(parameter)).unwrap())
        })
        .collect();
    let name = |factor: &str| format!("model.layers.0.self_attn.q_proj.lora_{factor}.weight");
    assert_eq!(described[0], (name("A"), "lora-a".into(), Some(0), vec![16, 4]));
    assert_eq!(described[1], (name("B"), "lora-b".into(), Some(0), vec![4, 16]));
    let all = host.all().unwrap();
    let count: u32 = parameters.iter().map(|one| host.shape(lend(one)).unwrap().iter().product::<u32>()).sum();
    assert_eq!((host.shape(lend(&all)).unwrap(), host.role(lend(&all)).unwrap()), (vec![count], "all".into()));
    assert_eq!(host.layer(all).unwrap(), None);
}

#[test]
fn a_change_reaches_the_model_and_ends_earlier_scores() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let before = (values(&host), host.train_state().policy.generation());
    let all = host.all().unwrap();
    let change = host.push_list(&vec![0.5_f32; before.0.len()]).unwrap();
    host.subtract(lend(&all), change).unwrap();
    let wanted: Vec<f32> = before.0.iter().map(|value| value - 0.5).collect();
    assert_eq!((values(&host), host.train_state().policy.generation()), (wanted, before.1 + 1));
}

#[test]
fn a_tensor_of_another_shape_or_type_or_with_nan_changes_nothing() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let before = values(&host);
    let all = host.all().unwrap();
    let short = host.push_list(&[1_f32; 3]).unwrap();
    assert_eq!(code(host.subtract(lend(&all), short)), "shape-mismatch");
    let mut numbers = vec![0_f32; before.len()];
    numbers[3] = f32::NAN;
    let nan = host.push_list(&numbers).unwrap();
    assert_eq!(code(host.assign(lend(&all), nan)), "invalid-argument");
    let ids = host.push_list(&vec![1_u32; before.len()]).unwrap();
    assert_eq!(code(host.assign(all, ids)), "dtype-mismatch");
    assert_eq!(values(&host), before);
}

#[test]
fn where_the_host_updates_a_method_changes_its_extra_parameters_only() {
    let mut state = state_with(Limits::default(), false);
    let mut host = HostContext::new(&mut state);
    let all = host.all().unwrap();
    let count = values(&host).len();
    let change = host.push_list(&vec![1_f32; count]).unwrap();
    assert_eq!(code(host.subtract(all, change)), "unsupported");
    assert_eq!(code(host.done()), "unsupported");
    assert_eq!(code(host.add_noise("es".into(), 0, 1.0)), "unsupported");
    let initial = host.push_list(&[1_f32, 2.]).unwrap();
    let head = host.extra("head".into(), lend(&initial)).unwrap();
    host.subtract(lend(&head), initial).unwrap();
    let value = host.value(head).unwrap();
    assert_eq!(host.tensor_node(&value).unwrap().tensor.to_vec1::<f32>().unwrap(), [0., 0.]);
}

#[test]
fn a_perturbation_ends_with_its_handle_bit_for_bit() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let before = values(&host);
    let active = host.perturb("mezo".into(), 3, 0.25).unwrap();
    let perturbed = values(&host);
    assert_ne!(perturbed, before);
    assert_eq!(code(host.perturb("mezo".into(), 4, 0.25)), "invalid-argument");
    assert_eq!(code(host.done()), "invalid-argument");
    HostPerturbation::drop(&mut host, active).unwrap();
    assert_eq!(values(&host), before);
    // The same noise as an update.
    host.add_noise("mezo".into(), 3, 0.25).unwrap();
    assert_eq!(values(&host), perturbed);
}

#[test]
fn a_handle_of_an_ended_perturbation_ends_no_later_one() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let first = host.perturb("es".into(), 0, 1.0).unwrap();
    // As the end of a call does.
    host.train_state().end_perturbation().unwrap();
    let second = host.perturb("es".into(), 1, 1.0).unwrap();
    let perturbed = values(&host);
    HostPerturbation::drop(&mut host, first).unwrap();
    assert_eq!(values(&host), perturbed);
    HostPerturbation::drop(&mut host, second).unwrap();
}

#[test]
fn state_is_zeros_before_it_is_set_and_counts_as_kept_bytes() {
    let mut state = state_with(Limits { activation_bytes: 65_536, ..Limits::default() }, true);
    let mut host = HostContext::new(&mut state);
    let first = host.parameters().unwrap().remove(0);
    let fresh = host.state(lend(&first), "moment".into()).unwrap();
    assert_eq!(host.tensor_node(&fresh).unwrap().tensor.dims(), [16, 4]);
    let value = host.push_list(&[1_f32, 2., 3.]).unwrap();
    host.set_state(lend(&first), "moment".into(), value).unwrap();
    let read = host.state(lend(&first), "moment".into()).unwrap();
    assert_eq!(host.tensor_node(&read).unwrap().tensor.to_vec1::<f32>().unwrap(), [1., 2., 3.]);
    assert_eq!(host.train_state().method_parameters.bytes(), 12);
    let large = host.push_list(&vec![1_f32; 16_384]).unwrap();
    let Refusal::Trap(trap) = host.set_state(lend(&first), "other".into(), large).unwrap_err() else {
        panic!("more than the limit was kept")
    };
    assert!(matches!(trap.downcast_ref(), Some(Cause::Activations { .. })));
    for name in ["", "a/b", "ü", &"x".repeat(65)] {
        assert_eq!(code(host.state(lend(&first), name.into())), "invalid-argument", "{name}");
    }
}

#[test]
fn what_checkpoints_save_of_parameters_is_limited_and_a_replaced_state_counts_once() {
    let mut state = state_with(Limits { parameter_state_bytes: 1_000, ..Limits::default() }, true);
    let mut host = HostContext::new(&mut state);
    let value = host.push_list(&[1_f32; 200]).unwrap();
    let all = host.all().unwrap();
    for _ in 0..2 {
        host.set_state(lend(&all), "moment".into(), lend(&value)).unwrap();
    }
    let Refusal::Trap(trap) = host.extra("head".into(), value).unwrap_err() else {
        panic!("more than the limit is saved")
    };
    assert!(matches!(trap.downcast_ref(), Some(Cause::ParameterState { wanted: 1_600, limit: 1_000 })), "{trap}");
}

#[test]
fn an_extra_parameter_begins_with_its_value_in_the_run_that_is_continued() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let start = Tensor::new(&[5_f32, 6.], &tunebox_compute::Device::Cpu).unwrap();
    host.train_state().start_values.insert("head".into(), start);
    let initial = host.push_list(&[0_f32, 1.]).unwrap();
    for (name, wanted) in [("head", [5., 6.]), ("other", [0., 1.])] {
        let extra = host.extra(name.into(), lend(&initial)).unwrap();
        let value = host.value(extra).unwrap();
        assert_eq!(host.tensor_node(&value).unwrap().tensor.to_vec1::<f32>().unwrap(), wanted, "{name}");
    }
    host.train_state().method_parameters = crate::method_parameters::MethodParameters::default();
    let longer = host.push_list(&[0_f32; 3]).unwrap();
    let Refusal::Trap(trap) = host.extra("head".into(), longer).unwrap_err() else { panic!("another shape was taken") };
    assert!(trap.to_string().contains("the shape [3], and [2] beside what the run continues"), "{trap}");
}

#[test]
fn what_is_kept_of_an_extra_parameter_counts_whatever_a_method_does_with_it() {
    let mut state = state_with(Limits { activation_bytes: 65_536, ..Limits::default() }, true);
    let mut host = HostContext::new(&mut state);
    // 20,000 bytes, and as many for the gradient and for the leaf that the first read makes.
    let initial = host.push_list(&[1_f32; 5_000]).unwrap();
    let first = host.extra("first".into(), lend(&initial)).unwrap();
    let read = host.value(first).unwrap();
    host.delete_tensor(read).unwrap();
    assert_eq!(host.train_state().method_parameters.bytes(), 60_000);
    let Refusal::Trap(trap) = host.extra("second".into(), initial).unwrap_err() else {
        panic!("more than the limit is kept")
    };
    assert!(matches!(trap.downcast_ref(), Some(Cause::Activations { held: 120_000, limit: 65_536 })), "{trap}");
}

#[test]
fn a_name_that_files_of_tensors_keep_for_themselves_is_refused() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let one = host.push_list(&[1_f32]).unwrap();
    assert_eq!(code(host.extra("__metadata__".into(), one)), "invalid-argument");
    assert_eq!(code(crate::bindings::model::Host::snapshot(&mut host, "__metadata__".into())), "invalid-argument");
}

#[test]
fn the_number_of_states_and_extra_parameters_is_limited() {
    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let one = host.push_list(&[1_f32]).unwrap();
    let all = host.all().unwrap();
    for number in 0..MAX_STATES {
        host.set_state(lend(&all), format!("s{number}"), lend(&one)).unwrap();
    }
    assert_eq!(code(host.set_state(lend(&all), "more".into(), lend(&one))), "out-of-budget");
    host.set_state(all, "s0".into(), lend(&one)).unwrap();
    for number in 0..MAX_EXTRAS {
        host.extra(format!("e{number}"), lend(&one)).unwrap();
    }
    assert_eq!(code(host.extra("more".into(), lend(&one))), "out-of-budget");
    let two = host.push_list(&[1_f32, 2.]).unwrap();
    assert_eq!(code(host.extra("e0".into(), two)), "shape-mismatch");
}

#[test]
fn a_loss_on_an_extra_parameter_gives_its_gradient_until_its_value_changes() {
    use crate::bindings::learn::Host as _;
    use crate::bindings::tensor::HostTensor as _;

    let mut state = state();
    let mut host = HostContext::new(&mut state);
    let initial = host.push_list(&[3_f32, -1.]).unwrap();
    let head = host.extra("head".into(), initial).unwrap();
    let value = host.value(lend(&head)).unwrap();
    let square = host.square(lend(&value)).unwrap();
    let loss = host.sum(square, None, false).unwrap();
    host.backward(lend(&loss)).unwrap();
    host.backward(lend(&loss)).unwrap();
    let gradient = host.gradient(lend(&head)).unwrap();
    assert_eq!(host.tensor_node(&gradient).unwrap().tensor.to_vec1::<f32>().unwrap(), [12., -4.]);
    let other = host.push_list(&[0_f32, 0.]).unwrap();
    host.assign(head, other).unwrap();
    assert_eq!(code(host.backward(loss)), "invalid-argument");
}
