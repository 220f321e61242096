//! Scores over a learner that takes some rows and not others.

use std::any::Any;
use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_compute::budget::Budget;
use tunebox_compute::fused::{Tap, TapSet, Taps};
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, View};
use tunebox_model::rows::Rows;

use super::*;
use crate::learner::{Editing, Learner, Sampling};
use crate::limits::Limits;
use crate::session::SessionSettings;
use crate::state::Charge;

/// Takes tokens up to 9, at a multiply-add each.
#[derive(Default)]
struct Picky {
    /// Of every row that was walked back, the first token and the seed of the last one.
    walked: Vec<(u32, f32)>,
}

impl Sampling for Picky {
    fn multiply_adds(&self, tokens: u64) -> u64 {
        tokens
    }
}

impl Editing for Picky {}

impl Learner for Picky {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, _: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        if let Some(id) = rows.ids.iter().flatten().find(|id| **id > 9) {
            return Err(Error::Argument(format!("there is no token {id}")));
        }
        let taps = Taps::from_iter([(Tap::Logprob, rows.mask_tensor(&Device::Cpu)?)]);
        Ok(Scored::of_taps(view.clone(), rows.clone(), taps, 0))
    }

    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let seeds = seeds.get(Tap::Logprob).unwrap().to_vec2::<f32>()?;
        self.walked.extend(scored.rows.ids.iter().zip(seeds).map(|(ids, seeds)| (ids[0], seeds[1])));
        Ok(())
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// A state in which a score was asked for of each row of tokens, and the numbers of the scores.
fn state<const N: usize>(rows: [[u32; 2]; N], learning: bool, limits: Limits) -> (State, [u64; N]) {
    let settings = SessionSettings { limits, ..SessionSettings::default() };
    let mut state = State::new(settings, Budget::new(1 << 20));
    state.learner = Box::new(Picky::default());
    state.meters.begin(f64::INFINITY);
    let numbers = rows.map(|ids| {
        let asked = Asked { view: View::Policy, taps: TapSet::default(), temperature: 1.0, learning };
        let rows = Arc::new(Rows::new(vec![ids.to_vec()], vec![vec![true; 2]]).unwrap());
        let charge = Arc::new(Charge::new(state.reserve(0).unwrap(), Vec::new()));
        let number = state.next_number();
        state.scores.insert(number, ScoreRecord::new(asked, rows, 0, charge));
        number
    });
    (state, numbers)
}

#[test]
fn a_score_fails_by_its_own_rows_alone() {
    let (mut state, [one, strange, other]) = state([[1, 2], [3, 99], [4, 5]], false, Limits::default());
    state.make_scores_asked_for().unwrap();
    assert!([one, other].iter().all(|number| state.scores[number].check_made().is_ok()));
    let Err(Refusal::Error(error)) = state.scores[&strange].check_made() else { panic!("token 99 was taken") };
    assert_eq!(error.message, "there is no token 99");
}

#[test]
fn what_the_others_of_a_failed_pass_teach_arrives_at_their_own_rows() {
    let (mut state, [one, strange, other]) = state([[1, 2], [3, 99], [4, 5]], true, Limits::default());
    state.make_scores_asked_for().unwrap();
    assert!(!state.scores[&strange].may_be_learned_from());
    let [one, other] = [one, other].map(|number| state.scores[&number].tap(Tap::Logprob).unwrap().tensor);
    let loss = (one.sum_all().unwrap() + other.affine(2.0, 0.0).unwrap().sum_all().unwrap()).unwrap();
    state.walk_back(&loss).unwrap();
    let learner: &dyn Any = &*state.learner;
    assert_eq!(learner.downcast_ref::<Picky>().unwrap().walked, [(1, 1.0), (4, 2.0)]);
}

#[test]
fn scores_that_are_made_again_are_paid_for_again() {
    for (last, passes) in [(5, 0), (99, 3)] {
        let (mut state, _) = state([[1, 2], [3, 4], [4, last]], false, Limits::default());
        state.make_scores_asked_for().unwrap();
        let counts = state.meters.counts();
        assert_eq!((counts.passes, counts.model_work), (passes, 2 * passes), "token {last}");
    }
    let (mut state, _) = state([[1, 2], [3, 99], [4, 5]], false, Limits { passes: 2, ..Limits::default() });
    let Err(Refusal::Trap(error)) = state.make_scores_asked_for() else { panic!("the third one was free") };
    assert!(matches!(error.downcast_ref(), Some(Cause::Passes { limit: 2 })), "{error}");
}

#[test]
fn a_pass_goes_with_the_last_score_that_came_from_it() {
    let (mut state, [one, other]) = state([[1, 2], [3, 4]], false, Limits::default());
    state.make_scores_asked_for().unwrap();
    assert_eq!((state.scores.len(), state.passes.len()), (2, 1));
    state.forget_score(one);
    assert_eq!((state.scores.len(), state.passes.len()), (1, 1));
    state.forget_score(other);
    assert_eq!((state.scores.len(), state.passes.len()), (0, 0));
}
