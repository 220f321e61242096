//! Starts a run, or resumes it from a checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::MutexGuard;

use tempfile::TempDir;
use tunebox_compute::Tensor;
use tunebox_compute::optimizer::Optimizer;
use tunebox_package::Updates;
use tunebox_sandbox::{SessionSettings, StepReport, Usage};

use super::update::LastLoss;
use crate::checkpoint::{self, State};
use crate::cost::Timing;
use crate::data::BatchSampler;
use crate::environment::Environment;
use crate::error::Error;
use crate::extra_parameters;
use crate::learner::reference::ReferenceCache;
use crate::learner::{RewardState, Session, TrainState, Trainer, begin_step};
use crate::lock;
use crate::metrics::MetricsFile;
use crate::observer::{Event, Observer, Summary, show_lines};
use crate::plan::{Plan, PlannedMethod, PlannedRun, PlannedVerifier, Revision, next_name, run_exists, trust};
use crate::runs::RunLock;
use crate::validation::ValidationHistory;
use crate::verifiers::Verifiers;
use tunebox_foundation::files;

/// A run that is being executed: its session, its position in the data, and its counters.
pub(super) struct ActiveRun<'a> {
    pub(super) observer: &'a mut dyn Observer,
    pub(super) plan: PlannedRun,
    pub(super) session: Session,
    pub(super) sampler: BatchSampler,
    pub(super) metrics: MetricsFile,
    /// The summary of the run so far.
    pub(super) summary: Summary,
    pub(super) last_loss: LastLoss,
    /// The validations so far.
    pub(super) validations: ValidationHistory,
    /// The method's usage of its limits in this process.
    pub(super) used: Usage,
    /// The part of `used` by earlier versions of the method.
    pub(super) earlier_usage: Usage,
    /// Whether the user was warned that the method ignored a rejected gradient.
    pub(super) unlearned: bool,
    /// Whether the user was warned about a metric that is not a finite number.
    pub(super) non_finite: bool,
    /// What the parts of the run took in this process.
    pub(super) timing: Timing,
    /// The folder of a new run, which dropping this removes until the first step is recorded; `None` for a resumed run.
    pub(super) unused: Option<TempDir>,
}

/// Creates the folder of a new run, which dropping the result removes. A run that got its name from its method takes
/// the next free number, also in the plan, if another run created the folder since this one was planned. Does nothing
/// and returns `None` for a resumed run, whose plan has its lock.
///
/// # Errors
/// A folder of the name in the settings that exists by now, and a folder that cannot be created.
fn create_folder(plan: &mut PlannedRun) -> Result<Option<TempDir>, Error> {
    if plan.run_lock.is_some() {
        return Ok(None);
    }
    loop {
        if let Some(folder) = files::create_new_folder(&plan.folder)? {
            return Ok(Some(folder));
        }
        if plan.settings.file.run.name.is_some() {
            return Err(run_exists(&plan.summary.name, &plan.folder, false));
        }
        let runs = plan.folder.parent().unwrap_or(Path::new(""));
        plan.summary.name = next_name(runs, &plan.summary.method);
        plan.folder = runs.join(&plan.summary.name);
    }
}

impl<'a> ActiveRun<'a> {
    /// Starts the method and calls `init`, restores the checkpoint if there is one, creates and locks the folder of a
    /// new run, opens the metrics, and sends the plan to the observer. Scores the validation data and answers prompts
    /// if no step is finished. Sends the log lines of a failed `init` to the observer before it returns the error.
    ///
    /// The folder is created after `init` succeeded and removed if no step is finished when the run is dropped, so that
    /// a failed start leaves nothing behind.
    pub(super) fn start(plan: Plan, observer: &'a mut dyn Observer) -> Result<Self, Error> {
        let Plan { run: mut plan, policy, sampler } = plan;
        let train_state = create_train_state(&plan, policy)?;
        let before = plan.checkpoint.as_ref().map_or(0, |(_, state)| state.step);
        let (mut session, opening) = start_session(&plan, train_state)?;
        let (lines, dropped) = session.take_last_lines();
        show_lines(before, (&lines, dropped), observer);
        let opening = opening?;
        let unused = create_folder(&mut plan)?;
        if plan.run_lock.is_none() {
            plan.run_lock = Some(RunLock::take(&plan.folder)?);
        }
        let mut metrics = open_metrics(&mut plan)?;
        if plan.settings.file.run.tensorboard {
            metrics.write_events(&plan.folder, before)?;
        }
        send_plan(&plan, &opening, observer);
        let state = plan.checkpoint.as_ref();
        let mut running = Self {
            observer,
            summary: Summary {
                name: plan.summary.name.clone(),
                folder: plan.folder.clone(),
                step: before,
                total: plan.summary.steps,
                seconds: state.map_or(0.0, |(_, state)| state.seconds),
                tokens: state.map_or(0, |(_, state)| state.tokens),
                checkpoint: state.map(|(path, state)| (state.step, path.clone())),
                ..Summary::default()
            },
            last_loss: state.and_then(|(_, state)| state.last_loss),
            validations: state.map(|(_, state)| state.validations.clone()).unwrap_or_default(),
            used: opening.usage,
            earlier_usage: Usage::default(),
            unlearned: false,
            non_finite: false,
            timing: Timing::default(),
            plan,
            session,
            sampler,
            metrics,
            unused,
        };
        running.timing.start = running.plan.meter.seconds();
        if before == 0 {
            running.run_validation()?;
            running.show_answers(0);
        }
        Ok(running)
    }

