//! Compares ways of running passes that capture activations for learning: with saved or recomputed activations, in
//! slices or whole, with common prefixes, dropout, noise and patches.

use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_compute::fused::{Tap, TapSet};

use super::captured::seeds_for;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::configuration::Configuration;
use crate::decoder::{EmbeddingNoise, Recompute};
use crate::policy::{Captured, Policy, PolicySettings, Slice, View};
use crate::rows::Rows;
use crate::stream::{Patch, Site, Token};
use crate::tiny::{self, bits, numbers};

const SITE: Site = Site::MlpOutput;

fn policy(configuration: Configuration, (kind, dropout): (AdapterKind, f64), settings: PolicySettings) -> Policy {
    let adapter = AdapterSettings { dropout, ..tiny::adapter(kind) };
    tiny::trained(tiny::model(configuration, 1), &adapter, settings)
}

fn lora(settings: PolicySettings) -> Policy {
    policy(tiny::gemma3(), (AdapterKind::Lora, 0.0), settings)
}

/// Rows of two prompts with a common prefix, each with answers of unequal length, one of which occurs twice.
fn rows() -> Arc<Rows> {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for (prompt, seed, length) in [(1, 4, 9), (1, 5, 30), (2, 6, 2), (1, 5, 12), (2, 7, 25), (1, 4, 9)] {
        let row: Vec<u32> = tiny::ids(0, 20).chain(tiny::ids(prompt, 31)).chain(tiny::ids(seed, length)).collect();
        // The end of the prompt, which rows share, and every other token of the answer.
        targets.push((0..row.len()).map(|at| (45..51).contains(&at) || at > 51 && at % 2 == 0).collect());
        ids.push(row);
    }
    Arc::new(Rows::new(ids, targets).unwrap())
}

fn capture(policy: &Policy, rows: &Arc<Rows>) -> Captured {
    policy.capture_for_learning(rows, &[1, 0], SITE, Token::Targets).unwrap()
}

/// The gradient of what was captured, as the bits of all numbers.
fn learn(policy: &Policy, captured: &mut Captured) -> Vec<u32> {
    policy.parameters().clear_gradients().unwrap();
    let seeds = seeds_for(&captured.values);
    policy.backward_captured(captured, &seeds).unwrap();
    assert!(numbers(policy.parameters().gradients()).iter().any(|value| *value != 0.0));
    bits(policy.parameters().gradients())
}

/// The length of the difference of two gradients over the length of the first.
fn distance(one: &[u32], other: &[u32]) -> f64 {
    let [one, other] = [one, other].map(|bits| bits.iter().copied().map(f32::from_bits).collect::<Vec<f32>>());
    tiny::distance(&one, &other)
}

#[test]
fn recomputed_blocks_give_the_same_bits() {
    for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
        let run = |recompute| {
            let settings = PolicySettings { recompute, ..PolicySettings::default() };
            let policy = policy(tiny::gemma3(), (kind, 0.0), settings);
            let mut captured = capture(&policy, &rows());
            (captured.saved_bytes(), learn(&policy, &mut captured))
        };
        let ((all, kept), (inputs, recomputed)) = (run(Recompute::None), run(Recompute::Blocks));
        assert_eq!(kept, recomputed, "{kind:?}");
        assert!(0 < inputs && inputs * 5 < all, "{kind:?}: {inputs} of {all}");
    }
}

#[test]
fn slices_that_were_saved_give_the_bits_of_slices_that_run_again() {
    let run = |max_saved_bytes| {
        let settings = PolicySettings { slice: Slice::Rows(2), max_saved_bytes, ..PolicySettings::default() };
        let policy = lora(settings);
        let mut captured = capture(&policy, &rows());
        let bytes = captured.saved_bytes() as u64;
        let first = learn(&policy, &mut captured);
        assert_eq!(captured.saved_bytes(), 0);
        assert_eq!(first, learn(&policy, &mut captured), "a second time");
        (bytes, first)
    };
    let ((nothing, again), (everything, saved)) = (run(0), run(u64::MAX));
    assert_eq!((nothing, &again), (0, &saved));
    let (some, partly) = run(everything * 2 / 3);
    assert!(0 < some && some < everything, "{some} of {everything}");
    assert_eq!(again, partly);
}

