//! Changes the method of a run between two steps, for the method's author. Weights, optimizer, data position and step counter
//! continue.
//!
//! It runs in this process, not in a worker: the author's build of the method ran on this machine anyway, and the sandbox
//! confines the method in either process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_foundation::explain::Explanation;
use tunebox_package::Manifest;
use tunebox_sandbox::StepReport;

use super::start::{ActiveRun, Session, session_settings};
use crate::data::Cursor;
use crate::error::Error;
use crate::learner::begin_step;
use crate::learner::initial_state::{self, InitialState};
use crate::lock;
use crate::observer::{Observer, StepEvent};
use crate::plan::{self, PlannedMethod, PlannedRun, Revision};
use tunebox_foundation::files;

/// The source of newer versions of a run's method.
pub trait Revisions {
    /// Returns a newer component that differs from `present` and was not returned before. Called between two steps; does not
    /// wait.
    fn newer(&mut self, present: &[u8]) -> Option<Vec<u8>>;

    /// Waits, after a failed step, for a newer component to try it again; `None` ends the run.
    fn wait_for_fix(&mut self, error: &Error, stop: &AtomicBool) -> Option<Vec<u8>>;

    /// Reports, after `step` steps, whether the run continues with the component that was returned last, or keeps the version
    /// before it.
    fn report_outcome(&mut self, step: u64, outcome: Result<&Manifest, &Error>);
}

/// The state of a run between two steps: all that a checkpoint saves.
struct StepBoundary {
    /// The method's saved state and the train state; `None` before the first step, where `init` makes them.
    held: Option<(Vec<u8>, InitialState)>,
    streams: BTreeMap<String, u64>,
    cursor: Cursor,
}

/// A run whose method may change between steps.
pub(super) struct RevisableRun<'a> {
    revisions: &'a mut dyn Revisions,
    /// The state after the last finished step.
    boundary: StepBoundary,
}

impl<'a> RevisableRun<'a> {
    /// Records the state at which the run starts or resumes.
    pub(super) fn begin(running: &mut ActiveRun, revisions: &'a mut dyn Revisions) -> Result<Self, Error> {
        let checkpoint = running.plan.checkpoint.as_ref();
        let state = checkpoint.map(|(path, state)| state.method_state(path)).transpose()?;
        let initial = state.is_some().then(|| InitialState::copy_of(&running.train_state())).transpose()?;
        let streams = state.as_ref().map_or_else(BTreeMap::new, |_| running.session.streams().clone());
        let held = state.zip(initial);
        Ok(Self { revisions, boundary: StepBoundary { held, streams, cursor: running.sampler.cursor() } })
    }

    /// Executes the next step with the newest version of the method. A step that fails in the method is tried again with the
    /// next version, from the state before it. Returns false if the user stopped the run instead; the state before the step is
    /// then saved.
    pub(super) fn execute_step(
        &mut self,
        running: &mut ActiveRun,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, Error> {
        let mut newest = self.revisions.newer(&running.plan.method.package.bytes);
        loop {
            let error = match self.try_step(running, newest.take(), observer) {
                Ok(event) => return running.record_step(event, observer).map(|()| true),
                Err(error) => error,
            };
            running.show_last_lines(running.step + 1, observer);
            if !matches!(error, Error::Sandbox(_) | Error::NonFinite { .. }) {
                return Err(error);
            }
            newest = self.revisions.wait_for_fix(&error, stop);
            if newest.is_some() {
                continue;
            }
            if !stop.load(Ordering::Relaxed) {
                return Err(error);
            }
            return running.abandon_step(&self.boundary, observer).map(|()| false);
        }
    }

    /// Tries the next step, with a newer version if there is one, and records the state after it.
    fn try_step(
        &mut self,
        running: &mut ActiveRun,
        newest: Option<Vec<u8>>,
        observer: &mut dyn Observer,
    ) -> Result<StepEvent, Error> {
        if let Some(bytes) = newest {
            self.revise(running, bytes, observer)?;
        }
        let event = running.try_step(observer)?;
        let state = running.session.save_state()?;
        running.update_boundary(&mut self.boundary, state)?;
        Ok(event)
    }

    /// Switches to another component. If it does not fit the run, or rejects its settings or state, restarts the version
    /// before it from the recorded state.
    fn revise(&mut self, running: &mut ActiveRun, bytes: Vec<u8>, observer: &mut dyn Observer) -> Result<(), Error> {
        running.rewind(&self.boundary);
        match running.try_method(bytes, &self.boundary) {
            Ok((method, report)) => {
                running.switch_method(method)?;
                running.show_report(&report, observer);
                self.revisions.report_outcome(running.step, Ok(&running.plan.method.package.manifest));
            }
            Err(error) => {
                running.show_last_lines(running.step + 1, observer);
                self.revisions.report_outcome(running.step, Err(&error));
                let (plan, step) = (&running.plan, running.step);
                let report = start_method(&mut running.session, plan, &plan.method, &self.boundary, step)?;
                running.show_report(&report, observer);
            }
        }
        Ok(())
    }
}

impl ActiveRun {
    /// Replaces the recorded state by the present one. After an error the record is incomplete, so the run must end.
    fn update_boundary(&mut self, boundary: &mut StepBoundary, state: Vec<u8>) -> Result<(), Error> {
        boundary.streams.clone_from(self.session.streams());
        boundary.cursor = self.sampler.cursor();
        match &mut boundary.held {
            Some((kept, initial)) => {
                *kept = state;
                initial.update(&self.train_state())?;
            }
            None => boundary.held = Some((state, InitialState::copy_of(&self.train_state())?)),
        }
        Ok(())
    }

