//! Test support: policies over small models, what they say, and the distances between two lists of numbers.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use super::{model, rows};
use crate::Model;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::configuration::Configuration;
use crate::policy::{Policy, PolicySettings, View};
use crate::rows::Rows;

/// A policy without an adapter over the model of seed 1.
pub(crate) fn plain(configuration: Configuration) -> Policy {
    Policy::open(model(configuration, 1), None, PolicySettings::default()).unwrap()
}

/// The settings of a narrow adapter.
pub(crate) fn adapter(kind: AdapterKind) -> AdapterSettings {
    AdapterSettings { kind, rank: 3, alpha: 5.0, ..AdapterSettings::default() }
}

/// A policy over the model of seed 1, as if it had been trained.
pub(crate) fn policy(configuration: Configuration, adapter: &AdapterSettings) -> Policy {
    trained(model(configuration, 1), adapter, PolicySettings::default())
}

/// A policy over a model, as if it had been trained.
pub(crate) fn trained(model: Arc<Model>, adapter: &AdapterSettings, settings: PolicySettings) -> Policy {
    let policy = Policy::new(model, adapter, settings).unwrap();
    stir(&policy);
    policy
}

/// Adds noise to every trained value, so that no gradient is zero only because a fresh B is.
pub(crate) fn stir(policy: &Policy) {
    let parameters = policy.parameters();
    for (number, slot) in parameters.slots().iter().enumerate() {
        let draws = Stream::new(3, &slot.name).normals(slot.shape.iter().product());
        let draws = Tensor::from_vec(draws, slot.shape.as_slice(), &Device::Cpu).unwrap();
        let moved = (parameters.value_on_cpu(number).unwrap() + (draws * 0.1).unwrap()).unwrap();
        parameters.set(number, &moved).unwrap();
    }
}

/// The log-probabilities of `rows`, one row after another.
pub(crate) fn logprobs(policy: &Policy, view: &View) -> Vec<f32> {
    logprobs_of(policy, view, &rows(), 1.0)
}

/// The log-probabilities of some rows, one row after another.
pub(crate) fn logprobs_of(policy: &Policy, view: &View, rows: &Arc<Rows>, temperature: f32) -> Vec<f32> {
    let scored = policy.score(view, rows, TapSet::default(), temperature, false).unwrap();
    numbers(scored.tap(Tap::Logprob).unwrap())
}

/// All numbers of a tensor, which must be on the CPU: what a policy says is.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f32> {
    assert!(tensor.device().is_cpu());
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The bits of all numbers of a tensor on the CPU.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u32> {
    numbers(tensor).into_iter().map(f32::to_bits).collect()
}

/// The largest difference of two lists.
pub(crate) fn largest(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

/// The length of the difference of two lists over the length of the first.
pub(crate) fn distance(one: &[f32], other: &[f32]) -> f64 {
    let square = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| f64::from(number).powi(2)).sum::<f64>();
    let apart = square(&mut one.iter().zip(other).map(|(one, other)| one - other));
    (apart / square(&mut one.iter().copied())).sqrt()
}
