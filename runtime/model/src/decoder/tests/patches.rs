//! Readers and patches of activations: what a patch changes and what it does not, and its gradient.

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::random::Stream;

use super::gradients::{check_differences, logprob_seeds};
use crate::Configuration;
use crate::adapter::AdapterKind;
use crate::configuration::Experts;
use crate::decoder::Recompute;
use crate::generate::{Sampling, generate};
use crate::policy::{Policy, PolicySettings, Seeds, Slice, View};
use crate::rows::Rows;
use crate::stream::{Patch, Site, Token, normalize};
use crate::tiny::{self, logprobs, logprobs_of, numbers};

fn vector(name: &str) -> Vec<f32> {
    Stream::new(8, name).normals(16)
}

fn policy(configuration: Configuration, settings: PolicySettings) -> Policy {
    tiny::trained(tiny::model(configuration, 1), &tiny::adapter(AdapterKind::Lora), settings)
}

/// Patches of each kind, at every site.
fn patches() -> Vec<Patch> {
    vec![
        Patch::add(vec![0, 1], Site::ResidualAfter, &vector("a"), 0.7, true).unwrap(),
        Patch::add(vec![1], Site::ResidualBefore, &vector("b"), -0.4, false).unwrap(),
        Patch::ablate(vec![0, 1], Site::AttentionOutput, &vector("c")).unwrap(),
        Patch::project(vec![1], Site::MlpOutput, &vector("d"), 0.8).unwrap(),
        Patch::ablate(vec![1], Site::ResidualAfter, &vector("e")).unwrap(),
    ]
}

fn patched(configuration: Configuration, settings: PolicySettings) -> Policy {
    let mut policy = policy(configuration, settings);
    for patch in patches() {
        policy.patch(patch).unwrap();
    }
    policy
}

fn gradient(policy: &Policy, keep: bool, seeds: &Seeds) -> Vec<f32> {
    let mut scored = policy.score(&View::Policy, &tiny::rows(), TapSet::default(), 1.0, keep).unwrap();
    policy.backward(&mut scored, seeds).unwrap();
    numbers(policy.parameters().gradients())
}

/// The loss Σ seed · log-probability.
fn loss(policy: &Policy, seeds: &Seeds) -> f64 {
    let seeds = numbers(seeds.get(Tap::Logprob).unwrap());
    let found = logprobs(policy, &View::Policy);
    seeds.iter().zip(found).map(|(seed, found)| f64::from(seed * found)).sum()
}

#[test]
fn the_gradient_through_patches_is_that_of_finite_differences() {
    for (name, configuration) in tiny::families() {
        // With all experts active: where a step crosses to another expert, the loss jumps.
        let experts = configuration.experts.map(|experts| Experts { active: experts.count, ..experts });
        let policy = patched(Configuration { experts, ..configuration }, PolicySettings::default());
        let seeds = logprob_seeds();
        gradient(&policy, true, &seeds);
        check_differences(name, &policy, 2e-3, || loss(&policy, &seeds));
    }
}

#[test]
fn patched_passes_give_the_same_gradient_kept_recomputed_or_run_again() {
    let seeds = logprob_seeds();
    let plain = gradient(&policy(tiny::gemma3(), PolicySettings::default()), true, &seeds);
    let kept = gradient(&patched(tiny::gemma3(), PolicySettings::default()), true, &seeds);
    assert_ne!(plain, kept);
    assert_eq!(kept, gradient(&patched(tiny::gemma3(), PolicySettings::default()), false, &seeds));
    let recompute = PolicySettings { recompute: Recompute::Blocks, ..PolicySettings::default() };
    assert_eq!(kept, gradient(&patched(tiny::gemma3(), recompute), true, &seeds));
}

#[test]
fn a_gradient_passes_through_the_patches_that_its_rows_were_scored_under() {
    let seeds = logprob_seeds();
    for keep in [true, false] {
        let mut policy = policy(tiny::qwen3(), PolicySettings::default());
        let active: Vec<u64> = patches().into_iter().map(|patch| policy.patch(patch).unwrap()).collect();
        let mut scored = policy.score(&View::Policy, &tiny::rows(), TapSet::default(), 1.0, keep).unwrap();
        active.iter().for_each(|number| policy.unpatch(*number));
        policy.backward(&mut scored, &seeds).unwrap();
        let found = numbers(policy.parameters().gradients());
        assert_eq!(found, gradient(&patched(tiny::qwen3(), PolicySettings::default()), true, &seeds));
    }
}

