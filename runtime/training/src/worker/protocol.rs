//! The messages between parent and worker: one JSON document a line. Neither side trusts what it reads.
//!
//! Parent to worker: one [`Job`], then at most one [`Order::Stop`]. Worker to parent: [`Message::Hello`], events and
//! lines, and at the end one [`Message::Ended`] or [`Message::Failed`]. Both sides limit the length of a line. On
//! several ranks the worker also has messages gathered, whose bytes follow the line that announces them.

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_ranks::MAX_MESSAGE;

use crate::configuration::RunSettings;
use crate::observer::Event;
use crate::ranks::HEADER_BYTES;
use crate::run::Summary;

/// The version of the messages.
const VERSION: u32 = 1;

/// The most bytes of a line: enough for a plan that lists a million skipped lines.
const MAX_LINE_BYTES: usize = 64 << 20;

/// The version of a program at one end of the pipe; both ends must have the same.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(super) struct Version {
    version: u32,
    program: String,
}

impl Version {
    /// Returns the versions of the messages and of this program.
    pub(super) fn this() -> Self {
        Self { version: VERSION, program: env!("CARGO_PKG_VERSION").into() }
    }
}

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) parent: Version,
    pub(super) settings: RunSettings,
    /// The number of this rank and the number of ranks, of a run on several ranks.
    pub(super) rank: Option<(usize, usize)>,
    /// The cache folder in which the parent had the method and the verifiers compiled; `None` if the worker compiles
    /// them.
    pub(super) code: Option<PathBuf>,
}

/// A message of the parent after the job.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Finish the present step, save a checkpoint, end.
    Stop,
    /// The messages of all ranks, in answer to [`Message::Gather`]: their lengths. The bytes follow the line.
    Gathered(Vec<u64>),
    /// The ranks could not exchange messages, in answer to [`Message::Gather`].
    NotGathered(Box<Explanation>),
}

/// A message of the worker.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// The first message: the version of the worker.
    Hello(Version),
    /// An event of the run.
    Event(Box<Event>),
    /// A call of the method begins: whether it is `step`, and how many seconds it may last; `None` when it has ended.
    Call(Option<(bool, f64)>),
    /// The method logged a line in a call that goes on; an event has it again once the call has ended.
    Line(String),
    /// Send a message to the other ranks, and answer with the messages of all: what it is for, and the number of bytes
    /// that follow this line, or the text of the error with which this rank failed.
    Gather(String, Result<u64, String>),
    /// The run is finished or was stopped.
    Ended(Box<Summary>),
    /// The run failed: what to show, and the exit code.
    Failed(Box<Explanation>, Exit),
}

/// Reads the bytes that follow a line.
///
/// # Errors
/// More than [`MAX_MESSAGE`] bytes and a header, of which nothing is read; a pipe that ends before.
pub(super) fn read_bytes(input: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > (MAX_MESSAGE + HEADER_BYTES) as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message between ranks is too long"));
    }
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Writes a document as one line of JSON, in a single write, and flushes.
///
/// # Errors
/// A pipe that cannot be written, and `FileTooLarge` for a line of [`MAX_LINE_BYTES`] or more, of which nothing is
/// written.
pub(super) fn write(output: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(document)?;
    if line.len() >= MAX_LINE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a line between run and worker would be too long"));
    }
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<T> {
    /// A document.
    Document(T),
    /// The pipe ended between two lines.
    End,
    /// The pipe ended inside a line.
    Cut,
    /// An error of the pipe, or a line that is no such document.
    Invalid(String),
}

/// Reads one line of at most [`MAX_LINE_BYTES`], its end included, and parses it as a JSON document. Blocks until a
/// whole line, the end of the pipe or an error arrives.
pub(super) fn read<T: DeserializeOwned>(input: &mut impl BufRead) -> Input<T> {
    read_at_most(input, MAX_LINE_BYTES)
}

/// Reads one line of at most `most` bytes, including its end, and parses it as a JSON document. A longer line is
/// `Invalid`, of which only `most` bytes are read.
fn read_at_most<T: DeserializeOwned>(input: &mut impl BufRead, most: usize) -> Input<T> {
    let mut line = Vec::new();
    if let Err(error) = io::Read::take(input, most as u64).read_until(b'\n', &mut line) {
        return Input::Invalid(error.to_string());
    }
    if line.is_empty() {
        return Input::End;
    }
    if line.pop() != Some(b'\n') {
        let long = line.len() + 1 >= most;
        return if long { Input::Invalid("a line is too long".into()) } else { Input::Cut };
    }
    match serde_json::from_slice(&line) {
        Ok(document) => Input::Document(document),
        Err(error) => Input::Invalid(format!("a line is not what it should be: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::StepEvent;

    fn step() -> Event {
        Event::Step(StepEvent {
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
    fn an_event_is_read_as_it_was_written() {
        let events = [
            step(),
            Event::Validated { step: 0, loss: 2.5 },
            Event::Log { step: 1, line: "two\nlines \u{1b}[2J".into() },
            Event::Warning { text: "ä".into() },
            Event::Saved { step: 2, path: "runs/one".into() },
        ];
        for event in events {
            let mut pipe = Vec::new();
            write(&mut pipe, &Message::Event(Box::new(event.clone()))).unwrap();
            assert_eq!(pipe.iter().filter(|byte| **byte == b'\n').count(), 1, "one line each");
            let Input::Document(Message::Event(read)) = read(&mut &pipe[..]) else { panic!("{event:?}") };
            assert_eq!(*read, event);
        }
    }

    #[test]
    fn a_line_cut_anywhere_or_with_any_byte_changed_is_reported() {
        let mut pipe = Vec::new();
        write(&mut pipe, &Message::Event(Box::new(step()))).unwrap();
        for length in 1..pipe.len() {
            let heard = read::<Message>(&mut &pipe[..length]);
            assert!(matches!(heard, Input::Cut), "{length}: {heard:?}");
        }
        for place in 0..pipe.len() {
            let mut changed = pipe.clone();
            changed[place] ^= 0x80;
            assert!(!matches!(read::<Message>(&mut &changed[..]), Input::Document(_)), "{place}");
        }
        assert!(matches!(read::<Message>(&mut &[][..]), Input::End));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_line_may() {
        let heard = read_at_most::<Message>(&mut io::BufReader::new(io::repeat(b' ')), 1000);
        assert!(matches!(heard, Input::Invalid(why) if why == "a line is too long"));
    }

    #[test]
    fn a_greeting_of_another_version_is_not_ours() {
        let is_ours = |version: Version| version == Version::this();
        assert!(is_ours(Version::this()));
        assert!(!is_ours(Version { version: VERSION + 1, ..Version::this() }));
        assert!(!is_ours(Version { program: "0.0.1".into(), ..Version::this() }));
    }
}