    /// Locks the session's train state until the result is dropped.
    pub(super) fn train_state(&mut self) -> MutexGuard<'_, TrainState> {
        self.session.train_state()
    }
}

/// Opens the metrics file of a run for appending. For a run without a checkpoint, first writes `run.toml`, `run.lock`
/// and a copy of the project's lock, and empties the metrics.
///
/// For a resumed run, removes the metrics after its checkpoint and the metrics of its end. Reads the earlier changes of
/// the method into `plan.revised`, and adds a newer change to `plan.revised` and to the metrics. Sets
/// `plan.summary.method_changed` if the component is not the one of the checkpoint. If the run was finished, or is to
/// have more steps than before, writes `run.toml` and `run.lock` again, so that it counts as unfinished.
fn open_metrics(plan: &mut PlannedRun) -> Result<MetricsFile, Error> {
    let Some((_, state)) = &plan.checkpoint else {
        write_settings(plan)?;
        copy_project_lock(plan)?;
        return MetricsFile::create(&plan.folder);
    };
    let mut metrics = MetricsFile::resume(&plan.folder, state.step)?;
    plan.revised = metrics.revisions()?;
    // A change after the checkpoint's step is recorded in the metrics already.
    let present = plan.revised.last().map_or(&state.identity.method, |last| &last.sha256);
    if *present != plan.identity.method {
        let revision = Revision { after: state.step, sha256: plan.identity.method.clone() };
        metrics.add_revision(&revision)?;
        plan.revised.push(revision);
    }
    plan.summary.method_changed = plan.identity.method != state.identity.method;
    if plan.reopened || plan.summary.extended_from.is_some() {
        write_settings(plan)?;
    }
    Ok(metrics)
}

/// Writes `run.toml`, and the `run.lock` of a run that is not finished.
fn write_settings(plan: &PlannedRun) -> Result<(), Error> {
    files::write(&plan.folder.join("run.toml"), plan.settings.to_toml(&plan.summary.name).as_bytes())?;
    lock::write::write(plan, None)
}

/// Copies the lock of the run's project into the run's folder, so that the run can be resumed and replayed from there.
/// Does nothing unless a component is a package of the store, which has a recorded source. Fails if the lock is missing
/// or cannot be read, or the copy cannot be written.
fn copy_project_lock(plan: &PlannedRun) -> Result<(), Error> {
    let environment = plan.environment.iter().map(|environment| &environment.package);
    let verifiers = plan.verifiers.iter().filter_map(PlannedVerifier::package);
    let mut packages = verifiers.chain(environment).chain([&plan.method.package]);
    if packages.any(|package| package.source.is_some()) {
        let lock = files::read_text(&plan.settings.project().join(trust::LOCK_FILE))?;
        files::write(&plan.folder.join(trust::LOCK_FILE), lock.as_bytes())?;
    }
    Ok(())
}

/// Sends the plan, its warnings and the log lines of `init` (in its report `opening`) to the observer, in this order.
/// The lines are logged under the step of the resumed checkpoint, 0 for a new run.
fn send_plan(plan: &PlannedRun, opening: &StepReport, observer: &mut dyn Observer) {
    let resumed = plan.checkpoint.as_ref().map(|(_, state)| state.step);
    let (summary, folder) = (Box::new(plan.summary.clone()), plan.folder.clone());
    observer.event(&Event::Planned { summary, folder, resumed });
    for text in &plan.warnings {
        observer.event(&Event::Warning { text: text.clone() });
    }
    show_lines(resumed.unwrap_or(0), (&opening.log, opening.dropped_lines), observer);
}