    /// Moves the data back to the recorded position. The method must be restarted or ended afterwards.
    fn rewind(&mut self, boundary: &StepBoundary) {
        self.sampler.seek(boundary.cursor);
        self.before.clone_from(&self.used);
    }

    /// Abandons an unfinished step and saves the state before it. Saves nothing before the first step, or if that state is
    /// saved already.
    fn abandon_step(&mut self, boundary: &StepBoundary, observer: &mut dyn Observer) -> Result<(), Error> {
        self.rewind(boundary);
        match &boundary.held {
            Some((state, initial)) if self.kept.as_ref().is_none_or(|(step, _)| *step != self.step) => {
                initial.restore(&mut self.train_state())?;
                self.write_checkpoint(state.clone(), boundary.streams.clone(), observer)
            }
            _ => Ok(()),
        }
    }

    /// Starts a component in place of the present one, from the recorded state.
    ///
    /// # Errors
    /// A component that does not fit the run, or rejects its settings or state.
    fn try_method(&mut self, bytes: Vec<u8>, boundary: &StepBoundary) -> Result<(PlannedMethod, StepReport), Error> {
        let engine = plan::engine(&self.plan.settings)?;
        let method = plan::revised(&self.plan.settings, bytes, &engine)?;
        self.check_compatible(&method)?;
        let report = start_method(&mut self.session, &self.plan, &method, boundary, self.step)?;
        Ok((method, report))
    }

    /// Checks that a method has the name, shape of records and needs that the run was set up for.
    fn check_compatible(&self, method: &PlannedMethod) -> Result<(), Error> {
        let (old, new) = (&self.plan.method, &method.package.manifest);
        let unlike = |what: String| Err(misfit(what));
        if new.name != old.package.manifest.name {
            return unlike(format!("it is called `{}`, the run is one of `{}`", new.name, old.package.manifest.name));
        }
        if !method.shapes.contains(&self.plan.data.shape) {
            return unlike(format!("it learns from records of the shape `{}`, which these are not", new.shape));
        }
        let (learns, edits) = ((old.learns(), method.learns()), (old.edits(), method.edits()));
        changed_needs(learns, edits).map_or(Ok(()), |what| unlike(what.into()))
    }

    /// Makes a method that of the run, and records the change. Records nothing for an equal component; before the first step
    /// writes the lock anew instead.
    fn switch_method(&mut self, method: PlannedMethod) -> Result<(), Error> {
        let sha256 = method.package.digest.clone();
        let before = std::mem::replace(&mut self.plan.identity.method, sha256.clone());
        self.plan.summary.update_method(&method);
        self.plan.method = method;
        self.unlearned = false;
        if sha256 == before {
            return Ok(());
        }
        if self.step == 0 {
            let lock = lock::write::lock(&self.plan, None)?;
            return Ok(files::write(&self.plan.folder.join(lock::FILE), lock.as_bytes())?);
        }
        let revision = Revision { after: self.step, sha256 };
        self.metrics.add_revision(&revision)?;
        self.plan.revised.push(revision);
        Ok(())
    }
}

/// The error about a changed method that does not fit the run.
fn misfit(why: String) -> Error {
    Explanation::new("training", "the changed method does not fit the run that goes on")
        .with_why(why)
        .with_hint("change it back, or begin a new run with it")
        .into()
}

/// How the needs of a method differ from those of the version before it. Each pair is (before, now).
fn changed_needs(learns: (bool, bool), edits: (bool, bool)) -> Option<&'static str> {
    match (learns, edits) {
        ((true, false), _) => Some(
            "it never calls `minimise` now, and nothing would be trained; `minimise(&loss)?` in its `step` is what learns",
        ),
        ((false, true), _) => Some("it calls `minimise` now, and the run began without an adapter to train"),
        (_, (true, false)) => Some("it asks for no `weights` now, and the run was set up to edit them"),
        (_, (false, true)) => Some("it asks for `weights` now, and the run was not set up to edit them"),
        _ => None,
    }
}

/// Starts a method in place of the session's present one after `step` steps. As in a resumed run, `init` runs on the train state
/// of the run's beginning; the recorded state is then restored over it.
fn start_method(
    session: &mut Session,
    plan: &PlannedRun,
    method: &PlannedMethod,
    boundary: &StepBoundary,
    step: u64,
) -> Result<StepReport, Error> {
    let mut train_state = session.train_state();
    initial_state::reset(&mut train_state)?;
    begin_step(&mut train_state, 0);
    drop(train_state);
    session.replace(&method.admitted, session_settings(plan, method))?;
    let report = session.init(&method.settings)?;
    let Some((state, initial)) = &boundary.held else { return Ok(report) };
    let mut train_state = session.train_state();
    initial.restore_after_init(&mut train_state)?;
    begin_step(&mut train_state, step);
    drop(train_state);
    session.restore_streams(&boundary.streams);
    session.load_state(state)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_forgot_to_learn_is_told_what_learns() {
        let told = |learns, edits| changed_needs(learns, edits).unwrap_or_default();
        assert!(told((true, false), (false, false)).contains("`minimise(&loss)?`"));
        assert!(told((false, true), (false, false)).contains("without an adapter"));
        assert!(told((true, true), (false, true)).contains("asks for `weights` now"));
        assert_eq!(changed_needs((true, true), (false, false)), None);
    }
}
