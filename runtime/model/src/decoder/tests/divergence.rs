//! The divergence to a teacher: its values beside whole distributions, its gradient beside finite differences.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{Tap, TapSet};

use super::gradients::{check_differences, seeds};
use crate::adapter::AdapterKind;
use crate::configuration::Configuration;
use crate::decoder::Recompute;
use crate::policy::{DivergenceTo, Policy, PolicySettings, Seeds, Slice, TapRequest, View};
use crate::rows::Rows;
use crate::tiny::{self, logprobs, numbers};

const TEMPERATURE: f32 = 0.8;

/// The name of the teacher.
fn teacher() -> View {
    View::Teacher("large".into())
}

/// A policy over a tiny model with a teacher of another family, depth and head.
fn policy(configuration: Configuration, kind: AdapterKind, settings: PolicySettings) -> Policy {
    let mut policy = tiny::trained(tiny::model(configuration, 1), &tiny::adapter(kind), settings);
    policy.add_teacher("large", tiny::model(tiny::qwen3(), 7)).unwrap();
    policy
}

fn request(view: View, beta: f32) -> TapRequest {
    TapRequest::new(TapSet::default(), Some(DivergenceTo { view, beta }))
}

/// Seeds of the divergence, and with `more` also of the log-probability.
fn divergence_seeds(more: bool) -> Seeds {
    let drawn = seeds(&tiny::rows());
    let named = |from, to| Some((to, drawn.get(from)?.clone()));
    let other = more.then(|| named(Tap::Logprob, Tap::Logprob)).flatten();
    named(Tap::Entropy, Tap::Divergence).into_iter().chain(other).collect()
}

/// Σ seed · tap.
fn loss(policy: &Policy, beta: f32, seeds: &Seeds) -> f64 {
    let scored = policy.score(&View::Policy, &tiny::rows(), request(teacher(), beta), TEMPERATURE, false).unwrap();
    let sum = |(tap, seed): (Tap, &Tensor)| {
        f64::from((scored.tap(tap).unwrap() * seed).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap())
    };
    seeds.iter().map(sum).sum()
}

/// The gradient of that loss.
fn gradient(policy: &Policy, beta: f32, seeds: &Seeds, keep: bool) -> Vec<f32> {
    let mut scored = policy.score(&View::Policy, &tiny::rows(), request(teacher(), beta), TEMPERATURE, keep).unwrap();
    policy.backward(&mut scored, seeds).unwrap();
    numbers(policy.parameters().gradients())
}

#[test]
fn values_are_those_of_whole_distributions_at_the_end_of_each_prefix() {
    let policy = policy(tiny::gemma3(), AdapterKind::Lora, PolicySettings::default());
    let rows = tiny::rows();
    for (beta, sides) in [(0.0, [teacher(), View::Policy]), (1.0, [View::Policy, teacher()])] {
        let scored = policy.score(&View::Policy, &rows, request(teacher(), beta), 1.0, false).unwrap();
        let found = scored.tap(Tap::Divergence).unwrap().to_vec2::<f32>().unwrap();
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            for at in 0..ids.len() {
                let expected = if marks[at] {
                    let prefix = Rows::new(vec![ids[..at].to_vec()], vec![vec![false; at]]).unwrap();
                    policy.divergence(&sides[0], &sides[1], &prefix).unwrap().to_vec1::<f32>().unwrap()[0]
                } else {
                    0.0
                };
                assert!(
                    (found[row][at] - expected).abs() < 1e-5,
                    "row {row}, token {at}: {} {expected}",
                    found[row][at]
                );
            }
        }
    }
}

#[test]
fn the_gradient_is_that_of_finite_differences_for_adapters_and_all_weights() {
    for (configuration, kind) in [
        (tiny::llama(), AdapterKind::Lora),
        (tiny::gemma2(), AdapterKind::Lora),
        (tiny::gemma2(), AdapterKind::Full),
        (tiny::llama(), AdapterKind::Full),
    ] {
        let policy = policy(configuration, kind, PolicySettings::default());
        for (beta, more) in [(0.0, false), (0.4, true), (1.0, false)] {
            policy.parameters().clear_gradients().unwrap();
            let seeds = divergence_seeds(more);
            gradient(&policy, beta, &seeds, true);
            check_differences(&format!("{kind:?} at {beta}"), &policy, 1e-3, || loss(&policy, beta, &seeds));
        }
    }
}

#[test]
fn kept_recomputed_and_repeated_passes_give_the_same_bits() {
    let seeds = divergence_seeds(true);
    for kind in [AdapterKind::Lora, AdapterKind::Full] {
        let with = |settings, keep| gradient(&policy(tiny::gemma3(), kind, settings), 0.5, &seeds, keep);
        let kept = with(PolicySettings::default(), true);
        assert!(kept.iter().any(|number| *number != 0.0));
        assert_eq!(kept, with(PolicySettings::default(), false), "{kind:?}");
        let recompute = PolicySettings { recompute: Recompute::Blocks, ..PolicySettings::default() };
        assert_eq!(kept, with(recompute, true), "{kind:?}");
    }
}

#[test]
fn slices_change_the_gradient_by_rounding_alone() {
    let seeds = divergence_seeds(false);
    let with = |slice| {
        let settings = PolicySettings { slice, ..PolicySettings::default() };
        gradient(&policy(tiny::gemma3(), AdapterKind::Lora, settings), 0.5, &seeds, true)
    };
    for (whole, sliced) in with(Slice::Whole).into_iter().zip(with(Slice::Rows(1))) {
        assert!((whole - sliced).abs() < 1e-4 * whole.abs().max(1.0), "{whole} {sliced}");
    }
}

#[test]
fn a_policy_does_not_diverge_from_itself_and_a_teacher_that_is_not_there_is_refused() {
    let policy = policy(tiny::llama(), AdapterKind::Lora, PolicySettings::default());
    let rows = tiny::rows();
    let scored = policy.score(&View::Policy, &rows, request(View::Policy, 0.5), 1.0, true).unwrap();
    let found = scored.tap(Tap::Divergence).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
    assert!(found < 1e-6, "{found}");
    let absent = request(View::Teacher("small".into()), 0.5);
    let refused = policy.score(&View::Policy, &rows, absent, 1.0, true).err().unwrap();
    assert_eq!(refused.to_string(), "there is no teacher `small` (known: `large`)");
}

#[test]
fn a_teacher_scores_writes_and_captures_as_its_own_model_does() {
    let policy = policy(tiny::llama(), AdapterKind::Lora, PolicySettings::default());
    let alone = Policy::open(tiny::model(tiny::qwen3(), 7), None, PolicySettings::default()).unwrap();
    assert_eq!(logprobs(&policy, &teacher()), logprobs(&alone, &View::Policy));
    let next = |policy: &Policy, view: &View| numbers(&policy.next_token(view, &tiny::rows(), &[3, 4]).unwrap());
    assert_eq!(next(&policy, &teacher()), next(&alone, &View::Policy));
}
