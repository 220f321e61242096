//! The connection of one rank to all others: numbered exchanges, of which each must have the same purpose on all ranks.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_ranks::{MAX_MESSAGE, RankError, Transport};

use crate::error::Error;

/// How long a rank other than 0 leaves rank 0 to report why the ranks are no longer connected, before it ends all of
/// them.
const GRACE: Duration = Duration::from_secs(5);

/// The exchange with which every rank ends the run.
const END: &str = "end";

/// The bytes that a message may have besides its content.
pub(crate) const HEADER_BYTES: usize = 1 << 10;

/// The most bytes of the purpose of an exchange.
const MAX_PURPOSE: usize = 64;

/// What precedes the content of every message.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Header {
    /// The number of the exchange, from 0.
    number: u64,
    /// What the exchange is for.
    purpose: String,
    /// The exit code of the error with which the rank failed, whose text is the content.
    failed: Option<u8>,
}

/// What every rank says about itself first.
#[derive(Serialize, Deserialize)]
struct Greeting {
    version: String,
    host: String,
}

/// What the exchanges of one rank took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    /// The bytes that this rank sent to each other rank.
    pub bytes: u64,
    /// The seconds from the beginning to the end of all exchanges: the transfers, and waiting for slower ranks.
    pub seconds: f64,
}

/// The connection of this rank to the other ranks of a run.
pub struct Connection {
    transport: Box<dyn Transport>,
    timeout: Duration,
    /// The number of the next exchange.
    number: u64,
    /// The host of each rank.
    hosts: Vec<String>,
    /// Why the ranks can no longer go on together.
    failure: Option<Box<Explanation>>,
    /// Whether the transport itself failed, so that no message reaches the others.
    is_broken: bool,
    /// Whether that is because of rank 0, or of an unknown rank.
    has_lost_first: bool,
    /// The exit code of another rank that failed.
    other_exit: Option<Exit>,
    traffic: Traffic,
}

impl Connection {
    /// Greets the other ranks, and checks that all are of this version of the program. An exchange waits `timeout` for
    /// the other ranks.
    ///
    /// # Errors
    /// A rank that does not answer, or is another version.
    pub fn open(transport: Box<dyn Transport>, timeout: Duration) -> Result<Self, Error> {
        let hosts = vec![String::new(); transport.count()];
        let mut connection = Self {
            transport,
            timeout,
            number: 0,
            hosts,
            failure: None,
            is_broken: false,
            has_lost_first: false,
            other_exit: None,
            traffic: Traffic::default(),
        };
        let version = env!("CARGO_PKG_VERSION");
        let greeting = Greeting { version: version.to_owned(), host: host_name() };
        let message = postcard::to_stdvec(&greeting).map_err(|error| error.to_string());
        for (rank, message) in connection.gather("greeting", message).map_err(|failure| *failure)?.iter().enumerate() {
            let read = postcard::from_bytes::<Greeting>(message);
            let Some(greeting) = read.ok().filter(|greeting| greeting.version == version) else {
                let what = format!("rank {rank} is another version of tunebox than rank {}", connection.rank());
                return Err(Explanation::new("ranks", what).with_hint("install one version on all hosts").into());
            };
            connection.hosts[rank] = greeting.host;
        }
        Ok(connection)
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.transport.count()
    }

    /// How long an exchange waits for the other ranks, from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a message to all ranks, or the text of the error with which this rank failed, and returns the messages of
    /// all ranks in their order.
    ///
    /// # Errors
    /// A rank that failed, does not answer, or is at another exchange. After that every exchange fails, unless all
    /// ranks failed with the same text: then they go on together.
    pub(crate) fn gather(
        &mut self,
        purpose: &str,
        message: Result<Vec<u8>, String>,
    ) -> Result<Vec<Vec<u8>>, Box<Explanation>> {
        self.gather_or_fail(purpose, message.map_err(|text| (Explanation::new("ranks", text), Exit::Sandbox)))
    }

