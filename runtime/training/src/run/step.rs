//! Executes the steps of a run, and writes their metrics, validation scores and checkpoints.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;
use tunebox_foundation::format::seven_digits;
use tunebox_foundation::hexadecimal::hexadecimal;
use tunebox_package::Reference;
use tunebox_sandbox::StepReport;

use super::start::ActiveRun;
use super::update::{explain_failure, update};
use crate::answers::answer_prompts;
use crate::checkpoint::{self, State};
use crate::data::Shape;
use crate::error::Error;
use crate::learner::{TrainState, directions};
use crate::metrics::MetricTotals;
use crate::observer::{Event, Observer, StepEvent, show_lines};
use crate::plan::peak_bytes;
use crate::ranks::agree_on_step;
use crate::validation::{Score, Validation, mean_loss, pass_rate};

/// Checkpoints that an unfinished run keeps if `train.keep` is not given.
const KEPT: u32 = 3;

impl ActiveRun<'_> {
    /// Executes the next step ([`try_step`](Self::try_step)) and records it ([`record_step`](Self::record_step)).
    pub(super) fn execute_step(&mut self) -> Result<(), Error> {
        let event = self.try_step()?;
        self.record_step(event)
    }

    /// Executes the next step without advancing the step counter or writing metrics, and returns its event. Sends the
    /// log lines of every call to the observer even if the step fails, and updates the usage. Warns once for each
    /// version of the method if it went on after the host refused to compute a gradient, and after a successful step
    /// about each verifier that failed on a completion, and once in the run about a metric that is not finite.
    pub(super) fn try_step(&mut self) -> Result<StepEvent, Error> {
        let (begun, step) = (Instant::now(), self.summary.step);
        let scored = self.reference_seconds();
        let (used, earlier_usage, unlearned) = (&mut self.used, &self.earlier_usage, &mut self.unlearned);
        let observer = &mut *self.observer;
        let mut handle_report = |report: StepReport| {
            send_report(step + 1, &report, observer);
            if let Some((function, words)) = &report.refused_gradient
                && !std::mem::replace(unlearned, true)
            {
                let text = format!(
                    "`{function}` was refused at step {}, and the method went on without it: {words}; in Rust, `?` after the \
                     call ends the step there",
                    step + 1
                );
                observer.event(&Event::Warning { text });
            }
            *used = report.usage.after(earlier_usage);
        };
        let done = update(&self.plan, &mut self.session, &mut self.sampler, (step, self.last_loss), &mut handle_report);
        self.show_last_lines(step + 1);
        let done = done?;
        self.warn_non_finite(step + 1, &done.numbers);
        let train_state = self.session.train_state();
        let (rewards, progress) = (&train_state.hooks.rewards, train_state.hooks.progress);
        for text in rewards.verifiers.step_warnings() {
            self.observer.event(&Event::Warning { text });
        }
        let (judged, written) = (rewards.verifiers.step_metrics(), rewards.sampled_tokens);
        let peak = peak_bytes(train_state.policy.parameters().device());
        drop(train_state);
        let (tokens, seconds) = (done.tokens + written, begun.elapsed().as_secs_f64());
        let reference = self.reference_seconds() - scored;
        self.timing.add_step(tokens, seconds, reference);
        self.plan.meter.read();
        Ok(StepEvent {
            step: step + 1,
            total: self.plan.summary.steps,
            epoch: self.sampler.finished_epochs(),
            metrics: [done.numbers, judged].concat(),
            gradient_norm: seven_digits(progress.norm),
            rate: self.plan.learning_rate.at(step),
            tokens,
            targets: done.targets + written,
            tokens_per_second: seven_digits(tokens as f64 / seconds.max(1e-9)),
            seconds: seven_digits(seconds),
            skipped: progress.skipped,
            peak,
        })
    }

    /// Sets the step counter to the event's step, adds its tokens to the total, writes the step's metrics, and sends
    /// the event to the observer, then completions of the step to show. A loss in the metrics becomes the last good
    /// one, and counts in the mean training loss. Scores the validation data every `train.validate-every` steps and
    /// after the last step; then the run may end by `train.patience`. From then on the run's folder is kept when the
    /// run is dropped.
    pub(super) fn record_step(&mut self, event: StepEvent) -> Result<(), Error> {
        self.unused.iter_mut().for_each(|folder| folder.disable_cleanup(true));
        self.summary.step = event.step;
        self.summary.tokens += event.tokens;
        let loss = event.metric("loss");
        self.last_loss = loss.map(|loss| (loss, self.summary.step)).or(self.last_loss);
        loss.into_iter().for_each(|loss| self.validations.add_training_loss(loss));
        self.metrics.add_step(&event)?;
        self.observer.event(&Event::Step(event.clone()));
        if event.step == 1 {
            self.show_start_values(event.step);
        }
        let samples = std::mem::take(&mut self.session.train_state().hooks.rewards.samples);
        if !samples.is_empty() {
            self.observer.event(&Event::Sampled { step: event.step, samples });
        }
        self.summary.first.get_or_insert_with(|| event.clone());
        self.summary.last = Some(event);
        let every = self.plan.settings.file.train.validate_every;
        if self.plan.learning_rate.length.is_due(self.summary.step, every) { self.run_validation() } else { Ok(()) }
    }

    /// Exchanges the numbers of the last step and `stop` among all ranks, and returns whether one of them is to stop.
    /// Returns `stop` without an exchange if no step has finished in this process. Fails if the numbers of ranks
    /// differ.
    pub(super) fn agree_on_stop(&self, stop: bool) -> Result<bool, Error> {
        let ranks = &self.plan.settings.ranks;
        self.summary.last.as_ref().map_or(Ok(stop), |last| agree_on_step(ranks, last, stop))
    }

    /// Sends the log and warnings of a call outside of steps to the observer, then the log lines of a `load-state` that
    /// followed, under the number of finished steps. Updates the usage from the call's report.
    pub(super) fn show_report(&mut self, report: &StepReport) {
        send_report(self.summary.step, report, self.observer);
        self.show_last_lines(self.summary.step);
        self.used = report.usage.after(&self.earlier_usage);
    }

    /// Sends the log lines of the last call to the observer, under the number `step`, if the call failed or was
    /// `save-state` or `load-state`: it has no report. Each line is sent only once.
    pub(super) fn show_last_lines(&mut self, step: u64) {
        let (lines, dropped) = self.session.take_last_lines();
        show_lines(step, (&lines, dropped), self.observer);
    }

    /// Warns the author of a method about metrics that its manifest declares and no step reported. Does nothing if the
    /// method is not given as a folder, before the first step, or if the metrics cannot be read.
    pub(super) fn warn_unreported(&mut self) {
        let own = matches!(self.plan.settings.method_reference(), Ok(Reference::Folder(_)));
        if !own || self.summary.step == 0 {
            return;
        }
        // Only advice, so an error here does not fail the run.
        for name in self.metrics.unreported(&self.plan.method.package.manifest.metrics).unwrap_or_default() {
            let text = format!("the method declares the metric `{name}`, and has not reported it in this run");
            self.observer.event(&Event::Warning { text });
        }
    }

    /// Scores the validation data without the method's patches, which are no part of what ships, writes the score to
    /// the metrics and sends it to the observer: a pass rate for prompts, else a loss. Adds it to the validations so
    /// far, and warns once if they show that the model learns the records by heart. Does nothing without validation data.
    pub(super) fn run_validation(&mut self) -> Result<(), Error> {
        let (step, train) = (self.summary.step, &self.plan.settings.file.train);
        let Some(data) = &self.plan.validation else { return Ok(()) };
        let begun = Instant::now();
        let mut guard = self.session.train_state();
        let TrainState { policy, hooks, .. } = &mut *guard;
        let updated = hooks.updates() > 0;
        let score = if data.shape == Shape::Prompts {
            let verifiers = &mut hooks.rewards.verifiers;
            let rate = policy.without_patches(|policy| pass_rate(policy, data, verifiers, train))?;
            self.metrics.add_pass_rate(step, rate)?;
            self.observer.event(&Event::Passed { step, rate });
            Score::PassRate(rate)
        } else {
            let loss = policy.without_patches(|policy| mean_loss(policy, data, train.batch as usize))?;
            let loss = seven_digits(loss);
            self.metrics.add_row(&json!({ "step": step, "validation-loss": loss }))?;
            self.observer.event(&Event::Validated { step, loss });
            Score::Loss(loss)
        };
        drop(guard);
        self.timing.validation.add(begun.elapsed().as_secs_f64());
        self.validations.add(Validation { step, score }, updated);
        self.warn_overfitting();
        Ok(())
    }

    /// Warns, once in the run, that the validation loss rises while the training loss falls, and says which step will
    /// be shipped.
    fn warn_overfitting(&mut self) {
        let Some((best, last)) = self.validations.overfitting().filter(|_| self.learns_likelihood()) else { return };
        if std::mem::replace(&mut self.validations.warned, true) {
            return;
        }
        let ships = if self.plan.keeps_best {
            format!("the weights of step {} are kept and will be shipped unless a later step is better", best.step)
        } else {
            "`train.keep-best` is off: the last step will be shipped".to_owned()
        };
        let (Score::Loss(low), Score::Loss(now)) = (best.score, last.score) else { return };
        let text = format!(
            "the validation loss rose from {low:.4} at step {} to {now:.4} at step {} while the training loss fell: the model \
             learns the records by heart; {ships}; `train.patience` ends such a run",
            best.step, last.step
        );
        self.observer.event(&Event::Warning { text });
    }

    /// Whether the records are answers whose likelihood the method raises, so that their loss says how far the training
    /// is. Methods that learn from pairs, labels or rewards may raise it while they learn what is asked.
    pub(super) fn learns_likelihood(&self) -> bool {
        let shape = self.plan.data.shape;
        self.plan.method.learns() && matches!(shape, Shape::Messages | Shape::PromptCompletion | Shape::Text)
    }

    /// Whether the present step is the best validation so far and the run keeps the weights of that.
    pub(super) fn is_best_due(&self) -> bool {
        self.plan.keeps_best && self.validations.best.is_some_and(|best| best.step == self.summary.step)
    }

    /// Whether the model may answer in another way than before the run. False if the run only published directions,
    /// which change answers only where a user steers with them.
    pub(super) fn has_changed_answers(&mut self) -> bool {
        let train_state = self.session.train_state();
        let is_changed = train_state.hooks.updates() > 0 || train_state.policy.is_edited();
        is_changed || train_state.published.is_empty()
    }

    /// Answers a few prompts of the validation data, else of the training data, without the method's patches, and sends
    /// the answers to the observer; a failure becomes a warning. `step` is that of the present weights. Does nothing if
    /// there are none, or if `train.show-completions` is 0, or on another rank than 0.
    pub(super) fn show_answers(&mut self, step: u64) {
        if self.plan.settings.file.train.show_completions == 0 || self.plan.settings.ranks.position().0 > 0 {
            return;
        }
        let begun = Instant::now();
        let data = self.plan.validation.as_ref().unwrap_or(&self.plan.data);
        let answered = self.session.train_state().policy.without_patches(|policy| answer_prompts(policy, data));
        self.timing.answers.add(begun.elapsed().as_secs_f64());
        match answered {
            Ok(answers) if answers.is_empty() => {}
            Ok(answers) => self.observer.event(&Event::Answered { step, answers }),
            Err(error) => {
                let text = format!("the model could not answer prompts for the report: {error}");
                self.observer.event(&Event::Warning { text });
            }
        }
    }

    /// Calls the method's `save-state`, and passes the bytes that it returns to
    /// [`write_checkpoint`](Self::write_checkpoint), which also deletes old checkpoints and reports the new one. Adds
    /// the time of both to the time of checkpoints.
    pub(super) fn save_checkpoint(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let method_state = self.session.save_state()?;
        self.show_last_lines(self.summary.step);
        let streams = self.session.streams().clone();
        self.write_checkpoint(&method_state, streams)?;
        self.timing.checkpoint.add(begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Writes a checkpoint of the present train state with the given state of the method and positions of its random
    /// streams, and keeps only the last `train.keep` checkpoints ([`KEPT`] unless given) and that of the best
    /// validation. Also syncs the metrics to the disk, saves the reference cache, and sends the event `Saved`.
    pub(super) fn write_checkpoint(&mut self, state: &[u8], streams: BTreeMap<String, u64>) -> Result<(), Error> {
        self.metrics.sync()?;
        let (run, keep) = (&self.plan.folder, self.plan.settings.file.train.keep.unwrap_or(KEPT) as usize);
        let mut train_state = self.session.train_state();
        if let Some(references) = &mut train_state.hooks.references {
            references.save(run)?;
        }
        let state = State {
            schema: checkpoint::SCHEMA,
            step: self.summary.step,
            cursor: self.sampler.cursor(),
            updates: train_state.hooks.updates(),
            generation: train_state.policy.generation(),
            streams,
            method_state: hexadecimal(state),
            snapshots: train_state.snapshots.keys().cloned().collect(),
            tokens: self.summary.tokens,
            seconds: seven_digits(self.summary.seconds),
            last_loss: self.last_loss,
            planned: self.plan.summary.steps,
            extended: self.plan.learning_rate.length.extended_until(self.summary.step),
            validations: self.validations.clone(),
            clock: self.plan.clock,
            identity: self.plan.identity.clone(),
        };
        let path = checkpoint::save(run, &state, &train_state, keep)?;
        drop(train_state);
        self.observer.event(&Event::Saved { step: self.summary.step, path: path.clone() });
        self.summary.checkpoint = Some((self.summary.step, path));
        Ok(())
    }

    /// Writes the directions that the method published into the run's folder, and warns that they are there; does
    /// nothing if there are none.
    fn keep_directions(&mut self) -> Result<(), Error> {
        let published = self.session.train_state().published.clone();
        if published.is_empty() {
            return Ok(());
        }
        directions::save(&published, &self.plan.folder)?;
        let path = self.plan.folder.join(directions::FILE);
        let text =
            format!("`finish` failed; the directions that the method published before are in {}", path.display());
        self.observer.event(&Event::Warning { text });
        Ok(())
    }

    /// Calls the method's `finish`, and writes the metrics that it reports, if any, and the method's usage of its
    /// limits to the metrics file, as two rows. If `finish` fails, keeps the directions that the method published. Puts
    /// the metrics into the summary and sends the log lines to the observer.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        let finished = self.session.finish();
        if finished.is_err() {
            self.keep_directions()?;
        }
        let moment = (self.summary.step, self.last_loss);
        let report = finished.map_err(|error| explain_failure(&self.plan, &mut self.session, moment, error.into()))?;
        let mut tally = MetricTotals::default();
        tally.add(&report.metrics);
        self.summary.closing = tally.numbers(&self.plan.method.package.manifest.metrics);
        self.warn_non_finite(self.summary.step, &self.summary.closing.clone());
        self.metrics.add_closing(self.summary.step, &self.summary.closing)?;
        self.show_report(&report);
        self.metrics.add_row(&json!({ "step": self.summary.step, "used": self.used }))?;
        Ok(())
    }
}

/// Sends the log lines of a call, under the number `step`, to the observer, and a warning if an operation of the host
/// took longer than `limits.operation-seconds`.
fn send_report(step: u64, report: &StepReport, observer: &mut dyn Observer) {
    show_lines(step, (&report.log, report.dropped_lines), observer);
    if let Some(slow) = &report.slow {
        let text = format!("`{}` took {:.0} s, longer than `limits.operation-seconds`", slow.operation, slow.seconds);
        observer.event(&Event::Warning { text });
    }
}