#[test]
fn captured_activations_count_towards_what_scores_may_save() {
    let settings = PolicySettings { slice: Slice::Rows(2), max_saved_bytes: 1 << 30, ..PolicySettings::default() };
    let bytes = capture(&lora(settings), &rows()).saved_bytes() as u64;
    let policy = lora(PolicySettings { max_saved_bytes: bytes, ..settings });
    let score = || policy.score(&View::Policy, &rows(), TapSet::default(), 1.0, true).unwrap().saved_bytes();
    let alone = score();
    let captured = capture(&policy, &rows());
    assert!(score() < alone);
    drop(captured);
    assert_eq!(score(), alone);
}

#[test]
fn values_and_gradients_are_the_same_in_slices_or_whole() {
    for kind in [AdapterKind::Lora, AdapterKind::Full] {
        let run = |slice| {
            let policy = policy(tiny::qwen3(), (kind, 0.0), PolicySettings { slice, ..PolicySettings::default() });
            let mut captured = capture(&policy, &rows());
            (numbers(&captured.values), learn(&policy, &mut captured))
        };
        let (values, gradient) = run(Slice::Whole);
        for slice in [Slice::Rows(1), Slice::Rows(3), Slice::Tokens(150)] {
            let found = run(slice);
            assert_eq!(values, found.0, "{kind:?} {slice:?}");
            assert!(distance(&gradient, &found.1) < 1e-6, "{kind:?} {slice:?}: {}", distance(&gradient, &found.1));
        }
    }
}

#[test]
fn a_gradient_through_a_shared_beginning_is_the_sum_of_those_of_its_rows() {
    let rows = rows();
    for (name, configuration) in tiny::families() {
        for (kind, token) in [(AdapterKind::Lora, Token::Targets), (AdapterKind::Full, Token::TargetMean)] {
            let policy = policy(configuration.clone(), (kind, 0.0), PolicySettings::default());
            let capture = |rows: &Arc<Rows>| policy.capture_for_learning(rows, &[0, 1], SITE, token).unwrap();
            let mut together = capture(&rows);
            let (values, seeds) = (together.values.clone(), seeds_for(&together.values));
            let gradient = learn(&policy, &mut together);
            policy.parameters().clear_gradients().unwrap();
            for row in 0..rows.count() {
                let mut alone = capture(&Arc::new(rows.select(&[row as u32]).unwrap()));
                let part = |all: &Tensor| {
                    let part = all.narrow(1, row, 1).unwrap();
                    if token == Token::Targets { part.narrow(2, 0, alone.rows.width()).unwrap() } else { part }
                };
                assert_eq!(numbers(&part(&values)), numbers(&alone.values), "{name}, row {row}");
                let seeds = part(&seeds);
                policy.backward_captured(&mut alone, &seeds).unwrap();
            }
            let apart = bits(policy.parameters().gradients());
            assert!(distance(&apart, &gradient) < 2e-6, "{name} {kind:?}: {:e}", distance(&apart, &gradient));
        }
    }
}

#[test]
fn a_backward_pass_that_runs_again_meets_the_same_dropout_masks_and_noise() {
    for (dropout, noise) in [(0.4, None), (0.0, Some(5.0)), (0.4, Some(5.0))] {
        let run = |max_saved_bytes| {
            let settings = PolicySettings { slice: Slice::Rows(2), max_saved_bytes, ..PolicySettings::default() };
            let mut policy = policy(tiny::gemma3(), (AdapterKind::Lora, dropout), settings);
            policy.set_embedding_noise(noise.map(|alpha| EmbeddingNoise { alpha, seed: 3 }));
            let (mut first, second) = (capture(&policy, &rows()), capture(&policy, &rows()));
            assert_ne!(numbers(&first.values), numbers(&second.values), "each capture has its own");
            let plain = policy.capture(&View::Policy, &rows(), &[1, 0], SITE, Token::Targets).unwrap();
            assert_ne!(numbers(&first.values), numbers(&plain));
            (numbers(&first.values), learn(&policy, &mut first))
        };
        assert_eq!(run(0), run(u64::MAX), "{dropout} {noise:?}");
    }
}

