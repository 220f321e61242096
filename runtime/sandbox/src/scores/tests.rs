//! Scores over a learner that takes some rows and not others.

use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_compute::budget::Ledger;
use tunebox_compute::fused::TapSet;
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Taps, View};
use tunebox_model::rows::Rows;

use super::*;
use crate::learner::{Editing, Learner, Sampling};
use crate::session::SessionSettings;
use crate::state::Charge;

/// Takes tokens up to 9.
struct Picky;

impl Sampling for Picky {}

impl Editing for Picky {}

impl Learner for Picky {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, _: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        if let Some(id) = rows.ids.iter().flatten().find(|id| **id > 9) {
            return Err(Error::Argument(format!("there is no token {id}")));
        }
        let taps = Taps { logprob: rows.mask_tensor(&Device::Cpu)?, ..Taps::empty()? };
        Ok(Scored::of_taps(view.clone(), rows.clone(), taps, 0))
    }

    fn backward(&mut self, _: &mut Scored, _: &Seeds) -> Result<(), Error> {
        Ok(())
    }

    fn snapshot(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn has_reference(&self) -> bool {
        false
    }

    fn update(&mut self) -> Result<f32, Error> {
        Ok(0.0)
    }

    fn rate(&self) -> f64 {
        0.0
    }

    fn position(&self) -> u32 {
        0
    }

    fn planned(&self) -> u32 {
        1
    }

    fn generation(&self) -> u64 {
        0
    }

    fn has_accumulated(&self) -> bool {
        false
    }
}

/// A state in which a score was asked for of each row of tokens, and the numbers of the scores.
fn state<const N: usize>(rows: [[u32; 2]; N]) -> (State, [u64; N]) {
    let mut state = State::new(SessionSettings::default(), Ledger::new(1 << 20));
    state.learner = Box::new(Picky);
    state.meters.begin(f64::INFINITY);
    let numbers = rows.map(|ids| {
        let asked = Asked { view: View::Policy, taps: TapSet::default(), temperature: 1.0, learning: false };
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
    let (mut state, [one, strange, other]) = state([[1, 2], [3, 99], [4, 5]]);
    state.make_scores_asked_for().unwrap();
    assert!([one, other].iter().all(|number| state.scores[number].check_made().is_ok()));
    let Err(Refusal::Error(error)) = state.scores[&strange].check_made() else { panic!("token 99 was taken") };
    assert_eq!(error.message, "there is no token 99");
}

#[test]
fn a_pass_goes_with_the_last_score_that_came_from_it() {
    let (mut state, [one, other]) = state([[1, 2], [3, 4]]);
    state.make_scores_asked_for().unwrap();
    assert_eq!((state.scores.len(), state.passes.len()), (2, 1));
    state.forget_score(one);
    assert_eq!((state.scores.len(), state.passes.len()), (1, 1));
    state.forget_score(other);
    assert_eq!((state.scores.len(), state.passes.len()), (0, 0));
}