/// Creates the train state of a plan before the first step: policy, optimizer and rewards, with the verifiers started,
/// the reference cache loaded, and the start values of extra parameters. Does not restore a checkpoint.
///
/// # Errors
/// An optimizer that cannot be allocated, a verifier or environment that rejects its settings or cannot be started, and
/// extra parameters beside a continued adapter or model that cannot be read.
pub(crate) fn create_train_state(plan: &PlannedRun, policy: tunebox_model::Policy) -> Result<TrainState, Error> {
    let optimizer = match plan.method.package.manifest.update {
        Updates::Host => Some(Optimizer::new(plan.optimizer, policy.parameters())?),
        Updates::Method => None,
    };
    let max_new_tokens = u32::try_from(plan.data.completion_room()).unwrap_or(u32::MAX);
    let environment =
        plan.environment.as_ref().map(|planned| Environment::open(planned, policy.model())).transpose()?;
    let verifiers = Verifiers::open(&plan.verifiers, plan.method.limits.step_wall_seconds)?;
    let verifiers = verifiers.with_environment(environment);
    let mut rewards = RewardState::new(verifiers, max_new_tokens, plan.settings.file.train.seed);
    rewards.show_every = plan.settings.file.train.show_completions;
    let mut trainer = Trainer::new(optimizer, plan.learning_rate.clone(), rewards);
    trainer.references = load_reference_cache(plan);
    let mut train_state = TrainState::new(policy, trainer);
    train_state.start_values = read_start_values(plan)?;
    Ok(train_state)
}

/// Reads the extra parameters beside the adapter that the run continues, or without one beside the model.
fn read_start_values(plan: &PlannedRun) -> Result<BTreeMap<String, Tensor>, Error> {
    let Some((key, written)) = extra_parameters::continued(&plan.settings) else { return Ok(BTreeMap::new()) };
    extra_parameters::read(&plan.settings.path(key, written), plan.method.limits.parameter_state_bytes)
}

/// Returns the cache of the reference's scores, with those in the file of the run's folder, if there is one. `None` if
/// `train.cache-reference` is off, or the run has one epoch or less and so meets no row twice.
fn load_reference_cache(plan: &PlannedRun) -> Option<ReferenceCache> {
    if !plan.settings.file.train.cache_reference || plan.summary.steps <= plan.summary.steps_per_epoch {
        return None;
    }
    let identity = format!("{} {}", plan.identity.model, plan.identity.adapter.as_deref().unwrap_or_default());
    let mut references = ReferenceCache::new(identity, &plan.data);
    references.load(&plan.folder);
    Some(references)
}

/// Starts a session of the plan's method, calls `init` on the state of the run's beginning, and restores the plan's
/// checkpoint if it has one. The inner result is the report of `init` with the log lines of `load-state`, or why
/// `init` or restoring failed; after such a failure the session holds the last log lines. The outer error is a session
/// that cannot be started, as when the method's instance passes a limit.
pub(crate) fn start_session(
    plan: &PlannedRun,
    train_state: TrainState,
) -> Result<(Session, Result<StepReport, Error>), Error> {
    let mut session = Session::start(&plan.method.admitted, train_state, session_settings(plan, &plan.method))?;
    let checkpoint = plan.checkpoint.as_ref();
    let opening = session.init(&plan.method.settings).map_err(Error::from).and_then(|mut report| {
        let max_method_bytes = plan.method.limits.parameter_state_bytes;
        checkpoint.map_or(Ok(()), |(path, state)| restore(&mut session, path, state, max_method_bytes))?;
        let (lines, dropped) = session.take_last_lines();
        report.log.extend(lines);
        report.dropped_lines += dropped;
        Ok(report)
    });
    Ok((session, opening))
}

/// Restores the checkpoint in the folder `path`, whose state was read as `state`: first the train state, in place of
/// what `init` made of it, then the random streams and the state of the method. `max_method_bytes` is the most bytes of
/// the method's state and extra parameters.
fn restore(session: &mut Session, path: &Path, state: &State, max_method_bytes: u64) -> Result<(), Error> {
    checkpoint::restore(path, state, &mut session.train_state(), max_method_bytes)?;
    continue_at(session, state.step, &state.streams, &state.method_state(path)?)
}

/// Continues a session after `step` finished steps: begins the next step, sets the method's random streams to the
/// positions `streams`, and calls the method's `load-state` with the saved bytes `method_state`. Fails if the method
/// rejects those bytes or traps.
pub(super) fn continue_at(
    session: &mut Session,
    step: u64,
    streams: &BTreeMap<String, u64>,
    method_state: &[u8],
) -> Result<(), Error> {
    begin_step(&mut session.train_state(), step);
    session.restore_streams(streams);
    Ok(session.load_state(method_state)?)
}

/// Returns the settings for a session of `method` in the run: the method's limits and metric names, whether it updates
/// the weights itself, and the seed, profiler and call observer of the plan.
pub(super) fn session_settings(plan: &PlannedRun, method: &PlannedMethod) -> SessionSettings {
    SessionSettings {
        limits: method.limits.clone(),
        seed: plan.settings.file.train.seed,
        metric_names: method.package.manifest.metrics.clone(),
        updates_itself: method.package.manifest.update == Updates::Method,
        profiler: plan.settings.profiler.clone(),
        call_observer: plan.settings.call_observer.clone(),
    }
}
