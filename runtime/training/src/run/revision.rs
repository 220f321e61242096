//! Changes the method of a run between two steps, for the method's author. Weights, optimizer, data position and step
//! counter continue.
//!
//! It runs in this process, not in a worker: the author's build of the method ran on this machine anyway, and the
//! sandbox confines the method in either process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_foundation::explain::Explanation;
use tunebox_sandbox::StepReport;

use super::start::{ActiveRun, continue_at, session_settings};
use crate::data::Cursor;
use crate::error::Error;
use crate::learner::begin_step;
use crate::learner::initial_state::{self, InitialState};
use crate::lock;
use crate::observer::{StepEvent, Version};
use crate::plan::{self, PlannedMethod, Revision};

/// A run whose method may change between steps, with the state after the last finished step: all that a checkpoint
/// saves.
pub(super) struct RevisableRun {
    /// The method's saved state and the train state; `None` before the first step, where `init` makes them.
    saved: Option<(Vec<u8>, InitialState)>,
    streams: BTreeMap<String, u64>,
    cursor: Cursor,
}

impl RevisableRun {
    /// Records the state at which the run resumes, and the position in the data, so that the first step can be tried
    /// again. For a run without a checkpoint records the position only: `init` makes the state anew.
    pub(super) fn begin(running: &mut ActiveRun<'_>) -> Result<Self, Error> {
        let checkpoint = running.plan.checkpoint.as_ref();
        let state = checkpoint.map(|(path, state)| state.method_state(path)).transpose()?;
        let cursor = running.sampler.cursor();
        let mut revisable = Self { saved: None, streams: BTreeMap::new(), cursor };
        if let Some(state) = state {
            revisable.record_state(running, state)?;
        }
        Ok(revisable)
    }

    /// Executes and records the next step, after switching to a newer version if the observer has one. If the step
    /// fails with [`Error::Sandbox`] or [`Error::NonFinite`], waits for a newer version
    /// ([`wait_for_fix`](crate::Observer::wait_for_fix)) and tries the step again from the state before it. Returns
    /// true after the step; false if the wait ended because `stop` was set, after saving the state before the step.
    ///
    /// # Errors
    /// Any other error of the step, such as one of a file, at once; and the error of the step if the wait ended without
    /// a version and without `stop`.
    pub(super) fn execute_step(&mut self, running: &mut ActiveRun<'_>, stop: &AtomicBool) -> Result<bool, Error> {
        let mut newest = running.observer.next_version(&running.plan.method.package.bytes);
        loop {
            let error = match self.try_step(running, newest.take()) {
                Ok(event) => return running.record_step(event).map(|()| true),
                Err(error) => error,
            };
            running.show_last_lines(running.summary.step + 1);
            if !matches!(error, Error::Sandbox(_) | Error::NonFinite { .. }) {
                return Err(error);
            }
            newest = running.observer.wait_for_fix(&error, stop);
            match (&newest, stop.load(Ordering::Relaxed)) {
                (Some(_), _) => {}
                (None, true) => return self.abandon_step(running).map(|()| false),
                (None, false) => return Err(error),
            }
        }
    }

    /// Tries the next step once, first switching to the version `newest` if there is one, and records the state after
    /// the step for later tries. Does not advance the step counter or write metrics of the step.
    fn try_step(&mut self, running: &mut ActiveRun<'_>, newest: Option<Version>) -> Result<StepEvent, Error> {
        if let Some(version) = newest {
            self.revise(running, version)?;
        }
        let event = running.try_step()?;
        let state = running.session.save_state()?;
        running.show_last_lines(running.summary.step + 1);
        self.record_state(running, state)?;
        Ok(event)
    }

    /// Switches the run to `version`, at the recorded state and position in the data, and reports the
    /// outcome to the observer. If the version is not admitted, does not fit the run, or rejects its settings or
    /// state, restarts the present method from the recorded state and returns `Ok`. Fails if that restart fails, or the
    /// change cannot be recorded.
    fn revise(&mut self, running: &mut ActiveRun<'_>, version: Version) -> Result<(), Error> {
        self.rewind(running);
        match self.try_method(running, version) {
            Ok((method, report)) => {
                running.switch_method(method)?;
                running.show_report(&report);
                let manifest = &running.plan.method.package.manifest;
                running.observer.report_outcome(running.summary.step, Ok(manifest));
            }
            Err(error) => {
                running.show_last_lines(running.summary.step + 1);
                running.observer.report_outcome(running.summary.step, Err(&error));
                let report = self.start_method(running, None)?;
                running.show_report(&report);
            }
        }
        Ok(())
    }

    /// Replaces the recorded state by the present one: a copy of the train state, the random streams, the position in
    /// the data, and `state`, the method's saved bytes. If copying fails, no state is recorded and the run must end.
    fn record_state(&mut self, running: &mut ActiveRun<'_>, state: Vec<u8>) -> Result<(), Error> {
        self.streams.clone_from(running.session.streams());
        self.cursor = running.sampler.cursor();
        // The old copy goes first: memory may not hold both.
        self.saved = None;
        self.saved = Some((state, InitialState::copy_of(&running.train_state())?));
        Ok(())
    }

    /// Moves the sampler back to the recorded position, and counts the usage of limits so far (`used`) as that of
    /// earlier versions of the method (`earlier_usage`). The method must be restarted or ended afterwards.
    fn rewind(&self, running: &mut ActiveRun<'_>) {
        running.sampler.seek(self.cursor);
        running.earlier_usage.clone_from(&running.used);
    }