#[test]
fn a_patch_shows_through_the_policy_alone_and_is_gone_without_a_trace() {
    let mut policy = policy(tiny::gemma3(), PolicySettings::default());
    policy.snapshot("then").unwrap();
    let before = logprobs(&policy, &View::Policy);
    let reference = logprobs(&policy, &View::Reference);
    let numbers: Vec<u64> = patches().into_iter().map(|patch| policy.patch(patch).unwrap()).collect();
    assert_ne!(before, logprobs(&policy, &View::Policy));
    assert_eq!(before, logprobs(&policy, &View::Snapshot("then".into())));
    assert_eq!(reference, logprobs(&policy, &View::Reference));
    numbers.iter().for_each(|number| policy.unpatch(*number));
    assert_eq!(before, logprobs(&policy, &View::Policy));
}

#[test]
fn a_cached_decode_is_patched_like_a_whole_pass() {
    for (name, configuration) in tiny::families() {
        let policy = patched(configuration, PolicySettings::default());
        let prompts = [vec![5, 9, 3, 17], vec![30, 2]];
        let sampling = Sampling { max_tokens: 6, completions: 2, ..Sampling::default() };
        let written = generate(&policy, &View::Policy, &prompts, &sampling, &mut |_, _| true).unwrap();
        for (number, completion) in written.iter().enumerate() {
            let prompt = &prompts[number / 2];
            let scored = logprobs_of(&policy, &View::Policy, &tiny::answer(prompt, &completion.ids), 1.0);
            for (found, wanted) in completion.logprobs.iter().zip(&scored[prompt.len()..]) {
                assert!((found - wanted).abs() < 1e-4, "{name}: {found} while decoding, {wanted} scored");
            }
        }
    }
}

#[test]
fn a_patch_for_answers_leaves_the_prompt_alone() {
    let mut policy = policy(tiny::llama(), PolicySettings::default());
    let capture = |policy: &Policy, token| {
        let rows = rows_with_target_at(4);
        numbers(&policy.capture(&View::Policy, &rows, &[0], Site::ResidualAfter, token).unwrap())
    };
    let (before, target) = (capture(&policy, Token::FromEnd(2)), capture(&policy, Token::FromEnd(1)));
    let patch = Patch::add(vec![0], Site::ResidualAfter, &vector("a"), 2.0, true).unwrap();
    policy.patch(patch).unwrap();
    assert_eq!(before, capture(&policy, Token::FromEnd(2)));
    let moved = capture(&policy, Token::FromEnd(1));
    for ((moved, target), vector) in moved.iter().zip(&target).zip(vector("a")) {
        assert!((moved - target - 2.0 * vector).abs() < 1e-5);
    }
    assert!(logprobs(&policy, &View::Policy).iter().all(|value| value.is_finite()));
}

/// A row of six tokens with one target.
fn rows_with_target_at(place: usize) -> Rows {
    Rows::new(vec![vec![4, 8, 15, 16, 23, 39]], vec![(0..6).map(|at| at == place).collect()]).unwrap()
}

#[test]
fn what_leaves_a_block_is_what_enters_the_next() {
    for slice in [Slice::Whole, Slice::Rows(1)] {
        let policy = policy(tiny::gemma3(), PolicySettings { slice, ..PolicySettings::default() });
        let rows = &tiny::rows();
        let read = |layer, site, token| {
            let found = policy.capture(&View::Policy, rows, &[layer], site, token).unwrap();
            assert_eq!(found.dims(), [1, rows.count(), 16]);
            numbers(&found)
        };
        let after = read(0, Site::ResidualAfter, Token::FromEnd(1));
        assert_eq!(after, read(1, Site::ResidualBefore, Token::FromEnd(1)));
        assert_ne!(after, read(0, Site::ResidualBefore, Token::FromEnd(1)));
    }
}

#[test]
fn the_stream_is_its_beginning_and_all_that_was_written() {
    let policy = policy(tiny::llama(), PolicySettings::default());
    let read = |site| numbers(&policy.capture(&View::Policy, &tiny::rows(), &[0, 1], site, Token::FromEnd(0)).unwrap());
    let (before, attention) = (read(Site::ResidualBefore), read(Site::AttentionOutput));
    let (mlp, after) = (read(Site::MlpOutput), read(Site::ResidualAfter));
    for at in 0..before.len() {
        assert!((before[at] + attention[at] + mlp[at] - after[at]).abs() < 1e-5);
    }
}

#[test]
fn a_mean_over_targets_is_the_mean_of_the_single_tokens() {
    let policy = policy(tiny::qwen2(), PolicySettings::default());
    let ids = vec![4, 8, 15, 16, 23, 39];
    let rows = Rows::new(vec![ids], vec![vec![false, false, true, false, true, true]]).unwrap();
    let read = |token| numbers(&policy.capture(&View::Policy, &rows, &[1], Site::ResidualAfter, token).unwrap());
    let single: Vec<Vec<f32>> = [3, 1, 0].into_iter().map(|number| read(Token::FromEnd(number))).collect();
    for (at, mean) in read(Token::TargetMean).into_iter().enumerate() {
        assert!((mean - (single[0][at] + single[1][at] + single[2][at]) / 3.0).abs() < 1e-6);
    }
}

