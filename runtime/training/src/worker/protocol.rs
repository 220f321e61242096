//! What parent and worker say to each other: one JSON document a line, read as if the other side were broken.
//!
//! Parent to worker: one [`Job`], then at most one [`Order`]. Worker to parent: [`Said::Hello`], events, and
//! at the end one [`Said::Ended`] or [`Said::Failed`]. A line has a largest size on both sides.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tunebox_foundation::explain::{Exit, Explain, Explanation};

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::exact;
use crate::observer::{Event, StepEvent};
use crate::plan::PlanSummary;
use crate::run::Outcome;
use crate::validation::PassRate;

/// Changes with every change of what is said.
const VERSION: u32 = 1;

/// The longest line, in bytes: room for a plan with a list of a million lines that were left out.
pub(super) const LINE: usize = 64 << 20;

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    version: u32,
    program: String,
    pub(super) settings: RunSettings,
}

impl Job {
    pub(super) fn new(settings: RunSettings) -> Self {
        Self { version: VERSION, program: env!("CARGO_PKG_VERSION").into(), settings }
    }

    /// Whether both sides speak the same.
    pub(super) fn is_ours(&self) -> bool {
        (self.version, self.program.as_str()) == (VERSION, env!("CARGO_PKG_VERSION"))
    }
}

/// What may follow the job.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Finish the step at hand, save, end.
    Stop,
}

/// What a worker says.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    /// It is a worker of this version.
    Hello { version: u32, program: String },
    /// Something happened.
    Event(Box<Told>),
    /// The run is over.
    Ended(Box<Outcome>),
    /// The run failed: what to tell the person, and the exit code.
    Failed(Box<Explanation>, Exit),
}

impl Said {
    pub(super) fn hello() -> Self {
        Self::Hello { version: VERSION, program: env!("CARGO_PKG_VERSION").into() }
    }

    pub(super) fn failed(error: &Error) -> Self {
        Self::Failed(Box::new(error.explanation()), error.exit())
    }

    /// Whether it is the greeting of a worker that speaks as this program does.
    pub(super) fn is_our_hello(&self) -> bool {
        matches!(self, Self::Hello { version: VERSION, program } if program == env!("CARGO_PKG_VERSION"))
    }
}

/// An [`Event`] that owns what it tells.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Told {
    Planned {
        summary: Box<PlanSummary>,
        folder: PathBuf,
        resumed: Option<u64>,
    },
    Step(StepEvent),
    Validated {
        step: u64,
        #[serde(with = "exact")]
        loss: f64,
    },
    Passed {
        step: u64,
        rate: PassRate,
    },
    Saved {
        step: u64,
        path: PathBuf,
    },
    Log {
        step: u64,
        line: String,
    },
    Warning {
        text: String,
    },
}

impl From<Event<'_>> for Told {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Planned { summary, folder, resumed } => {
                Self::Planned { summary: Box::new(summary.clone()), folder: folder.to_owned(), resumed }
            }
            Event::Step(step) => Self::Step(step.clone()),
            Event::Validated { step, loss } => Self::Validated { step, loss },
            Event::Passed { step, rate } => Self::Passed { step, rate },
            Event::Saved { step, path } => Self::Saved { step, path: path.to_owned() },
            Event::Log { step, line } => Self::Log { step, line: line.to_owned() },
            Event::Warning { text } => Self::Warning { text: text.to_owned() },
        }
    }
}

impl Told {
    /// The event as a watcher takes it.
    pub(super) fn event(&self) -> Event<'_> {
        match self {
            Self::Planned { summary, folder, resumed } => Event::Planned { summary, folder, resumed: *resumed },
            Self::Step(step) => Event::Step(step),
            Self::Validated { step, loss } => Event::Validated { step: *step, loss: *loss },
            Self::Passed { step, rate } => Event::Passed { step: *step, rate: *rate },
            Self::Saved { step, path } => Event::Saved { step: *step, path: Path::new(path) },
            Self::Log { step, line } => Event::Log { step: *step, line },
            Self::Warning { text } => Event::Warning { text },
        }
    }
}

