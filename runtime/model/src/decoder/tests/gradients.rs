//! Compares taps and gradients of whole models with the slow reference (`twin`).

use std::collections::HashMap;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor};

use super::twin::Twin;
use crate::adapter::{AdapterKind, AdapterSettings, Targets};
use crate::configuration::Configuration;
use crate::policy::{Policy, Scored, Seeds, View};
use crate::rows::Rows;
use crate::tiny::{self, adapter};

const TEMPERATURE: f32 = 0.8;

/// Seeds of three taps for rows.
pub(super) fn seeds(rows: &Rows) -> Seeds {
    let shape = (rows.count(), rows.width());
    let draw = |(tap, name)| {
        let draws = Stream::new(4, name).normals(shape.0 * shape.1);
        (tap, Tensor::from_vec(draws, shape, &Device::Cpu).unwrap())
    };
    [(Tap::Logprob, "logprob"), (Tap::Entropy, "entropy"), (Tap::MeanLogprob, "mean")].map(draw).into_iter().collect()
}

fn check(name: &str, configuration: Configuration, settings: &AdapterSettings) {
    let policy = tiny::policy(configuration, settings);
    let rows = tiny::rows();
    let all = TapSet::of(&[Tap::Entropy, Tap::LogSumSquare, Tap::MeanLogit, Tap::MeanLogprob]);
    let mut scored = policy.score(&View::Policy, &rows, all, TEMPERATURE, true).unwrap();
    let seeds = seeds(&rows);
    policy.backward(&mut scored, &seeds).unwrap();
    let twin = Twin::new(policy.model(), policy.adapter());
    check_taps(name, &scored, &twin);
    check_gradients(name, &policy, &twin.gradients(&rows, &seeds, f64::from(TEMPERATURE)));
}

fn check_taps(name: &str, scored: &Scored, twin: &Twin) {
    let rows = &scored.rows;
    for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
        let wanted = twin.taps(ids, marks, f64::from(TEMPERATURE));
        for (tap, found) in scored.taps.iter() {
            let found = found.get(row).unwrap().to_vec1::<f32>().unwrap();
            let wanted = wanted.as_ref().and_then(|taps| taps.get(tap));
            let mut wanted = wanted.map_or(Vec::new(), |tap| tap.to_vec1::<f64>().unwrap()).into_iter();
            for (at, found) in found.into_iter().enumerate() {
                let marked = marks.get(at).copied().unwrap_or(false);
                let wanted = if marked { wanted.next().unwrap() } else { 0.0 };
                let error = (f64::from(found) - wanted).abs();
                assert!(error < 1e-5, "{name}: {tap:?} of row {row}, token {at}: {found} for {wanted}");
            }
        }
    }
}

/// The seeds of the log-probability alone, for `tiny::rows`.
pub(super) fn logprob_seeds() -> Seeds {
    seeds(&tiny::rows()).into_iter().filter(|(tap, _)| *tap == Tap::Logprob).collect()
}

/// Checks the gradient that was summed up, along some directions, with the difference of losses a step to both sides.
pub(super) fn check_differences(what: &str, policy: &Policy, step: f32, loss: impl Fn() -> f64) {
    let parameters = policy.parameters();
    let (gradient, values) = (tiny::numbers(parameters.gradients()), tiny::numbers(&parameters.snapshot().unwrap()));
    for draw in ["one", "two", "three"] {
        let direction = Stream::new(5, draw).normals(gradient.len());
        let move_by = |by: f32| {
            let moved: Vec<f32> = values.iter().zip(&direction).map(|(value, along)| value + along * by).collect();
            parameters.assign(None, &Tensor::new(moved, &Device::Cpu).unwrap()).unwrap();
        };
        let [right, left] = [step, -step].map(|by| {
            move_by(by);
            loss()
        });
        move_by(0.0);
        let wanted = (right - left) / (2.0 * f64::from(step));
        let found: f64 = gradient.iter().zip(&direction).map(|(a, b)| f64::from(a * b)).sum();
        let length: f64 = gradient.iter().map(|value| f64::from(value * value)).sum::<f64>().sqrt();
        assert!((found - wanted).abs() < 5e-3 * length.max(1.0), "{what}: {found} for {wanted}, length {length}");
    }
}

