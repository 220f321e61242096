//! Rows with a common prefix: a pass computes it once, and the results are the same.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};

use super::gradients::seeds;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::configuration::Configuration;
use crate::policy::{Policy, PolicySettings, Seeds, Slice, View, select_rows};
use crate::rows::Rows;
use crate::stream::{Patch, Site, Token};
use crate::tiny::{self, numbers};

/// Rows of two prompts with a common prefix, with answers of unequal length to each, one of which begins with another
/// and one of which occurs twice; and a row that shares nothing.
fn rows() -> Arc<Rows> {
    let prompt = |seed, length| tiny::ids(1, 20).chain(tiny::ids(seed, length)).collect::<Vec<u32>>();
    let (first, second) = (prompt(2, 31), prompt(3, 40));
    let answers = [(&first, 4, 9), (&first, 5, 30), (&second, 6, 1), (&first, 5, 12), (&second, 7, 25), (&first, 4, 9)];
    let mut ids = Vec::new();
    let mut targets = Vec::new();
    for (prompt, seed, length) in answers {
        ids.push(prompt.iter().copied().chain(tiny::ids(seed, length)).collect());
        targets.push((0..prompt.len() + length as usize).map(|at| at >= prompt.len()).collect());
    }
    ids.push(tiny::ids(9, 33).collect());
    targets.push((0..33).map(|at| at % 3 == 1).collect());
    Arc::new(Rows::new(ids, targets).unwrap())
}

fn policy(configuration: Configuration, kind: AdapterKind, settings: PolicySettings) -> Policy {
    tiny::trained(tiny::model(configuration, 1), &tiny::adapter(kind), settings)
}

fn alone(rows: &Rows, row: usize) -> Arc<Rows> {
    Arc::new(rows.select(&[row as u32]).unwrap())
}

/// The bits of every tap of a row.
fn taps(policy: &Policy, view: &View, rows: &Arc<Rows>, row: usize, keep: bool) -> Vec<u32> {
    let taps = policy.score(view, rows, TapSet::OF_ONE_HEAD, 0.8, keep).unwrap().taps;
    let taps = select_rows(&taps, &[row as u32], rows.width()).unwrap();
    let values = taps.into_iter().flat_map(|(_, tap)| numbers(&tap));
    values.filter(|value| *value != 0.0).map(f32::to_bits).collect()
}

#[test]
fn rows_that_turn_otherwise_share_nothing_with_the_others() {
    // Rows of 55 to 81 tokens that begin alike, on both sides of the bound.
    for settings in
        [PolicySettings::default(), PolicySettings { slice: Slice::Tokens(150), ..PolicySettings::default() }]
    {
        let policy = policy(tiny::phi3(65), AdapterKind::Lora, settings);
        let rows = rows();
        for row in 0..rows.count() {
            let together = taps(&policy, &View::Policy, &rows, row, false);
            assert_eq!(together, taps(&policy, &View::Policy, &alone(&rows, row), 0, false), "row {row}");
        }
    }
}

fn gradient(policy: &Policy) -> Vec<f32> {
    numbers(policy.parameters().gradients())
}

/// The seeds of one row.
fn seeds_of(all: &Seeds, row: usize, width: usize) -> Seeds {
    all.iter().map(|(tap, seed)| (tap, seed.narrow(0, row, 1).unwrap().narrow(1, 0, width).unwrap())).collect()
}

#[test]
fn a_row_scores_the_same_bits_whether_others_begin_like_it_or_not() {
    let rows = rows();
    let pair = Arc::new(rows.select(&[1, 3]).unwrap());
    for (name, configuration) in tiny::families() {
        let policy = policy(configuration, AdapterKind::Lora, PolicySettings::default());
        for (view, keep) in [(View::Policy, false), (View::Policy, true), (View::Reference, false)] {
            for row in 0..rows.count() {
                let (one, together) =
                    (taps(&policy, &view, &alone(&rows, row), 0, keep), taps(&policy, &view, &rows, row, keep));
                assert!(!one.is_empty());
                assert_eq!(one, together, "{name} {view:?}, row {row}");
            }
            assert_eq!(taps(&policy, &view, &pair, 0, keep), taps(&policy, &view, &rows, 1, keep), "{name} {view:?}");
        }
    }
}

#[test]
fn a_gradient_through_a_shared_beginning_is_the_sum_of_those_of_its_rows() {
    let rows = rows();
    let all = seeds(&rows);
    for (name, configuration) in tiny::families() {
        for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
            let together = policy(configuration.clone(), kind, PolicySettings::default());
            let mut scored = together.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 0.8, true).unwrap();
            together.backward(&mut scored, &all).unwrap();

            let apart = policy(configuration.clone(), kind, PolicySettings::default());
            for row in 0..rows.count() {
                let one = alone(&rows, row);
                let mut scored = apart.score(&View::Policy, &one, TapSet::OF_ONE_HEAD, 0.8, true).unwrap();
                apart.backward(&mut scored, &seeds_of(&all, row, one.width())).unwrap();
            }
            let off = tiny::distance(&gradient(&apart), &gradient(&together));
            assert!(off < 2e-6, "{name} {kind:?}: {off:e}");
        }
    }
}

