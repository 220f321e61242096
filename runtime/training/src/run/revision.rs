//! Another version of the method between two steps: weights, optimiser, data and the count of steps go on.
//!
//! For authors. It is done where the method runs, and no worker is asked for it: who changes a method's source while it
//! runs has written it, and cargo ran the build of that source on this machine already. The sandbox holds the method
//! either way; a second process would keep nothing else out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_foundation::explain::Explanation;
use tunebox_package::Manifest;
use tunebox_sandbox::StepReport;

use super::start::{Running, Session, session_settings};
use crate::data::Cursor;
use crate::error::Error;
use crate::learner::begin_step;
use crate::learner::initial_state::{self, InitialState};
use crate::lock;
use crate::observer::{Observer, StepEvent};
use crate::plan::{self, PlannedMethod, PlannedRun, Revision};
use tunebox_foundation::files;

/// Where newer versions of a run's method come from.
pub trait Revisions {
    /// A newer component that is not the present one, if there is one that was not given yet. Asked between two steps;
    /// does not wait.
    fn newer(&mut self, present: &[u8]) -> Option<Vec<u8>>;

    /// A step failed. Waits for a newer component with which it can be tried again; `None` gives the run up.
    fn mended(&mut self, error: &Error, stop: &AtomicBool) -> Option<Vec<u8>>;

    /// What became of the component that was given last, after so many steps: the run goes on with it, or with the
    /// version before.
    fn settled(&mut self, step: u64, outcome: Result<&Manifest, &Error>);
}

/// Where a run stands between two steps: all that a checkpoint keeps.
struct Pause {
    /// The method's own bytes and the train state; none before the first step: then it stands before `init`, which begins it
    /// again.
    held: Option<(Vec<u8>, InitialState)>,
    streams: BTreeMap<String, u64>,
    cursor: Cursor,
}

/// What a run needs whose method may change between two steps.
pub(super) struct Revising<'a> {
    revisions: &'a mut dyn Revisions,
    /// Where the run stood after its last whole step.
    pause: Pause,
}

impl<'a> Revising<'a> {
    /// Begins where the run begins or goes on.
    pub(super) fn begin(running: &mut Running, revisions: &'a mut dyn Revisions) -> Result<Self, Error> {
        let checkpoint = running.plan.checkpoint.as_ref();
        let state = checkpoint.map(|(path, state)| state.method_state(path)).transpose()?;
        let initial = state.is_some().then(|| InitialState::copy_of(&running.train_state())).transpose()?;
        let streams = state.as_ref().map_or_else(BTreeMap::new, |_| running.session.streams().clone());
        let held = state.zip(initial);
        Ok(Self { revisions, pause: Pause { held, streams, cursor: running.sampler.cursor() } })
    }