#[test]
fn an_ablated_stream_has_no_component_left_and_a_projected_one_the_value() {
    let direction = normalize(&vector("c")).unwrap();
    let component = |patch: Patch| {
        let mut policy = policy(tiny::gemma3(), PolicySettings::default());
        policy.patch(patch).unwrap();
        let found = policy.capture(&View::Policy, &tiny::rows(), &[1], Site::ResidualBefore, Token::FromEnd(0));
        let found = found.unwrap().squeeze(0).unwrap().to_vec2::<f32>().unwrap();
        found.iter().map(|row| row.iter().zip(&direction).map(|(a, b)| a * b).sum::<f32>()).collect::<Vec<f32>>()
    };
    let ablate = Patch::ablate(vec![1], Site::ResidualBefore, &vector("c")).unwrap();
    assert!(component(ablate).iter().all(|value| value.abs() < 1e-5));
    let project = Patch::project(vec![1], Site::ResidualBefore, &vector("c"), -1.5).unwrap();
    assert!(component(project).iter().all(|value| (value + 1.5).abs() < 1e-5));
}

#[test]
fn the_next_token_is_scored_as_a_target_would_be() {
    let policy = patched(tiny::gemma3(), PolicySettings { slice: Slice::Rows(1), ..PolicySettings::default() });
    let rows = Rows::new(vec![vec![4, 8, 15], vec![16, 23]], vec![vec![false; 3], vec![false; 2]]).unwrap();
    let found = policy.next_token(&View::Policy, &rows, &[7, 30]).unwrap().to_vec2::<f32>().unwrap();
    for (row, ids) in rows.ids.iter().enumerate() {
        for (at, id) in [7, 30].into_iter().enumerate() {
            let wanted = logprobs_of(&policy, &View::Policy, &tiny::answer(ids, &[id]), 1.0)[ids.len()];
            assert!((found[row][at] - wanted).abs() < 1e-5);
        }
    }
}

#[test]
fn a_divergence_is_the_sum_over_all_tokens_and_none_from_itself() {
    let policy = patched(tiny::llama(), PolicySettings::default());
    let rows = Rows::new(vec![vec![4, 8, 15], vec![16, 23]], vec![vec![false; 3], vec![false; 2]]).unwrap();
    let all: Vec<u32> = (0..40).collect();
    let read = |view| policy.next_token(&view, &rows, &all).unwrap().to_vec2::<f32>().unwrap();
    let (base, now) = (read(View::Reference), read(View::Policy));
    let found = policy.divergence(&View::Reference, &View::Policy, &rows).unwrap().to_vec1::<f32>().unwrap();
    for row in 0..2 {
        let wanted: f32 = base[row].iter().zip(&now[row]).map(|(p, q)| p.exp() * (p - q)).sum();
        assert!(wanted > 0.01 && (found[row] - wanted).abs() < 1e-5, "{} for {wanted}", found[row]);
    }
    let same = policy.divergence(&View::Policy, &View::Policy, &rows).unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(same, [0.0, 0.0]);
}

#[test]
fn places_that_are_not_there_are_refused() {
    let mut policy = policy(tiny::llama(), PolicySettings::default());
    let rows = tiny::rows();
    let read = |layers: &[usize], token| policy.capture(&View::Policy, &rows, layers, Site::ResidualAfter, token);
    assert!(read(&[2], Token::FromEnd(0)).is_err());
    assert!(read(&[], Token::FromEnd(0)).is_err());
    assert!(read(&[0, 0], Token::FromEnd(0)).is_err());
    assert!(read(&[0], Token::FromEnd(3)).is_err());
    assert!(read(&[0], Token::TargetMean).is_err());
    assert!(policy.next_token(&View::Policy, &rows, &[40]).is_err());
    let add = |layers, vector: &[f32], by| Patch::add(layers, Site::MlpOutput, vector, by, false);
    assert!(add(vec![0, 0], &vector("a"), 1.0).is_err());
    assert!(add(vec![0], &[f32::NAN; 16], 1.0).is_err());
    assert!(add(vec![0], &[1e30; 16], 1e30).is_err());
    assert!(Patch::ablate(vec![0], Site::MlpOutput, &[0.0; 16]).is_err());
    assert!(Patch::project(vec![0], Site::MlpOutput, &vector("a"), f32::INFINITY).is_err());
    assert!(policy.patch(add(vec![2], &vector("a"), 1.0).unwrap()).is_err());
    assert!(policy.patch(add(vec![0], &[1.0; 15], 1.0).unwrap()).is_err());
}