pub(super) fn check_gradients(name: &str, policy: &Policy, wanted: &HashMap<String, Tensor>) {
    let length = |tensor: &Tensor| tensor.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
    let largest = wanted.values().map(length).fold(0.0, f64::max);
    for (number, slot) in policy.parameters().slots().iter().enumerate() {
        let found = policy.parameters().gradient(number).unwrap().to_dtype(DType::F64).unwrap();
        let wanted = &wanted[&slot.name];
        // Some gradients are exactly 0, such as that of a key's bias without rotation: a softmax does not
        // see what is added to all scores. They are measured against what f32 resolves in the others.
        let error = length(&(&found - wanted).unwrap()) / length(wanted).max(1e-2 * largest).max(f64::MIN_POSITIVE);
        assert!(error < 1e-5, "{name}: `{}` is off by {error:e}", slot.name);
    }
}

fn check_families(kind: AdapterKind) {
    for (name, configuration) in tiny::families() {
        check(name, configuration, &adapter(kind));
    }
}

#[test]
fn lora_gradients_are_those_of_the_twin_in_every_family() {
    check_families(AdapterKind::Lora);
}

#[test]
fn rslora_gradients_are_those_of_the_twin_in_every_family() {
    check_families(AdapterKind::RsLora);
}

#[test]
fn dora_gradients_are_those_of_the_twin_in_every_family() {
    check_families(AdapterKind::Dora);
}

#[test]
fn full_gradients_are_those_of_the_twin_in_every_family() {
    check_families(AdapterKind::Full);
}

#[test]
fn gradients_of_modules_beside_low_rank_factors_are_those_of_the_twin_in_every_family() {
    for (name, configuration) in tiny::families() {
        let [.., down] = configuration.expert_names.maps;
        let cases: [(&[&str], AdapterKind); 5] = [
            (&["embed_tokens"], AdapterKind::Lora),
            (&["lm_head"], AdapterKind::Lora),
            (&["embed_tokens", "lm_head"], AdapterKind::Dora),
            (&["norm"], AdapterKind::Lora),
            (&[down, "o_proj", "model.norm"], AdapterKind::RsLora),
        ];
        for (modules, kind) in cases {
            for ensure_weight_tying in [false, true] {
                let names_vocabulary = modules.iter().any(|name| ["embed_tokens", "lm_head"].contains(name));
                if ensure_weight_tying && !(names_vocabulary && configuration.tied) {
                    continue;
                }
                let modules_to_save = modules.iter().map(|name| (*name).to_owned()).collect();
                // In the lowest block the factors alone would end the backward pass early.
                let settings =
                    AdapterSettings { modules_to_save, ensure_weight_tying, layers: Some(vec![1]), ..adapter(kind) };
                check(&format!("{name} with {modules:?}"), configuration.clone(), &settings);
            }
        }
    }
}

#[test]
fn rows_turn_by_their_own_length_in_one_batch() {
    // Rows of 3 and 5 tokens beside rows of 6 and 9.
    check("short and long", tiny::phi3(5), &adapter(AdapterKind::Lora));
}

#[test]
fn gradients_are_right_where_only_some_places_are_trained() {
    for names in [vec!["q_proj", "v_proj"], vec!["o_proj"], vec!["down_proj"], vec!["k_proj", "up_proj"]] {
        let targets = Targets::Modules(names.iter().map(|name| (*name).to_owned()).collect());
        for layers in [None, Some(vec![1])] {
            let settings = AdapterSettings { targets: targets.clone(), layers, ..adapter(AdapterKind::Lora) };
            check(names[0], tiny::gemma3(), &settings);
        }
    }
}
