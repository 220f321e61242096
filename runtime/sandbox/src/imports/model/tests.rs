//! Snapshots, scores and what they count against the limits, on a tiny model.

use std::sync::Mutex;

use tunebox_compute::budget::Budget;
use tunebox_model::edit::Role;

use super::*;
use crate::bindings::hidden::Site;
use crate::bindings::patch::Host as _;
use crate::bindings::weights::{Host as _, Role as Matrix};
use crate::cause::Cause;
use crate::limits::Limits;
use crate::settings::SessionSettings;
use crate::train_state::tests::{NoRun, tiny};

#[test]
fn snapshots_of_an_earlier_session_count() {
    let limits = Limits { snapshots: 1, ..Limits::default() };
    let settings = SessionSettings { limits, ..SessionSettings::default() };
    let mut train_state = tiny(NoRun);
    train_state.snapshot("old").unwrap();
    let mut state = State::new(settings, Budget::new(1 << 20), Arc::new(Mutex::new(train_state)));
    let Refusal::Error(error) = HostContext::new(&mut state).snapshot("new".into()).unwrap_err() else {
        panic!("the method ended")
    };
    assert!(error.message.contains("at most 1"), "{}", error.message);
    HostContext::new(&mut state).snapshot("old".into()).unwrap();
}

#[test]
fn a_score_holds_the_patches_that_it_was_made_under() {
    let budget = Budget::new(1 << 20);
    let shared = Arc::new(Mutex::new(tiny(NoRun)));
    let mut state = State::new(SessionSettings::default(), budget.clone(), shared);
    let mut host = HostContext::new(&mut state);
    let rows = Arc::new(Rows::new(vec![vec![1, 2]], vec![vec![false, true]]).unwrap());
    let taken = |host: &mut HostContext<'_>| {
        let (rows, view) = (host.push_rows(&rows).unwrap(), host.policy().unwrap());
        let before = budget.held();
        host.score(view, rows, None, 1.0).unwrap();
        budget.held() - before
    };
    let bare = taken(&mut host);
    for _ in 0..3 {
        let vector = host.push_list(&[1_f32; 4]).unwrap();
        host.add(vec![0], Site::ResidualAfter, vector, 1.0, false).unwrap();
    }
    assert_eq!(taken(&mut host), bare + 3 * host.patch_bytes());
}

#[test]
fn snapshots_and_edited_matrices_count_before_they_are_made() {
    let train_state = tiny(NoRun);
    let (one, edit) = (train_state.policy.snapshot_bytes(), train_state.policy.edit_bytes(Role::Head, 0).unwrap());
    assert!(one > 0 && edit > 0);
    let limits = Limits { activation_bytes: 2 * one + edit / 2, ..Limits::default() };
    let settings = SessionSettings { limits, ..SessionSettings::default() };
    let mut state = State::new(settings, Budget::new(1 << 20), Arc::new(Mutex::new(train_state)));
    let mut host = HostContext::new(&mut state);
    let project = |host: &mut HostContext<'_>| {
        let direction = host.push_list(&[1_f32; 16]).unwrap();
        host.project_out(Matrix::Head, 0, direction, 1.0, false)
    };
    host.snapshot("one".into()).unwrap();
    host.snapshot("two".into()).unwrap();
    let kept = |refusal: Refusal| matches!(refusal, Refusal::Trap(error) if matches!(error.downcast_ref(), Some(Cause::Activations { .. })));
    // A snapshot is made before the one that it replaces is dropped.
    assert!(kept(host.snapshot("two".into()).unwrap_err()) && kept(project(&mut host).unwrap_err()));
    let held = |host: &HostContext<'_>| host.train_state().policy.copied_bytes();
    assert_eq!(held(&host), 2 * one);
    host.limits.activation_bytes = 2 * one + edit;
    project(&mut host).unwrap();
    // One of the two matrices that the edit took stays, and a snapshot shares it.
    assert_eq!(held(&host), 2 * one + edit / 2);
    assert!(kept(project(&mut host).unwrap_err()));
}
