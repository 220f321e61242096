//! Compares ways of running the same pass: with saved or recomputed activations, one row or many, several views.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};

use super::gradients::seeds;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::decoder::Recompute;
use crate::policy::{Policy, PolicySettings, View};
use crate::rows::Rows;
use crate::tiny::{self, adapter, bits, logprobs, numbers, stir};

fn policy(settings: &AdapterSettings, recompute: Recompute) -> Policy {
    let own = PolicySettings { recompute, ..PolicySettings::default() };
    tiny::trained(tiny::model(tiny::gemma3(), 1), settings, own)
}

fn taps() -> TapSet {
    TapSet::of(&[Tap::Entropy, Tap::MeanLogprob])
}

/// The bits of the whole gradient after one batch is scored. `keep` says whether scoring saves for the backward pass.
fn gradient(policy: &Policy, keep: bool) -> Vec<u32> {
    let rows = tiny::rows();
    let mut scored = policy.score(&View::Policy, &rows, taps(), 1.0, keep).unwrap();
    policy.backward(&mut scored, &seeds(&rows)).unwrap();
    assert!(numbers(policy.parameters().gradients()).iter().any(|value| *value != 0.0));
    bits(policy.parameters().gradients())
}

#[test]
fn recomputed_blocks_give_the_same_bits() {
    for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
        let kept = gradient(&policy(&adapter(kind), Recompute::None), true);
        let recomputed = gradient(&policy(&adapter(kind), Recompute::Blocks), true);
        assert_eq!(kept, recomputed, "{kind:?}");
    }
}

#[test]
fn recomputed_blocks_give_the_same_bits_under_dropout() {
    let settings = AdapterSettings { dropout: 0.3, ..adapter(AdapterKind::Lora) };
    let kept = gradient(&policy(&settings, Recompute::None), true);
    assert_eq!(kept, gradient(&policy(&settings, Recompute::Blocks), true));
}

#[test]
fn learning_from_what_was_not_kept_gives_the_same_bits() {
    for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
        let kept = gradient(&policy(&adapter(kind), Recompute::None), true);
        assert_eq!(kept, gradient(&policy(&adapter(kind), Recompute::None), false), "{kind:?}");
    }
}

#[test]
fn nothing_is_kept_unless_asked_for_and_block_inputs_are_less_than_everything() {
    let rows = tiny::rows();
    let bytes = |recompute, keep| {
        let policy = policy(&adapter(AdapterKind::Lora), recompute);
        policy.score(&View::Policy, &rows, taps(), 1.0, keep).unwrap().saved_bytes()
    };
    assert_eq!(bytes(Recompute::None, false), 0);
    assert!(bytes(Recompute::Blocks, true) > 0);
    assert!(bytes(Recompute::Blocks, true) * 5 < bytes(Recompute::None, true));
}

#[test]
fn dropout_acts_only_where_the_pass_is_kept_for_learning() {
    let settings = AdapterSettings { dropout: 0.5, ..adapter(AdapterKind::Lora) };
    let policy = policy(&settings, Recompute::None);
    let rows = tiny::rows();
    let score = |keep| {
        let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, keep).unwrap();
        numbers(scored.tap(Tap::Logprob).unwrap())
    };
    let without = score(false);
    assert_eq!(without, score(false));
    assert_ne!(without, score(true));
    assert_ne!(score(true), score(true));
}

#[test]
fn a_row_scores_the_same_alone_and_in_a_batch() {
    for (name, configuration) in tiny::families() {
        let policy = tiny::policy(configuration, &adapter(AdapterKind::Lora));
        let rows = tiny::rows();
        let together = logprobs(&policy, &View::Policy);
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            let alone = Arc::new(Rows::new(vec![ids.clone()], vec![marks.clone()]).unwrap());
            let alone = tiny::logprobs_of(&policy, &View::Policy, &alone, 1.0);
            for (alone, together) in alone.iter().zip(&together[row * rows.width()..]) {
                assert!((alone - together).abs() < 1e-5, "{name}: {alone} alone, {together} together");
            }
        }
    }
}