#[test]
fn dropout_masks_of_scores_and_captures_are_numbered_together() {
    let settings = PolicySettings { slice: Slice::Rows(2), ..PolicySettings::default() };
    let run = |captures: usize, scores: usize| {
        let policy = policy(tiny::gemma3(), (AdapterKind::Lora, 0.4), settings);
        let score = || policy.score(&View::Policy, &rows(), TapSet::default(), 1.0, true).unwrap();
        (0..captures).for_each(|_| drop(capture(&policy, &rows())));
        (0..scores).for_each(|_| drop(score()));
        numbers(score().tap(Tap::Logprob).unwrap())
    };
    assert_eq!(run(2, 0), run(0, 2));
    assert_ne!(run(1, 0), run(0, 2));
}

#[test]
fn a_gradient_passes_through_the_patches_that_were_active_at_the_capture() {
    let vector: Vec<f32> = (0..16).map(|at| (at as f32).sin()).collect();
    let run = |max_saved_bytes, unpatch| {
        let mut policy = lora(PolicySettings { slice: Slice::Rows(2), max_saved_bytes, ..PolicySettings::default() });
        let add = Patch::add(vec![0], Site::ResidualAfter, &vector, 0.5, true).unwrap();
        let ablate = Patch::ablate(vec![0, 1], SITE, &vector).unwrap();
        let numbers = [add, ablate].map(|patch| policy.patch(patch).unwrap());
        let mut captured = capture(&policy, &rows());
        if unpatch {
            numbers.iter().for_each(|number| policy.unpatch(*number));
        }
        learn(&policy, &mut captured)
    };
    let wanted = run(u64::MAX, false);
    assert_eq!(wanted, run(u64::MAX, true));
    assert_eq!(wanted, run(0, true));
    let plain = lora(PolicySettings::default());
    assert!(distance(&wanted, &learn(&plain, &mut capture(&plain, &rows()))) > 1e-2);
}

#[test]
fn what_was_captured_before_an_update_cannot_be_learned_from() {
    let mut policy = lora(PolicySettings::default());
    let mut captured = capture(&policy, &rows());
    let seeds = seeds_for(&captured.values);
    policy.note_update();
    let error = policy.backward_captured(&mut captured, &seeds).unwrap_err().to_string();
    assert_eq!(error, "the rows were captured after update `0`, the weights have had `1`; capture them again");
}

#[test]
fn seeds_of_another_shape_are_refused() {
    let policy = lora(PolicySettings::default());
    let mut captured = capture(&policy, &rows());
    let seeds = seeds_for(&captured.values).narrow(0, 0, 1).unwrap();
    assert!(policy.backward_captured(&mut captured, &seeds).is_err());
}

#[test]
fn seeds_at_tokens_that_are_no_targets_change_no_bit() {
    let policy = lora(PolicySettings { slice: Slice::Rows(2), ..PolicySettings::default() });
    let mut captured = capture(&policy, &rows());
    let wanted = learn(&policy, &mut captured);
    let seeds = seeds_for(&captured.values);
    let mask = rows().mask_tensor(seeds.device()).unwrap().unsqueeze(0).unwrap().unsqueeze(3).unwrap();
    policy.parameters().clear_gradients().unwrap();
    policy.backward_captured(&mut captured, &seeds.broadcast_mul(&mask).unwrap()).unwrap();
    assert_eq!(wanted, bits(policy.parameters().gradients()));
}

#[test]
fn the_estimate_of_a_capture_grows_with_its_layers_and_is_what_it_saves() {
    let policy = lora(PolicySettings::default());
    let ids: Vec<u32> = (0..96).map(|at| 2 + at % 30).collect();
    let rows = Arc::new(Rows::new(vec![ids], vec![vec![true; 96]]).unwrap());
    for (layer, site) in [(0, Site::ResidualAfter), (1, Site::AttentionOutput)] {
        let saved = policy.capture_for_learning(&rows, &[layer], site, Token::Targets).unwrap().saved_bytes();
        let estimate = policy.capture_memory(&View::Policy, &rows, layer, true);
        let off = (estimate.kept as f64 / saved as f64 - 1.0).abs();
        assert!(off < 0.1, "layer {layer}: {} for {saved}", estimate.kept);
        assert_eq!((policy.capture_memory(&View::Policy, &rows, layer, false).kept, estimate.head), (0, 0));
    }
}