#[test]
fn a_shared_beginning_is_kept_once() {
    let rows = rows();
    let policy = policy(tiny::gemma3(), AdapterKind::Lora, PolicySettings::default());
    let kept =
        |rows: &Arc<Rows>| policy.score(&View::Policy, rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap().saved_bytes();
    let apart: usize = (0..rows.count()).map(|row| kept(&alone(&rows, row))).sum();
    assert!(kept(&rows) * 2 < apart, "{} together, {apart} alone", kept(&rows));
}

#[test]
fn a_capture_holds_each_row_behind_a_shared_beginning() {
    let rows = rows();
    let mut policy = policy(tiny::gemma3(), AdapterKind::Lora, PolicySettings::default());
    let vector: Vec<f32> = (0..policy.model().configuration.hidden).map(|at| (at as f32).sin()).collect();
    policy.patch(Patch::add(vec![0], Site::MlpOutput, &vector, 0.5, true).unwrap()).unwrap();
    for token in [Token::FromEnd(0), Token::FromEnd(3), Token::TargetMean] {
        let read = |rows: &Rows| policy.capture(&View::Policy, rows, &[0, 1], Site::ResidualAfter, token).unwrap();
        let together = read(&rows);
        for row in 0..rows.count() {
            let one = numbers(&read(&alone(&rows, row)));
            assert_eq!(one, numbers(&together.narrow(1, row, 1).unwrap()), "{token:?}, row {row}");
        }
    }
    let next = |rows: &Rows| policy.next_token(&View::Policy, rows, &[3, 9, 30]).unwrap().to_vec2::<f32>().unwrap();
    let together = next(&rows);
    for (row, together) in together.iter().enumerate() {
        assert_eq!(&next(&alone(&rows, row))[0], together, "next tokens of row {row}");
    }
}

#[test]
fn rows_share_nothing_while_dropout_acts() {
    let policy = tiny::policy(tiny::gemma3(), &AdapterSettings { dropout: 0.5, ..tiny::adapter(AdapterKind::Lora) });
    let rows = rows();
    // Rows 0 and 5 are the same.
    assert_eq!(taps(&policy, &View::Policy, &rows, 0, false), taps(&policy, &View::Policy, &rows, 5, false));
    let scored = policy.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
    let logprob = scored.tap(Tap::Logprob).unwrap().to_vec2::<f32>().unwrap();
    assert_ne!(logprob[0], logprob[5]);
}

#[test]
fn slices_that_were_kept_give_the_bits_of_slices_that_run_again() {
    let rows = rows();
    let all = seeds(&rows);
    let run = |limit: u64| {
        let settings = PolicySettings { slice: Slice::Rows(2), max_saved_bytes: limit, ..PolicySettings::default() };
        let policy = policy(tiny::gemma3(), AdapterKind::Lora, settings);
        let mut scored = policy.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 0.8, true).unwrap();
        let bytes = scored.saved_bytes();
        policy.backward(&mut scored, &all).unwrap();
        assert_eq!(scored.saved_bytes(), 0);
        (bytes, tiny::bits(policy.parameters().gradients()))
    };
    let ((nothing, again), (everything, kept)) = (run(0), run(u64::MAX));
    assert_eq!(nothing, 0);
    assert_eq!(again, kept);
    let (some, partly) = run(everything as u64 * 2 / 3);
    assert!(0 < some && some < everything, "{some} of {everything}");
    assert_eq!(again, partly);
}

#[test]
fn what_other_scores_keep_leaves_less_room_for_slices() {
    let rows = rows();
    let settings = PolicySettings { slice: Slice::Rows(4), max_saved_bytes: 1 << 30, ..PolicySettings::default() };
    let policy = policy(tiny::gemma3(), AdapterKind::Lora, settings);
    let score = || policy.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
    let bytes = score().saved_bytes() as u64;
    let settings = PolicySettings { max_saved_bytes: bytes + bytes / 2, ..settings };
    let policy = self::policy(tiny::gemma3(), AdapterKind::Lora, settings);
    let score = || policy.score(&View::Policy, &rows, TapSet::OF_ONE_HEAD, 1.0, true).unwrap();
    let first = score();
    assert_eq!(first.saved_bytes() as u64, bytes);
    assert!((score().saved_bytes() as u64) < bytes);
    drop(first);
    assert_eq!(score().saved_bytes() as u64, bytes);
}
