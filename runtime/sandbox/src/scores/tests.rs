//! Scoring passes, shared and split, in a run whose model refuses some rows.

use std::sync::{Arc, Mutex};

use tunebox_compute::Device;
use tunebox_compute::budget::Budget;
use tunebox_compute::fused::{Tap, Taps};
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, Scored, View};
use tunebox_model::rows::Rows;

use super::*;
use crate::bindings::learn::Host as _;
use crate::bindings::tensor::{Host as _, HostTensor as _};
use crate::limits::Limits;
use crate::run_hooks::RunHooks;
use crate::settings::SessionSettings;
use crate::state::HostContext;
use crate::train_state::tests::tiny;

/// Of every row of a backward pass: its first token, and the seed of the log-probability of its second token.
type Backward = Arc<Mutex<Vec<(u32, f32)>>>;

/// Run hooks that score rows of tokens up to 9 and refuse all others. Records the rows of backward passes.
struct ShortVocabulary(Backward);

impl RunHooks for ShortVocabulary {
    fn score(&mut self, _: &Policy, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        if let Some(id) = rows.ids.iter().flatten().find(|id| **id > 9) {
            return Err(Error::Argument(format!("there is no token {id}")));
        }
        let taps = Taps::from_iter([(Tap::Logprob, rows.mask_tensor(&Device::Cpu)?)]);
        Ok(Scored::of_taps(request.view.clone(), rows.clone(), taps, 0))
    }

    fn backward(&mut self, _: &Policy, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        let seeds = seeds.get(Tap::Logprob).unwrap().to_vec2::<f32>()?;
        self.0.lock().unwrap().extend(scored.rows.ids.iter().zip(seeds).map(|(ids, seeds)| (ids[0], seeds[1])));
        Ok(())
    }
}

/// Creates a state in which a score was requested for each row of tokens, and returns it with the numbers of the scores
/// and the record of backward passes.
fn state<const N: usize>(rows: [[u32; 2]; N], learning: bool, limits: Limits) -> (State, [u64; N], Backward) {
    let (settings, backward) = (SessionSettings { limits, ..SessionSettings::default() }, Backward::default());
    let train_state = Arc::new(Mutex::new(tiny(ShortVocabulary(backward.clone()))));
    let mut state = State::new(settings, Budget::new(1 << 20), train_state);
    // A multiply-add a token.
    state.weights = 1;
    state.meters.begin(f64::INFINITY);
    let numbers = rows.map(|ids| {
        let request = ScoreRequest { view: View::Policy, taps: TapRequest::default(), temperature: 1.0, learning };
        let rows = Arc::new(Rows::new(vec![ids.to_vec()], vec![vec![true; 2]]).unwrap());
        let nothing = [state.reserve(0).unwrap(), state.reserve(0).unwrap()];
        let number = state.next_number();
        state.scores.insert(number, ScoreRecord::new(request, rows, 0, nothing));
        number
    });
    (state, numbers, backward)
}

#[test]
fn a_score_fails_by_its_own_rows_alone() {
    let (mut state, [one, strange, other], _) = state([[1, 2], [3, 99], [4, 5]], false, Limits::default());
    state.run_pending_scores().unwrap();
    assert!([one, other].iter().all(|number| state.scores[number].check_scored().is_ok()));
    let Err(Refusal::Error(error)) = state.scores[&strange].check_scored() else { panic!("token 99 was taken") };
    assert_eq!(error.message, "there is no token 99");
}

#[test]
fn what_the_others_of_a_failed_pass_teach_arrives_at_their_own_rows() {
    let (mut state, [one, strange, other], backward) = state([[1, 2], [3, 99], [4, 5]], true, Limits::default());
    state.run_pending_scores().unwrap();
    assert!(!state.scores[&strange].can_be_learned_from());
    let [one, other] = [one, other].map(|number| {
        let tap = state.scores[&number].tap(Tap::Logprob).unwrap().clone();
        let bytes = Arc::new(state.reserve(0).unwrap());
        state.push_tensor(tap, bytes).unwrap()
    });
    let mut host = HostContext::new(&mut state);
    let twice = host.scale(other, 2.0).unwrap();
    let both = host.add(one, twice).unwrap();
    let loss = host.sum(both, None, false).unwrap();
    host.backward(loss).unwrap();
    assert_eq!(*backward.lock().unwrap(), [(1, 1.0), (4, 2.0)]);
}

/// Returns rows of 1,000 tokens, `tokens` in all, no two of which share a prefix.
fn long_rows(tokens: u32) -> Rows {
    let ids: Vec<Vec<u32>> = (0..tokens / 1000).map(|row| vec![row; 1000]).collect();
    let targets = vec![vec![true; 1000]; ids.len()];
    Rows::new(ids, targets).unwrap()
}

#[test]
fn a_pass_that_saves_more_than_it_may_ends_the_method_before_it_runs() {
    let rows = long_rows(10_000);
    let room = |limit| {
        let (state, ..) = state([], true, Limits { activation_bytes: limit, ..Limits::default() });
        state.check_pass_memory(&View::Policy, &rows, true)
    };
    let (state, ..) = state([], true, Limits::default());
    let needed = state.train_state().policy.score_memory(&View::Policy, &rows, true).kept;
    assert!(needed > 0 && room(needed).is_ok());
    assert!(matches!(room(needed - 1), Err(Cause::Activations { .. })));
}

#[test]
fn a_pass_that_memory_does_not_hold_ends_the_method_before_it_runs() {
    let (mut state, ..) = state([], true, Limits::default());
    let rows = long_rows(2_000_000);
    if state.held_before.is_none() {
        return;
    }
    state.check_pass_memory(&View::Policy, &rows, true).unwrap();
    // As if all of the machine had been taken before.
    state.held_before = Some(u64::MAX);
    let cause = state.check_pass_memory(&View::Policy, &rows, true).unwrap_err();
    assert!(matches!(cause, Cause::Memory { room: 0, .. }), "{cause}");
}

#[test]
fn scores_that_are_made_again_are_paid_for_again() {
    for (last, passes) in [(5, 0), (99, 3)] {
        let (mut state, ..) = state([[1, 2], [3, 4], [4, last]], false, Limits::default());
        state.run_pending_scores().unwrap();
        let counts = state.meters.counts();
        assert_eq!((counts.passes, counts.model_work), (passes, 2 * passes), "token {last}");
    }
    let (mut state, ..) = state([[1, 2], [3, 99], [4, 5]], false, Limits { passes: 2, ..Limits::default() });
    let Err(Refusal::Trap(error)) = state.run_pending_scores() else { panic!("the third one was free") };
    assert!(matches!(error.downcast_ref(), Some(Cause::Passes { limit: 2 })), "{error}");
}

#[test]
fn a_pass_goes_with_the_last_score_that_came_from_it() {
    let (mut state, [one, other], _) = state([[1, 2], [3, 4]], false, Limits::default());
    state.run_pending_scores().unwrap();
    assert_eq!((state.scores.len(), state.passes.len()), (2, 1));
    state.release_score(one);
    assert_eq!((state.scores.len(), state.passes.len()), (1, 1));
    state.release_score(other);
    assert_eq!((state.scores.len(), state.passes.len()), (0, 0));
}