/// Writes one document as a line, in one piece.
pub(super) fn say(output: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(document)?;
    if line.len() >= LINE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a line between run and worker would be too long"));
    }
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// What reading a line came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<T> {
    /// A document.
    Document(T),
    /// The pipe is at its end, between two lines.
    End,
    /// The pipe is at its end, in the middle of a line.
    Cut,
    /// A line that is none: why.
    Garbled(String),
}

/// Reads one line, at most [`LINE`] bytes of it.
pub(super) fn hear<T: DeserializeOwned>(input: &mut impl BufRead) -> Heard<T> {
    hear_at_most(input, LINE)
}

fn hear_at_most<T: DeserializeOwned>(input: &mut impl BufRead, most: usize) -> Heard<T> {
    let mut line = Vec::new();
    if let Err(error) = io::Read::take(input, most as u64).read_until(b'\n', &mut line) {
        return Heard::Garbled(error.to_string());
    }
    if line.is_empty() {
        return Heard::End;
    }
    if line.pop() != Some(b'\n') {
        let long = line.len() + 1 >= most;
        return if long { Heard::Garbled("a line is too long".into()) } else { Heard::Cut };
    }
    match serde_json::from_slice(&line) {
        Ok(document) => Heard::Document(document),
        Err(error) => Heard::Garbled(format!("a line is not what it should be: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Told {
        Told::Step(StepEvent {
            step: 3,
            total: 9,
            epoch: 0.1 + 0.2,
            metrics: vec![("loss".into(), 1.0 / 3.0), ("margin".into(), f64::NEG_INFINITY)],
            gradient_norm: f64::INFINITY,
            rate: 2e-4,
            tokens: 17,
            targets: 5,
            tokens_per_second: 1e5 / 7.0,
            seconds: 0.001,
            skipped: 0,
            peak: None,
        })
    }

    #[test]
    fn an_event_comes_over_as_it_was() {
        let events = [
            step(),
            Told::Validated { step: 0, loss: 2.5 },
            Told::Log { step: 1, line: "two\nlines \u{1b}[2J".into() },
            Told::Warning { text: "ä".into() },
            Told::Saved { step: 2, path: "runs/one".into() },
        ];
        for event in events {
            let mut pipe = Vec::new();
            say(&mut pipe, &Said::Event(Box::new(event.clone()))).unwrap();
            assert_eq!(pipe.iter().filter(|byte| **byte == b'\n').count(), 1, "one line each");
            let Heard::Document(Said::Event(heard)) = hear(&mut &pipe[..]) else { panic!("{event:?}") };
            assert_eq!(Told::from(heard.event()), event);
        }
    }

    #[test]
    fn a_line_cut_anywhere_or_with_any_byte_changed_is_told_and_is_no_panic() {
        let mut pipe = Vec::new();
        say(&mut pipe, &Said::Event(Box::new(step()))).unwrap();
        for length in 1..pipe.len() {
            let heard = hear::<Said>(&mut &pipe[..length]);
            assert!(matches!(heard, Heard::Cut), "{length}: {heard:?}");
        }
        for place in 0..pipe.len() {
            let mut changed = pipe.clone();
            changed[place] ^= 0x80;
            assert!(!matches!(hear::<Said>(&mut &changed[..]), Heard::Document(_)), "{place}");
        }
        assert!(matches!(hear::<Said>(&mut &[][..]), Heard::End));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_line_may() {
        let heard = hear_at_most::<Said>(&mut io::BufReader::new(io::repeat(b' ')), 1000);
        assert!(matches!(heard, Heard::Garbled(why) if why == "a line is too long"));
    }

    #[test]
    fn a_greeting_of_another_version_is_not_ours() {
        assert!(Said::hello().is_our_hello());
        assert!(!Said::Hello { version: VERSION + 1, program: env!("CARGO_PKG_VERSION").into() }.is_our_hello());
        assert!(!Said::Hello { version: VERSION, program: "0.0.1".into() }.is_our_hello());
    }
}