    /// Abandons an unfinished step: moves the data back, restores the recorded state and saves it as a checkpoint.
    /// Restores and saves nothing if no state is recorded, as before the first step, or if the last checkpoint is that
    /// of the last finished step.
    fn abandon_step(&self, running: &mut ActiveRun<'_>) -> Result<(), Error> {
        self.rewind(running);
        match &self.saved {
            Some((state, initial))
                if running.summary.checkpoint.as_ref().is_none_or(|(step, _)| *step != running.summary.step) =>
            {
                initial.restore(&mut running.train_state())?;
                running.write_checkpoint(state, self.streams.clone())
            }
            _ => Ok(()),
        }
    }

    /// Prepares a version of the method, checks that it fits the run, and starts it in place of the present method from
    /// the recorded state. Returns the planned method and the report of its `init`.
    ///
    /// # Errors
    /// A version that is not admitted or that [`ActiveRun::check_compatible`] rejects, after which the present method
    /// still runs; and one that rejects its settings or state, or traps, after which no method runs.
    fn try_method(&self, running: &mut ActiveRun<'_>, version: Version) -> Result<(PlannedMethod, StepReport), Error> {
        let engine = plan::create_engine(&running.plan.settings)?;
        let method = plan::prepare_revision(&running.plan.settings, version, &engine)?;
        running.check_compatible(&method)?;
        let report = self.start_method(running, Some(&method))?;
        Ok((method, report))
    }

    /// Starts `method`, or with `None` the run's present method anew, in place of the session's method. First resets
    /// the train state to the run's beginning and calls `init`, as in a resumed run; the recorded state, if there is
    /// one, is then restored over it. Returns the report of `init`.
    fn start_method(&self, running: &mut ActiveRun<'_>, method: Option<&PlannedMethod>) -> Result<StepReport, Error> {
        let (session, step) = (&mut running.session, running.summary.step);
        let method = method.unwrap_or(&running.plan.method);
        let mut train_state = session.train_state();
        initial_state::reset(&mut train_state)?;
        begin_step(&mut train_state, 0);
        drop(train_state);
        session.replace(&method.admitted, session_settings(&running.plan, method))?;
        let report = session.init(&method.settings)?;
        let Some((state, initial)) = &self.saved else { return Ok(report) };
        initial.restore_after_init(&mut session.train_state())?;
        continue_at(session, step, &self.streams, state)?;
        Ok(report)
    }
}

impl ActiveRun<'_> {
    /// Fails unless `method` has the name of the run's present method, learns from the shape of the run's data, and
    /// trains ([`PlannedMethod::learns`]) and imports `weights` exactly if the present method does.
    fn check_compatible(&self, method: &PlannedMethod) -> Result<(), Error> {
        let (old, new) = (&self.plan.method, &method.package.manifest);
        let why = if new.name != old.package.manifest.name {
            format!("it is called `{}`, the run is one of `{}`", new.name, old.package.manifest.name)
        } else if !method.shapes.contains(&self.plan.data.shape) {
            format!("it learns from records of the shape `{}`, which these are not", new.shape)
        } else {
            let needs = changed_needs((old.learns(), method.learns()), (old.edits(), method.edits()));
            let Some(changed) = needs else { return Ok(()) };
            changed.to_owned()
        };
        Err(Explanation::new("training", "the changed method does not fit this run")
            .with_why(why)
            .with_hint("undo the change, or start a new run with it")
            .into())
    }

    /// Makes `method` the method in the plan, its summary and its identity, without starting it, and lets the warning
    /// about ignored refusals appear again. Appends the change to the metrics and to `plan.revised`; if no step is
    /// finished, rewrites the lock instead. Records nothing if the component has the digest of the method before.
    fn switch_method(&mut self, method: PlannedMethod) -> Result<(), Error> {
        let sha256 = method.package.digest.clone();
        let before = std::mem::replace(&mut self.plan.identity.method, sha256.clone());
        self.plan.summary.update_method(&method);
        self.plan.method = method;
        self.unlearned = false;
        if sha256 == before {
            return Ok(());
        }
        if self.summary.step == 0 {
            return lock::write::write(&self.plan, None);
        }
        let revision = Revision { after: self.summary.step, sha256 };
        self.metrics.add_revision(&revision)?;
        self.plan.revised.push(revision);
        Ok(())
    }
}

/// Says how a method's needs differ from those of the version before it; `None` if they are equal. `learns`: whether it
/// trains; `edits`: whether it edits weights. Each pair is (before, now). If both differ, names the difference in
/// `learns`.
fn changed_needs(learns: (bool, bool), edits: (bool, bool)) -> Option<&'static str> {
    match (learns, edits) {
        ((true, false), _) => Some(
            "it never calls `backward` now, and nothing would be trained; `backward(&loss)?` in its `step` is what learns",
        ),
        ((false, true), _) => Some("it calls `backward` now, and the run began without an adapter to train"),
        (_, (true, false)) => Some("it asks for no `weights` now, and the run was set up to edit them"),
        (_, (false, true)) => Some("it asks for `weights` now, and the run was not set up to edit them"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_forgot_to_learn_is_told_what_learns() {
        let told = |learns, edits| changed_needs(learns, edits).unwrap_or_default();
        assert!(told((true, false), (false, false)).contains("`backward(&loss)?`"));
        assert!(told((false, true), (false, false)).contains("without an adapter"));
        assert!(told((true, true), (false, true)).contains("asks for `weights` now"));
        assert_eq!(changed_needs((true, true), (false, false)), None);
    }
}
