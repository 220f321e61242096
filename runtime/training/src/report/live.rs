//! The report of a run that goes on: an observer that writes `report.html` again as the run's files grow.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tunebox_foundation::explain::Explain as _;
use tunebox_foundation::files;
use tunebox_package::Manifest;

use super::FILE;
use super::content::Content;
use super::journal::{Entry, Figures, Journal};
use super::page::{State, render};
use crate::error::Error;
use crate::observer::{Event, Observer, Summary, Version};
use crate::plan::PlanSummary;

/// The least time between two writes of the report.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// The least time between two writes, as a multiple of the time that the last one took: so all of them together take a
/// quarter of a percent of the run at most.
const COST_FACTOR: u32 = 400;

/// Passes every event on, and writes the report of the run that they are of. If that fails, sends a warning once and
/// writes no more reports: the run goes on.
pub(crate) struct Reporter<'a> {
    inner: &'a mut dyn Observer,
    live: Option<Live>,
}

/// The report of a run whose folder exists.
struct Live {
    content: Content,
    journal: Journal,
    /// When the report may be written again.
    next: Instant,
    /// The step of the last event.
    step: u64,
    /// The peak memory in the journal.
    peak: u64,
}

impl<'a> Reporter<'a> {
    /// Creates a reporter that passes events on to `inner`, and writes no report before [`Event::Planned`].
    pub(crate) fn new(inner: &'a mut dyn Observer) -> Self {
        Self { inner, live: None }
    }

    /// Writes the last report of a run that ended so, without which a browser would wait for a next one. First adds the
    /// cost of the run to `report.jsonl`, if it is known. Does nothing if the run has no folder, as after an error
    /// before the first step.
    pub(crate) fn finish(&mut self, ended: Result<&Summary, &Error>) {
        let state = match ended {
            Ok(summary) if summary.interrupted => State::Stopped,
            Ok(_) => State::Finished,
            Err(error) => State::Failed(failure_text(error)),
        };
        let folder = self.live.as_ref().map(|live| live.content.folder.clone());
        if folder.is_some_and(|folder| folder.exists()) {
            let cost = ended.ok().and_then(|summary| summary.cost.clone());
            self.attempt(|live| {
                cost.map_or(Ok(()), |cost| live.journal.add(live.step, Entry::Cost(cost)))?;
                live.write_in_state(&state)
            });
        }
    }

    /// Does a part of the report's work; if it fails, warns and ends the report. Does nothing without a report.
    fn attempt(&mut self, work: impl FnOnce(&mut Live) -> Result<(), Error>) {
        if let Some(live) = &mut self.live
            && let Err(error) = work(live)
        {
            self.give_up(&error);
        }
    }

    /// Ends the report, and sends a warning with the error.
    fn give_up(&mut self, error: &Error) {
        self.live = None;
        let why = error.why().map_or_else(String::new, |why| format!(": {why}"));
        self.inner.event(&Event::Warning { text: format!("the run continues without a report: {error}{why}") });
    }
}

impl Observer for Reporter<'_> {
    /// Records the event for the report and passes it on. `Planned` writes the first report before it is passed on.
    fn event(&mut self, event: &Event) {
        if let Event::Planned { summary, folder, resumed } = event {
            match Live::start(folder, summary, *resumed) {
                Ok(live) => self.live = Some(live),
                Err(error) => self.give_up(&error),
            }
        }
        self.inner.event(event);
        self.attempt(|live| live.record(event));
    }

    fn next_version(&mut self, present: &[u8]) -> Option<Version> {
        self.inner.next_version(present)
    }

    fn wait_for_fix(&mut self, error: &Error, stop: &AtomicBool) -> Option<Version> {
        self.inner.wait_for_fix(error, stop)
    }

    fn report_outcome(&mut self, step: u64, outcome: Result<&Manifest, &Error>) {
        self.inner.report_outcome(step, outcome);
    }
}

impl Live {
    /// Opens `report.jsonl`, adds the figures of the plan, and writes the first report.
    fn start(folder: &Path, summary: &PlanSummary, resumed: Option<u64>) -> Result<Self, Error> {
        let mut journal = Journal::open(folder, resumed)?;
        let step = resumed.unwrap_or(0);
        journal.add(step, Entry::Plan(Figures::of(summary)))?;
        let content = Content::read(folder)?;
        let peak = content.peak.as_ref().map_or(0, |peak| peak.last.1 as u64);
        let mut live = Self { content, journal, next: Instant::now(), step, peak };
        live.write()?;
        Ok(live)
    }

    /// Adds what no other file holds to `report.jsonl`, and writes the report if it is due.
    fn record(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Step(step) => {
                self.step = step.step;
                if let Some(peak) = step.peak.filter(|peak| *peak > self.peak) {
                    self.peak = peak;
                    self.journal.add(step.step, Entry::PeakBytes(peak))?;
                }
            }
            Event::Sampled { step, samples } => self.journal.add(*step, Entry::Completions(samples.clone()))?,
            Event::Answered { step, answers } => self.journal.add(*step, Entry::Answers(answers.clone()))?,
            Event::Log { step, line } => self.journal.add(*step, Entry::Log(line.clone()))?,
            Event::Estimated { step, cost } => self.journal.add(*step, Entry::Estimate(cost.clone()))?,
            Event::Warning { text } => self.journal.add(self.step, Entry::Warning(text.clone()))?,
            Event::Planned { .. } | Event::Validated { .. } | Event::Passed { .. } | Event::Saved { .. } => {}
        }
        if Instant::now() < self.next { Ok(()) } else { self.write() }
    }

    /// Writes the report of a run that goes on, and decides when the next one is due.
    fn write(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        self.write_in_state(&State::Running)?;
        self.next = begun + MIN_INTERVAL.max(begun.elapsed() * COST_FACTOR);
        Ok(())
    }

    /// Reads what the run's files gained, and writes the report of a run in this state.
    fn write_in_state(&mut self, state: &State) -> Result<(), Error> {
        self.content.update()?;
        Ok(files::write(&self.content.folder.join(FILE), render(&self.content, state).as_bytes())?)
    }
}

/// An error as text for a page: what, where, why and what to do.
pub(super) fn failure_text(error: &Error) -> String {
    let told = error.explanation();
    let place = told.location.map(|place| format!("at {place}"));
    let parts = [Some(told.what), place, told.why, told.kept.map(|kept| format!("kept: {kept}")), told.hint];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}
