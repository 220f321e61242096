//! Executes one method on its own copy of the model, as the loop of a run does.

use std::collections::BTreeMap;
use std::path::Path;

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files;
use tunebox_sandbox::{RunHooks as _, StepReport};

use crate::data::BatchSampler;
use crate::error::Error;
use crate::learner::{Session, directions};
use crate::plan::{Plan, PlannedRun};
use crate::run::start::{create_train_state, start_session};
use crate::run::update::{explain_failure, update};

/// A running method with its session and its position in the data.
pub(super) struct Runner {
    plan: PlannedRun,
    pub(super) session: Session,
    sampler: BatchSampler,
    /// Finished updates.
    pub(super) step: u64,
}

/// The reports of a call or update, and the state after it.
pub(super) struct Snapshot {
    /// One report for each call of the method.
    pub(super) reports: Vec<StepReport>,
    /// The norm of the last gradient.
    pub(super) norm: f64,
    /// All trained numbers, flat.
    pub(super) trained: Vec<f32>,
    /// The method's extra parameters and its state of parameters, by name: dimensions and numbers.
    pub(super) kept: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// The bytes that the method saves in a checkpoint.
    pub(super) state: Vec<u8>,
    /// The positions of the random streams.
    pub(super) streams: BTreeMap<String, u64>,
}

impl Runner {
    /// Starts the method of a plan, calls `init`, and restores the plan's checkpoint if it has one; returns the runner
    /// and the report of `init`.
    pub(super) fn start(plan: Plan) -> Result<(Self, StepReport), Error> {
        let Plan { run: plan, policy, sampler } = plan;
        let train_state = create_train_state(&plan, policy)?;
        let (session, opening) = start_session(&plan, train_state)?;
        Ok((Self { plan, session, sampler, step: 0 }, opening?))
    }

    /// The names of the metrics that the method declares, in the order of its manifest.
    pub(super) fn metrics(&self) -> &[String] {
        &self.plan.method.package.manifest.metrics
    }

    /// Executes the next step of the run and advances the step counter; returns a report for each call of the method.
    pub(super) fn update(&mut self) -> Result<Vec<StepReport>, Error> {
        let mut reports = Vec::new();
        let mut collect = |report| reports.push(report);
        update(&self.plan, &mut self.session, &mut self.sampler, (self.step, None), &mut collect)?;
        self.step += 1;
        Ok(reports)
    }

    /// Calls the method's `finish`; returns its report.
    pub(super) fn finish(&mut self) -> Result<StepReport, Error> {
        let report = self.session.finish();
        report.map_err(|error| explain_failure(&self.plan, &mut self.session, (self.step, None), error.into()))
    }

    /// The learning rate of the step that began last (before any step, of the first), and the norm of its last gradient
    /// before clipping.
    pub(super) fn rate_and_norm(&mut self) -> (f64, f64) {
        let trainer = &self.session.train_state().hooks;
        (trainer.learning_rate(), trainer.progress.norm)
    }

    /// Saves the method's state and copies the trained numbers, what the method keeps as tensors, the gradient norm and the random streams. `reports` are
    /// put into the result unchanged.
    pub(super) fn snapshot(&mut self, reports: Vec<StepReport>) -> Result<Snapshot, Error> {
        let state = self.session.save_state()?;
        let streams = self.session.streams().clone();
        let (_, norm) = self.rate_and_norm();
        let trained = self.session.train_state().policy.parameters().snapshot()?;
        let trained = trained.to_vec1::<f32>().map_err(tunebox_compute::Error::from)?;
        let kept = self.session.train_state().method_parameters.saved().into_iter().map(|(name, tensor)| {
            let numbers = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>());
            Ok((name, (tensor.dims().to_vec(), numbers.map_err(tunebox_compute::Error::from)?)))
        });
        let kept = kept.collect::<Result<_, Error>>()?;
        Ok(Snapshot { reports, norm, trained, kept, state, streams })
    }

    /// Writes edited weights and published directions as files into a folder, which it creates. Writes only the weights
    /// that the method edited, and no file of directions if it published none.
    pub(super) fn write_edits(&mut self, folder: &Path) -> Result<(), Error> {
        let train_state = self.session.train_state();
        files::create_folder(folder)?;
        train_state.policy.save_edits(folder)?;
        directions::save(&train_state.published, folder)
    }
}

/// The error about a connection to the method's process that broke between two calls.
pub(super) fn disconnected(error: std::io::Error) -> Error {
    Explanation::new("test", "the process of the method cannot be reached").with_why(error.to_string()).into()
}