    /// Gathers messages as [`gather`](Self::gather) does; an error comes with the exit code of the program.
    fn gather_or_fail(
        &mut self,
        purpose: &str,
        message: Result<Vec<u8>, (Explanation, Exit)>,
    ) -> Result<Vec<Vec<u8>>, Box<Explanation>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let gathered = self.exchange(purpose, message);
        match gathered {
            Ok(messages) => Ok(messages),
            Err((failure, is_final)) => {
                self.failure = is_final.then(|| failure.clone());
                Err(failure)
            }
        }
    }

    /// Executes one exchange: sends this rank's message with the number and the purpose of the exchange, and returns
    /// the messages of all ranks. A message that is too long is replaced by an error, so that the other ranks do not
    /// wait. Adds to the traffic, and advances the number of the exchange if the transport succeeds. An error comes
    /// with `true` if the ranks can no longer go on together, which is not so if all failed with the same text.
    fn exchange(
        &mut self,
        purpose: &str,
        message: Result<Vec<u8>, (Explanation, Exit)>,
    ) -> Result<Vec<Vec<u8>>, (Box<Explanation>, bool)> {
        // What cannot be sent would leave the others waiting.
        let purpose = if purpose.len() <= MAX_PURPOSE { purpose } else { "a purpose that is too long" };
        let message = match message {
            Ok(content) if content.len() + HEADER_BYTES > MAX_MESSAGE => {
                let what = format!("a message of `{purpose}` between ranks is too long");
                Err((Explanation::new("ranks", what), Exit::Sandbox))
            }
            message => message,
        };
        let failed = message.as_ref().err().map(|(_, exit)| *exit as u8);
        let header = Header { number: self.number, purpose: purpose.to_owned(), failed };
        let content = message.unwrap_or_else(|(failure, _)| serde_json::to_vec(&failure).unwrap_or_default());
        let sent = encode(&header, &content).map_err(|error| (error, true))?;
        let begun = Instant::now();
        let gathered = self.transport.gather(&sent, self.timeout);
        self.traffic.bytes += sent.len() as u64;
        self.traffic.seconds += begun.elapsed().as_secs_f64();
        let gathered = gathered.map_err(|error| {
            self.is_broken = true;
            self.has_lost_first = match &error {
                RankError::Missing { ranks, .. } => ranks.contains(&0),
                RankError::Lost { rank, .. } => *rank == 0,
                _ => true,
            };
            (Box::new(self.explain_loss(&error)), true)
        })?;
        self.number += 1;
        let decoded: Option<Vec<(Header, Vec<u8>)>> = gathered.into_iter().map(decode).collect();
        let Some(decoded) = decoded else { return Err((Box::new(self.explain_difference(purpose, None)), true)) };
        let failed = decoded.iter().position(|(header, _)| header.failed.is_some());
        if let Some(rank) = failed {
            let (failed, content) = &decoded[rank];
            self.other_exit = failed.failed.filter(|_| rank != self.rank()).map(exit_of);
            let alike = decoded.iter().all(|(other, own)| *other == header && own == content);
            return Err((Box::new(self.explain_failure(rank, content)), !alike));
        }
        if let Some(rank) = decoded.iter().position(|(other, _)| *other != header) {
            let other = &decoded[rank].0.purpose;
            return Err((Box::new(self.explain_difference(purpose, Some((rank, other)))), true));
        }
        Ok(decoded.into_iter().map(|(_, content)| content).collect())
    }

    /// The rank and its host, as in `rank 2 on node7`.
    pub(crate) fn name(&self, rank: usize) -> String {
        match self.hosts.get(rank).map(String::as_str) {
            None | Some("") => format!("rank {rank}"),
            Some(host) => format!("rank {rank} on {host}"),
        }
    }

    /// The explanation of an error of the transport, with the hosts of the ranks.
    fn explain_loss(&self, error: &RankError) -> Explanation {
        let mut explanation = error.explanation();
        let names = |ranks: &[usize]| ranks.iter().map(|rank| self.name(*rank)).collect::<Vec<_>>().join(", ");
        if let RankError::Missing { ranks, seconds } = error {
            explanation.what = format!("{} did not answer within {seconds} s", names(ranks));
            explanation.why =
                Some("every rank takes part in every pass; `limits.rank-seconds` is how long they wait".into());
            explanation.hint = Some("look at the processes on these hosts".into());
        }
        if let RankError::Lost { rank, why } = error {
            explanation.what = format!("the connection to {} is lost: {why}", self.name(*rank));
            explanation.hint = Some("look at the processes on this host".into());
        }
        explanation
    }

    /// The explanation of a rank that failed with the explanation in `content`.
    fn explain_failure(&self, rank: usize, content: &[u8]) -> Explanation {
        let failure: Explanation = serde_json::from_slice(content).unwrap_or_default();
        let what = format!("{} failed: {}", self.name(rank), failure.what);
        let why = failure.why.or_else(|| Some("the ranks of a run compute every step together".into()));
        // What was kept there is in a temporary folder.
        Explanation { category: "ranks".into(), what, why, kept: None, further: Vec::new(), ..failure }
    }

    /// Builds the explanation of ranks that are at different exchanges: this rank at `purpose`, the rank in `other` at
    /// the purpose beside it. Without `other`, names no rank, because its message could not be read.
    fn explain_difference(&self, purpose: &str, other: Option<(usize, &str)>) -> Explanation {
        let other = other.map_or("another rank at something else".to_owned(), |(rank, other)| {
            format!("{} at `{other}`", self.name(rank))
        });
        Explanation::new("ranks", "the ranks of the run are at different exchanges")
            .with_why(format!("exchange {}: this rank is at `{purpose}`, {other}", self.number.saturating_sub(1)))
            .with_hint("start all ranks with the same program, files and settings, on one kind of processor")
    }

    /// Ends the run on this rank: tells the other ranks how it ended here, and waits for them. Returns `result`, but
    /// the failure of another rank if `result` is a success and that rank failed. `explain` converts an error to an
    /// explanation and an exit code.
    ///
    /// # Errors
    /// The error in `result`, else the failure of another rank, or a rank that does not answer.
    pub fn finish<T, E: From<Error>>(
        &mut self,
        result: Result<T, E>,
        explain: impl FnOnce(&E) -> (Explanation, Exit),
    ) -> Result<T, E> {
        let outcome = result.as_ref().map(|_| Vec::new()).map_err(explain);
        let ended = self.gather_or_fail(END, outcome);
        match (result, ended) {
            (Ok(_), Err(failure)) => Err(Error::Explained(failure, Exit::Sandbox).into()),
            (result, _) => result,
        }
    }

    /// The exit code of another rank whose failure ended an exchange; `None` if there is none.
    #[must_use]
    pub fn other_exit(&self) -> Option<Exit> {
        self.other_exit
    }

    /// Returns the bytes and seconds of all exchanges so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Whether rank 0 is lost, so that it can report nothing.
    #[must_use]
    pub fn has_lost_first(&self) -> bool {
        self.has_lost_first
    }

    /// Closes the connection, in order if the ranks are still connected. Else ends all ranks with this exit code; other
    /// ranks than 0 do that only after a few seconds, in which rank 0 can report the failure.
    pub fn close(mut self, code: i32) {
        if !self.is_broken {
            // All ranks are done: what fails now changes nothing.
            let _ = self.transport.close();
            return;
        }
        if self.rank() != 0 {
            std::thread::sleep(GRACE);
        }
        self.transport.abort(code);
    }
}