#[test]
fn rows_without_a_target_change_no_bit_of_the_gradient() {
    let rows = tiny::rows();
    let all = gradient(&policy(&adapter(AdapterKind::Lora), Recompute::None), true);
    let some = Arc::new(Rows::new(rows.ids[..3].to_vec(), rows.targets[..3].to_vec()).unwrap());
    let policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let mut scored = policy.score(&View::Policy, &some, taps(), 1.0, true).unwrap();
    let mut shorter = seeds(&rows);
    for (_, seed) in shorter.iter_mut() {
        *seed = seed.narrow(0, 0, 3).unwrap();
    }
    policy.backward(&mut scored, &shorter).unwrap();
    assert_eq!(all, bits(policy.parameters().gradients()));
}

#[test]
fn rows_without_any_target_score_zero_and_teach_nothing() {
    let policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let rows = Arc::new(Rows::new(vec![vec![3, 4, 5]], vec![vec![false; 3]]).unwrap());
    let mut scored = policy.score(&View::Policy, &rows, taps(), 1.0, true).unwrap();
    assert_eq!(scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap(), vec![vec![0.0; 3]]);
    policy.backward(&mut scored, &seeds(&rows)).unwrap();
    assert!(numbers(policy.parameters().gradients()).iter().all(|value| *value == 0.0));
}

#[test]
fn the_reference_is_the_base_bit_for_bit() {
    let base = logprobs(&tiny::plain(tiny::gemma3()), &View::Policy);
    for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
        let policy = policy(&adapter(kind), Recompute::None);
        assert_eq!(base, logprobs(&policy, &View::Reference), "{kind:?}");
        assert_ne!(base, logprobs(&policy, &View::Policy), "{kind:?}");
    }
}

#[test]
fn a_fresh_adapter_changes_nothing() {
    for kind in [AdapterKind::Lora, AdapterKind::RsLora, AdapterKind::Full] {
        let policy = Policy::new(tiny::model(tiny::qwen3(), 1), &adapter(kind), PolicySettings::default()).unwrap();
        assert_eq!(logprobs(&policy, &View::Reference), logprobs(&policy, &View::Policy), "{kind:?}");
    }
}

#[test]
fn a_snapshot_stays_when_the_policy_moves() {
    let mut policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let before = logprobs(&policy, &View::Policy);
    policy.snapshot("then").unwrap();
    stir(&policy);
    policy.note_update();
    assert_eq!(before, logprobs(&policy, &View::Snapshot("then".into())));
    assert_ne!(before, logprobs(&policy, &View::Policy));
}

#[test]
fn a_snapshot_that_was_never_taken_is_an_error() {
    let policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let found = policy.score(&View::Snapshot("never".into()), &tiny::rows(), TapSet::default(), 1.0, false);
    assert!(found.err().unwrap().to_string().contains("`never`"));
}

#[test]
fn what_was_scored_before_an_update_cannot_be_learned_from() {
    let mut policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let rows = tiny::rows();
    let mut scored = policy.score(&View::Policy, &rows, taps(), 1.0, true).unwrap();
    policy.note_update();
    assert!(policy.backward(&mut scored, &seeds(&rows)).is_err());
}

#[test]
fn the_reference_cannot_be_learned_from() {
    let policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let rows = tiny::rows();
    let mut scored = policy.score(&View::Reference, &rows, taps(), 1.0, true).unwrap();
    assert!(policy.backward(&mut scored, &seeds(&rows)).is_err());
}

#[test]
fn a_token_outside_the_vocabulary_is_an_error() {
    let policy = policy(&adapter(AdapterKind::Lora), Recompute::None);
    let rows = Arc::new(Rows::new(vec![vec![3, 40]], vec![vec![false, true]]).unwrap());
    assert!(policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false).is_err());
}