    /// The coming step, by the newest version of the method. One that fails by the method's fault is tried again with the
    /// next version, from the very place where it began. Whether it is done: where a person gave it up, what was there
    /// before it is saved.
    pub(super) fn one(
        &mut self,
        running: &mut Running,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, Error> {
        let mut newest = self.revisions.newer(&running.plan.method.package.bytes);
        loop {
            let error = match self.attempt(running, newest.take(), observer) {
                Ok(event) => return running.count(event, observer).map(|()| true),
                Err(error) => error,
            };
            running.tell_last(running.step + 1, observer);
            if !matches!(error, Error::Sandbox(_) | Error::NonFinite { .. }) {
                return Err(error);
            }
            newest = self.revisions.mended(&error, stop);
            if newest.is_some() {
                continue;
            }
            if !stop.load(Ordering::Relaxed) {
                return Err(error);
            }
            return running.give_up(&self.pause, observer).map(|()| false);
        }
    }

    /// The coming step by a newer version, if there is one. It is whole when the method's state after it is known.
    fn attempt(
        &mut self,
        running: &mut Running,
        newest: Option<Vec<u8>>,
        observer: &mut dyn Observer,
    ) -> Result<StepEvent, Error> {
        if let Some(bytes) = newest {
            self.revise(running, bytes, observer)?;
        }
        let event = running.attempt(observer)?;
        let state = running.session.save_state()?;
        running.stand(&mut self.pause, state)?;
        Ok(event)
    }

    /// Goes over to another component. Where it does not fit, or refuses its settings or its state, the run goes on with
    /// the one before, which begins anew where it stood.
    fn revise(&mut self, running: &mut Running, bytes: Vec<u8>, observer: &mut dyn Observer) -> Result<(), Error> {
        running.rewind(&self.pause);
        match running.try_out(bytes, &self.pause) {
            Ok((method, report)) => {
                running.go_over(method)?;
                running.tell(&report, observer);
                self.revisions.settled(running.step, Ok(&running.plan.method.package.manifest));
            }
            Err(error) => {
                running.tell_last(running.step + 1, observer);
                self.revisions.settled(running.step, Err(&error));
                let (plan, step) = (&running.plan, running.step);
                let report = instate(&mut running.session, plan, &plan.method, &self.pause, step)?;
                running.tell(&report, observer);
            }
        }
        Ok(())
    }
}

impl Running {
    /// Takes down where it stands now. An error ends the run: what was there is partly gone.
    fn stand(&mut self, pause: &mut Pause, state: Vec<u8>) -> Result<(), Error> {
        pause.streams.clone_from(self.session.streams());
        pause.cursor = self.sampler.cursor();
        match &mut pause.held {
            Some((kept, initial)) => {
                *kept = state;
                initial.update(&self.train_state())?;
            }
            None => pause.held = Some((state, InitialState::copy_of(&self.train_state())?)),
        }
        Ok(())
    }

    /// Takes the data up where it was. The method is not the same afterwards: it begins anew, or ends.
    fn rewind(&mut self, pause: &Pause) {
        self.sampler.seek(pause.cursor);
        self.before.clone_from(&self.used);
    }

    /// Leaves a step that is not done, with everything before it saved. Before the first there is nothing to save.
    fn give_up(&mut self, pause: &Pause, observer: &mut dyn Observer) -> Result<(), Error> {
        self.rewind(pause);
        match &pause.held {
            Some((state, initial)) if self.kept.as_ref().is_none_or(|(step, _)| *step != self.step) => {
                initial.restore(&mut self.train_state())?;
                self.keep(state.clone(), pause.streams.clone(), observer)
            }
            _ => Ok(()),
        }
    }

    /// The component in the place of the present one, if it fits the run and takes its settings and its state.
    fn try_out(&mut self, bytes: Vec<u8>, pause: &Pause) -> Result<(PlannedMethod, StepReport), Error> {
        let engine = plan::engine(&self.plan.settings)?;
        let method = plan::revised(&self.plan.settings, bytes, &engine)?;
        self.fits(&method)?;
        let report = instate(&mut self.session, &self.plan, &method, pause, self.step)?;
        Ok((method, report))
    }

    /// Whether what the run was set up with is what the method would be set up with. Errors: it is not.
    fn fits(&self, method: &PlannedMethod) -> Result<(), Error> {
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

    /// Writes down that the run is another method's from here on, unless it is the same component once more. A run without
    /// a step begins with it, and is wholly its own.
    fn go_over(&mut self, method: PlannedMethod) -> Result<(), Error> {
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

/// What a method needs in another way than the version before it, each pair being before and now.
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

/// Begins a method in the place of the session's after so many steps, with the state of the one before, over the same
/// train state. As where a run is resumed, its `init` finds what there was at the beginning of the run; then all is put in place
/// that came of the steps since, so that nothing is done twice.
fn instate(
    session: &mut Session,
    plan: &PlannedRun,
    method: &PlannedMethod,
    pause: &Pause,
    step: u64,
) -> Result<StepReport, Error> {
    let mut train_state = session.train_state();
    initial_state::reset(&mut train_state)?;
    begin_step(&mut train_state, 0);
    drop(train_state);
    session.replace(&method.admitted, session_settings(plan, method))?;
    let report = session.init(&method.settings)?;
    let Some((state, initial)) = &pause.held else { return Ok(report) };
    let mut train_state = session.train_state();
    initial.restore_after_init(&mut train_state)?;
    begin_step(&mut train_state, step);
    drop(train_state);
    session.restore_streams(&pause.streams);
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