/// The exit code with this number; that of the sandbox for a number that is none.
fn exit_of(code: u8) -> Exit {
    let known = [Exit::No, Exit::Usage, Exit::Sandbox, Exit::Trust, Exit::Interrupted];
    known.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Sandbox)
}

/// Joins header and content of a message: the length of the header (`u16`, little-endian), header, content.
fn encode(header: &Header, content: &[u8]) -> Result<Vec<u8>, Box<Explanation>> {
    let wrong =
        |why: String| Box::new(Explanation::new("ranks", "a message between ranks cannot be written").with_why(why));
    let header = postcard::to_stdvec(header).map_err(|error| wrong(error.to_string()))?;
    let length = u16::try_from(header.len()).map_err(|error| wrong(error.to_string()))?;
    Ok([&length.to_le_bytes()[..], &header, content].concat())
}

/// Splits a message into header and content; `None` if it is no message.
fn decode(mut message: Vec<u8>) -> Option<(Header, Vec<u8>)> {
    let (length, rest) = message.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let header = postcard::from_bytes(rest.get(..length)?).ok()?;
    message.drain(..2 + length);
    Some((header, message))
}

/// The name of this host; empty if it is unknown.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Locks a connection. A panic under the lock leaves it usable.
pub(crate) fn lock(connection: &Mutex<Connection>) -> std::sync::MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
