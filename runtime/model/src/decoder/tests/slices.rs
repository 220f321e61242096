//! Batches larger than a slice: the same taps, gradients and dropout masks, with less memory.

use std::ops::Range;
use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};

use super::gradients::seeds;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::policy::{Policy, PolicySettings, Seeds, Slice, View};
use crate::rows::Rows;
use crate::tiny::{self, distance, numbers};

fn policy(kind: AdapterKind, dropout: f64, slice: Slice) -> Policy {
    let own = PolicySettings { slice, ..PolicySettings::default() };
    tiny::trained(tiny::model(tiny::gemma3(), 1), &AdapterSettings { dropout, ..tiny::adapter(kind) }, own)
}

/// The gradient of one batch.
fn gradient(policy: &Policy, rows: &Arc<Rows>, seeds: &Seeds, keep: bool) -> Vec<f32> {
    let mut scored = policy.score(&View::Policy, rows, TapSet::OF_ONE_HEAD, 0.8, keep).unwrap();
    policy.backward(&mut scored, seeds).unwrap();
    gradients(policy)
}

fn gradients(policy: &Policy) -> Vec<f32> {
    let all = numbers(policy.parameters().gradients());
    assert!(all.iter().any(|value| *value != 0.0));
    all
}

#[test]
fn a_gradient_is_the_same_in_slices_or_whole_kept_or_not() {
    let rows = tiny::rows();
    let seeds = seeds(&rows);
    for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
        let whole = gradient(&policy(kind, 0.0, Slice::Whole), &rows, &seeds, true);
        for slice in [Slice::Rows(1), Slice::Rows(3), Slice::Tokens(10), Slice::Rows(64)] {
            for keep in [true, false] {
                let found = gradient(&policy(kind, 0.0, slice), &rows, &seeds, keep);
                assert!(distance(&whole, &found) < 1e-6, "{kind:?} {slice:?} {keep}: {}", distance(&whole, &found));
            }
        }
    }
}

#[test]
fn every_tap_is_the_same_in_slices_or_whole() {
    let rows = tiny::rows();
    let taps = |slice| {
        let scored = policy(AdapterKind::Lora, 0.0, slice)
            .score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 0.8, true)
            .unwrap()
            .taps;
        scored.iter().flat_map(|(_, tap)| numbers(tap)).collect::<Vec<f32>>()
    };
    let whole = taps(Slice::Whole);
    assert_eq!(whole.len(), 6 * rows.count() * rows.width());
    assert!(distance(&whole, &taps(Slice::Rows(1))) < 1e-6);
}

#[test]
fn only_a_batch_of_one_slice_is_kept() {
    let rows = tiny::rows();
    let bytes = |slice| {
        let scored =
            policy(AdapterKind::Lora, 0.0, slice).score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
        scored.saved_bytes()
    };
    assert_eq!(bytes(Slice::Rows(3)), 0);
    assert_eq!(bytes(Slice::Rows(4)), bytes(Slice::Whole));
    assert!(bytes(Slice::Whole) > 0);
}

/// A slice that is scored and differentiated alone, in order, has the same dropout masks as within a large batch.
#[test]
fn both_passes_of_a_slice_meet_the_same_dropout_masks() {
    let rows = tiny::rows();
    let all = seeds(&rows);
    let sliced = policy(AdapterKind::Lora, 0.4, Slice::Rows(2));
    let scored = sliced.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
    let alone = policy(AdapterKind::Lora, 0.4, Slice::Whole);
    for start in [0, 2] {
        let ids = rows.ids[start..start + 2].to_vec();
        let part = Arc::new(Rows::new(ids, rows.targets[start..start + 2].to_vec()).unwrap());
        let part_of =
            |seed: &tunebox_compute::Tensor| seed.narrow(0, start, 2).unwrap().narrow(1, 0, part.width()).unwrap();
        let own: Seeds = all.iter().map(|(tap, seed)| (tap, part_of(seed))).collect();
        let mut one = alone.score(&View::Policy, &part, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
        let found = scored.tap(Tap::Logprob).unwrap().narrow(0, start, 2).unwrap().narrow(1, 0, part.width()).unwrap();
        assert_eq!(found.to_vec2::<f32>().unwrap(), one.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap());
        alone.backward(&mut one, &own).unwrap();
    }
    let mut scored = scored;
    sliced.backward(&mut scored, &all).unwrap();
    assert!(distance(&gradients(&alone), &gradients(&sliced)) < 1e-6);

    let other = policy(AdapterKind::Lora, 0.4, Slice::Rows(2));
    other.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
    assert!(distance(&gradients(&sliced), &gradient(&other, &rows, &all, true)) > 1e-3, "a later pass has other masks");
}

/// Equal bits make it possible to keep the scores of a row and to use them in another batch.
#[test]
fn a_row_scores_the_same_bits_alone_and_in_a_batch() {
    let long = |seed: u32, length: u32| (0..length).map(|at| 2 + (seed * 7 + at * 5) % 38).collect::<Vec<u32>>();
    let ids: Vec<Vec<u32>> = vec![long(1, 9), long(2, 40), long(3, 6), long(4, 17), long(5, 90)];
    let marks: Vec<Vec<bool>> = ids.iter().map(|ids| (0..ids.len()).map(|at| at + 5 > ids.len()).collect()).collect();
    for (name, configuration) in tiny::families() {
        let policy = tiny::policy(configuration, &tiny::adapter(AdapterKind::Lora));
        let score = |rows: Range<usize>, view: &View| {
            let part = Rows::new(ids[rows.clone()].to_vec(), marks[rows].to_vec()).unwrap();
            let scored = policy.score(view, &Arc::new(part), TapSet::OF_ONE_HEAD, 1.0, false).unwrap();
            scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap()
        };
        for view in [View::Policy, View::Reference] {
            let together = score(0..ids.len(), &view);
            for (row, together) in together.iter().enumerate() {
                let alone = &score(row..row + 1, &view)[0];
                let same = alone.iter().zip(together).all(|(alone, together)| alone.to_bits() == together.to_bits());
                assert!(same, "{name} {view:?}, row {row}: {alone:?} alone, {together:?} together");
            }
        }
    }
}
