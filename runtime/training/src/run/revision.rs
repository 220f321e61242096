//! Another version of the method between two steps: weights, optimiser, data and the count of steps go on.
//!
//! For authors. It is done where the method runs, and no worker is asked for it: who changes a method's source while it
//! runs has written it, and cargo ran the build of that source on this machine already. The sandbox holds the method
//! either way; a second process would keep nothing else out.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tunebox_package::Manifest;
use tunebox_sandbox::{Session, StepReport};

use super::start::{Running, session_settings};
use crate::data::Cursor;
use crate::error::Error;
use crate::observer::Observer;
use crate::plan::{self, PlannedMethod, PlannedRun};

/// Where newer versions of a run's method come from.
pub trait Revisions {
    /// A newer component, if there is one that was not given yet. Asked between two steps; does not wait.
    fn newer(&mut self) -> Option<Vec<u8>>;

    /// A step failed. Waits for a newer component with which it can be tried again; `None` gives the run up.
    fn mended(&mut self, error: &Error, stop: &AtomicBool) -> Option<Vec<u8>>;

    /// What became of the component that was given last, after so many steps: the run goes on with it, or with the
    /// version before.
    fn settled(&mut self, step: u64, outcome: Result<&Manifest, &Error>);
}

/// From when on a run went on with another component.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Revision {
    /// The steps that were finished.
    pub(crate) after: u64,
    /// The digest of the component.
    pub(crate) sha256: String,
}

/// Where a run stands between two steps.
struct Pause {
    state: Vec<u8>,
    streams: BTreeMap<String, u64>,
    cursor: Cursor,
}

impl Running {
    /// The coming step, by the newest version of the method. One that fails by the method's fault is tried again with
    /// the next version, on the same data.
    pub(super) fn one_revised(
        &mut self,
        observer: &mut dyn Observer,
        revisions: &mut dyn Revisions,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let (pause, step) = (self.pause()?, self.step);
        let mut newest = revisions.newer();
        loop {
            if let Some(bytes) = newest.take() {
                let outcome = self.revise(bytes, &pause, observer)?;
                revisions.settled(step, outcome.as_ref().map(|()| &self.plan.method.package.manifest));
            }
            let Err(error) = self.one(observer) else { return Ok(()) };
            let of_the_method = matches!(error, Error::Sandbox(_) | Error::NonFinite { .. });
            newest = if of_the_method && self.step == step { revisions.mended(&error, stop) } else { None };
            if newest.is_none() {
                return Err(error);
            }
            self.walk.back_to(pause.cursor);
            self.student().forget()?;
        }
    }

    fn pause(&mut self) -> Result<Pause, Error> {
        let state = self.session.save_state()?;
        Ok(Pause { state, streams: self.session.streams().clone(), cursor: self.walk.cursor() })
    }

    /// Goes over to another component. The inner error is that component's: the run goes on with the one before, which
    /// begins anew where it stood.
    fn revise(
        &mut self,
        bytes: Vec<u8>,
        pause: &Pause,
        observer: &mut dyn Observer,
    ) -> Result<Result<(), Error>, Error> {
        match self.try_out(bytes, pause) {
            Ok((method, report)) => {
                self.go_over(method)?;
                self.tell(&report, observer);
                Ok(Ok(()))
            }
            Err(error) => {
                let report = instate(&mut self.session, &self.plan, &self.plan.method, pause)?;
                self.tell(&report, observer);
                Ok(Err(error))
            }
        }
    }

    /// The component in the place of the present one, if it fits the run and takes its settings and its state.
    fn try_out(&mut self, bytes: Vec<u8>, pause: &Pause) -> Result<(PlannedMethod, StepReport), Error> {
        let engine = plan::engine(&self.plan.settings)?;
        let method = plan::revised(&self.plan.settings, bytes, &engine)?;
        self.fits(&method)?;
        let report = instate(&mut self.session, &self.plan, &method, pause)?;
        Ok((method, report))
    }

    /// Whether what the run was set up with is what the method would be set up with. Errors: it is not.
    fn fits(&self, method: &PlannedMethod) -> Result<(), Error> {
        let (old, new) = (&self.plan.method, &method.package.manifest);
        let unlike = |what: String| Err(Error::Unlike { what });
        if new.name != old.package.manifest.name {
            return unlike(format!("it is called `{}`, the run is one of `{}`", new.name, old.package.manifest.name));
        }
        if !method.shapes.contains(&self.plan.data.shape) {
            return unlike(format!("it learns from records of the shape `{}`, which these are not", new.shape));
        }
        if method.learns() != old.learns() {
            return unlike("`learn` is asked for by one version only, and an adapter comes with it".into());
        }
        if method.edits() != old.edits() {
            return unlike("`weights` is asked for by one version only, and the model is opened for it".into());
        }
        Ok(())
    }

    /// Writes down that the run is another method's from here on.
    fn go_over(&mut self, method: PlannedMethod) -> Result<(), Error> {
        let revision = Revision { after: self.step, sha256: method.package.digest.clone() };
        self.metrics.revised(&revision)?;
        self.plan.identity.method.clone_from(&revision.sha256);
        self.plan.summary.of_method(&method);
        self.plan.revised.push(revision);
        self.plan.method = method;
        Ok(())
    }
}

/// Begins a method in the place of the session's, over the same learner, with the state of the one before.
fn instate(
    session: &mut Session,
    plan: &PlannedRun,
    method: &PlannedMethod,
    pause: &Pause,
) -> Result<StepReport, Error> {
    session.replace(&method.admitted, session_settings(plan, method, pause.streams.clone()))?;
    let report = session.init(&method.settings)?;
    session.load_state(&pause.state)?;
    Ok(report)
}
