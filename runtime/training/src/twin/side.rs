//! One method at work on a train state of its own, as the loop of a run would have it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::MutexGuard;

use tunebox_sandbox::{RunHooks as _, StepReport};

use crate::data::Walk;
use crate::error::Error;
use crate::learner::{TrainState, published};
use crate::plan::{Plan, PlannedRun};
use crate::run::start::{Session, start_session, train_state};
use crate::run::update::{explained, update};
use tunebox_foundation::files;

/// A method that has taken its settings, its train state, and its place in the data.
pub(super) struct Side {
    plan: PlannedRun,
    session: Session,
    walk: Walk,
    /// Finished updates.
    step: u64,
}

/// What a side told in a call or an update, and what it is left with.
pub(super) struct Moment {
    /// One report a call of the method.
    pub(super) reports: Vec<StepReport>,
    /// The norm of the last gradient.
    pub(super) norm: f64,
    /// Every trained number.
    pub(super) trained: Vec<f32>,
    /// The method's own bytes for a checkpoint.
    pub(super) state: Vec<u8>,
    /// Where its random sequences stand.
    pub(super) streams: BTreeMap<String, u64>,
}

impl Side {
    /// Starts the method and gives it its settings; what it told on the way comes with it.
    pub(super) fn start(plan: Plan) -> Result<(Self, StepReport), Error> {
        let Plan { run: plan, policy, walk } = plan;
        let train_state = train_state(&plan, policy)?;
        let (session, opening) = start_session(&plan, train_state, &mut |_, _| {})?;
        Ok((Self { plan, session, walk, step: 0 }, opening))
    }

    /// Finished updates.
    pub(super) fn position(&self) -> u64 {
        self.step
    }

    /// The names of the numbers that the method reports, in the order of its manifest.
    pub(super) fn metrics(&self) -> &[String] {
        &self.plan.method.package.manifest.metrics
    }

    /// Gives the method bytes of an earlier checkpoint back.
    pub(super) fn load_state(&mut self, state: &[u8]) -> Result<(), Error> {
        Ok(self.session.load_state(state)?)
    }

    /// The method's own bytes for a checkpoint.
    pub(super) fn save_state(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.session.save_state()?)
    }

    /// Answers what the method asks until it wants something; see [`tunebox_sandbox::Session::wait`].
    pub(super) fn wait(&mut self) -> Result<(Option<String>, StepReport), Error> {
        Ok(self.session.wait()?)
    }

    /// One update, as a run would make it; a report for each call of the method.
    pub(super) fn update(&mut self) -> Result<Vec<StepReport>, Error> {
        let mut reports = Vec::new();
        let mut told = |report| reports.push(report);
        update(&self.plan, &mut self.session, &mut self.walk, (self.step, None), &mut told)?;
        self.step += 1;
        Ok(reports)
    }

    /// Lets the method close.
    pub(super) fn close(&mut self) -> Result<StepReport, Error> {
        let report = self.session.finish();
        report.map_err(|error| explained(&self.plan, &mut self.session, (self.step, None), error.into()))
    }

    /// The learning rate of the coming update, and the norm of the last gradient.
    pub(super) fn pace(&mut self) -> (f64, f64) {
        let trainer = &self.train_state().hooks;
        (trainer.learning_rate(), trainer.progress().norm)
    }

    /// What there is after these reports.
    pub(super) fn moment(&mut self, reports: Vec<StepReport>) -> Result<Moment, Error> {
        let state = self.save_state()?;
        let streams = self.session.streams().clone();
        let (_, norm) = self.pace();
        let trained = self.train_state().policy.parameters().snapshot()?;
        let trained = trained.to_vec1::<f32>().map_err(tunebox_compute::Error::from)?;
        Ok(Moment { reports, norm, trained, state, streams })
    }

    /// What the method left beside trained numbers, as files: edited weights, published directions.
    pub(super) fn leave(&mut self, folder: &Path) -> Result<(), Error> {
        let train_state = self.train_state();
        files::create_folder(folder)?;
        crate::error::from_model(train_state.policy.save_edits(folder))?;
        published::save(&train_state.published, folder)
    }

    fn train_state(&mut self) -> MutexGuard<'_, TrainState> {
        self.session.train_state()
    }
}
