//! One step of a run: a window of micro-batches through the method, one update, one line.

use std::time::Instant;

use tunebox_package::Cadence;
use tunebox_sandbox::{Learner, StepReport};

use super::start::Running;
use crate::checkpoint::{self, Place};
use crate::data::{Dataset, Shape, Window, window};
use crate::error::Error;
use crate::metrics::Tally;
use crate::observer::{Event, Observer, StepEvent};
use crate::plan::peak_on;
use crate::validation::{PassRate, pass_rate, validate};

impl Running {
    /// Does the coming step.
    pub(super) fn one(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let begun = Instant::now();
        let step = self.step;
        self.student().begin(step);
        let rate = self.student().rate();
        let mut places = self.walk.next_window();
        if self.plan.method.package.manifest.batch == Cadence::Window {
            places = vec![places.concat()];
        }
        let window = window(&self.plan.data, &places)?;
        let (mut tokens, mut targets) = (window.tokens, window.targets);
        let tally = self.learn(window, observer).map_err(|error| self.explained(error))?;
        let mut numbers = tally.numbers(&self.plan.method.package.manifest.metrics);
        numbers.extend(self.student().desk.panel.numbers());
        for line in self.student().desk.panel.complaints() {
            observer.event(Event::Warning { text: &line });
        }
        self.check(&numbers)?;
        let written = self.student().desk.written();
        (tokens, targets) = (tokens + written, targets + written);
        let (progress, seconds) = (self.student().progress(), begun.elapsed().as_secs_f64());
        let peak = peak_on(self.student().policy.parameters().device());
        self.step += 1;
        self.tokens += tokens;
        let event = StepEvent {
            step: self.step,
            total: self.plan.steps,
            epoch: self.walk.epochs(),
            metrics: numbers,
            gradient_norm: progress.norm,
            rate,
            tokens,
            targets,
            tokens_per_second: tokens as f64 / seconds.max(1e-9),
            seconds,
            skipped: progress.skipped,
            peak,
        };
        self.last_loss = event.metric("loss").map(|loss| (loss, self.step)).or(self.last_loss);
        self.metrics.step(&event)?;
        observer.event(Event::Step(&event));
        self.first.get_or_insert_with(|| event.clone());
        self.last = Some(event);
        let every = u64::from(self.plan.settings.file.train.validate_every);
        if self.step.is_multiple_of(every) || self.step == self.plan.steps { self.look(observer) } else { Ok(()) }
    }

    /// Every micro-batch through the method, then the update if anything has accumulated.
    fn learn(&mut self, window: Window, observer: &mut dyn Observer) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        for batch in window.batches {
            let report = self.session.step(batch)?;
            tally.add(&report.metrics);
            self.tell(&report, observer);
        }
        let student = self.student();
        if student.has_accumulated() {
            student.update()?;
        }
        Ok(tally)
    }

    /// A fault of the numbers, said as such: the method could only say that its loss was refused.
    fn explained(&mut self, error: Error) -> Error {
        if let Some(failure) = self.student().desk.take_failure() {
            return failure;
        }
        match self.student().fault() {
            Some(quantity) => self.not_finite(quantity),
            None => error,
        }
    }

    fn check(&self, numbers: &[(String, f64)]) -> Result<(), Error> {
        let wrong = numbers.iter().any(|(name, value)| name == "loss" && !value.is_finite());
        if wrong { Err(self.not_finite("loss")) } else { Ok(()) }
    }

    fn not_finite(&self, quantity: &'static str) -> Error {
        Error::NonFinite { quantity, step: self.step + 1, last: self.last_loss, rate: self.plan.pace.rate }
    }

    pub(super) fn tell(&mut self, report: &StepReport, observer: &mut dyn Observer) {
        for line in &report.log {
            observer.event(Event::Log { step: self.step + 1, line });
        }
        if report.dropped_lines > 0 {
            let text = format!("{} log lines of the method were too many or too long", report.dropped_lines);
            observer.event(Event::Warning { text: &text });
        }
        if let Some(slow) = &report.slow {
            let text =
                format!("`{}` took {:.0} s, longer than `limits.operation-seconds`", slow.operation, slow.seconds);
            observer.event(Event::Warning { text: &text });
        }
        self.used = report.usage.clone();
    }

    /// Scores the validation data, if there is any.
    pub(super) fn look(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let batch = self.plan.settings.file.train.batch as usize;
        let Some(data) = self.plan.validation.take() else { return Ok(()) };
        if data.shape == Shape::Prompts {
            let rate = self.pass_rate(&data);
            self.plan.validation = Some(data);
            return self.passed(rate?, observer);
        }
        let loss = validate(&self.student().policy, &data, batch);
        self.plan.validation = Some(data);
        let (step, loss) = (self.step, loss?);
        self.metrics.validation(step, loss)?;
        observer.event(Event::Validated { step, loss });
        Ok(())
    }

    /// How often answers to the validation prompts pass.
    fn pass_rate(&mut self, data: &Dataset) -> Result<PassRate, Error> {
        let k = self.plan.settings.file.train.validate_completions as usize;
        let (seed, room) = (self.plan.settings.file.train.seed, data.report.length.saturating_sub(data.report.longest));
        let student = self.student();
        pass_rate(&student.policy, data, &mut student.desk.panel, k, room, seed)
    }

    fn passed(&mut self, rate: PassRate, observer: &mut dyn Observer) -> Result<(), Error> {
        self.metrics.passes(self.step, rate)?;
        observer.event(Event::Passed { step: self.step, rate });
        Ok(())
    }

    /// Writes a checkpoint.
    pub(super) fn save(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        self.metrics.sync()?;
        let method_state = self.session.save_state()?;
        let place = Place {
            step: self.step,
            cursor: self.walk.cursor(),
            streams: self.session.streams().clone(),
            method_state,
            tokens: self.tokens,
            seconds: self.seconds,
            last_loss: self.last_loss,
            clock: self.plan.clock,
            identity: self.plan.identity.clone(),
        };
        let run = self.plan.folder.clone();
        if let Some(references) = &mut self.student().references {
            references.save(&run)?;
        }
        let (folder, keep) = (self.plan.folder.clone(), self.plan.settings.file.train.keep as usize);
        let path = checkpoint::save(&folder, place, self.student(), keep)?;
        observer.event(Event::Saved { step: self.step, path: &path });
        self.kept = Some((self.step, path));
        Ok(())
    }

    /// Lets the method close, after the last step.
    pub(super) fn close(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let finished = self.session.finish();
        if finished.is_err() {
            // What the method found on the way may say why it gave up.
            for line in self.session.last_lines().to_vec() {
                observer.event(Event::Log { step: self.step, line: &line });
            }
        }
        let report = finished.map_err(|error| self.explained(error.into()))?;
        let mut tally = Tally::default();
        tally.add(&report.metrics);
        self.closing = tally.numbers(&self.plan.method.package.manifest.metrics);
        self.metrics.closing(self.step, &self.closing)?;
        self.tell(&report, observer);
        self.metrics.used(self.step, &self.used)?;
        Ok(())
    }
}
