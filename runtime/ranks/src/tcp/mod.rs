//! The transport over TCP, for processes that `torchrun` started: all other ranks are connected to rank 0, which
//! collects the messages and sends them to all.
//!
//! Connections are neither encrypted nor authenticated, as those of MPI and of PyTorch: the network is trusted.

mod frame;
mod greeting;
mod report;
#[cfg(test)]
mod tests;

use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tunebox_foundation::explain::ensure;

use self::frame::{Failure, Kind, is_readable, read_frame, write_frame};
use self::report::{read_report, send_report};
use crate::{Deadline, Launch, RankError, Transport, check_length};

/// How much longer than rank 0 the other ranks wait, so that they learn from it which ranks did not answer.
const REPORT_DELAY: Duration = Duration::from_secs(1);

/// The transport of a rank over TCP.
pub(crate) struct TcpTransport {
    rank: usize,
    count: usize,
    /// On rank 0 the connections to ranks 1 to `count - 1`; on other ranks the one to rank 0.
    peers: Vec<TcpStream>,
    /// Whether a gather failed, so that parts of messages may be under way.
    is_broken: bool,
}

/// Connects to the other ranks at the address of `launch`.
///
/// # Errors
/// - [`RankError::Address`] if the address is missing or cannot be used.
/// - [`RankError::Missing`] if ranks did not connect in time, [`RankError::Lost`] if a connection ended.
/// - [`RankError::Refused`] if rank 0 does not accept this rank.
pub(crate) fn connect(launch: &Launch, timeout: Duration) -> Result<TcpTransport, RankError> {
    let Launch { rank, count, .. } = *launch;
    let (host, port) = launch
        .address
        .as_ref()
        .ok_or_else(|| RankError::Address { address: String::new(), why: "no address is given".to_owned() })?;
    let deadline = Deadline::after(timeout);
    let peers = match rank {
        0 => greeting::accept_ranks(host, *port, count, deadline)?,
        _ => vec![greeting::join_ranks(host, *port, (rank, count), deadline)?],
    };
    Ok(TcpTransport { rank, count, peers, is_broken: false })
}

impl TcpTransport {
    /// On rank 0: reads the messages of all other ranks, then sends each rank those of all others. Returns all messages
    /// in the order of the ranks.
    ///
    /// # Errors
    /// [`RankError::Missing`] if ranks did not send or read in time, [`RankError::Lost`] if a connection ended.
    fn collect(&self, message: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>, RankError> {
        let mut messages = vec![message.to_vec()];
        for (peer, rank) in self.peers.iter().zip(1..) {
            match read_frame(peer, deadline) {
                Ok((Kind::Message, content)) => messages.push(content),
                Ok((kind, content)) => return Err(read_report(kind, &content)),
                Err(Failure::Timeout) => return Err(deadline.missing(self.silent_from(rank))),
                Err(failure) => return Err(failure.error(rank, deadline)),
            }
        }
        for (peer, to) in self.peers.iter().zip(1..) {
            for (_, message) in messages.iter().enumerate().filter(|(from, _)| *from != to) {
                write_frame(peer, Kind::Message, message, deadline).map_err(|failure| failure.error(to, deadline))?;
            }
        }
        Ok(messages)
    }

    /// Returns, on rank 0, the rank `first`, which did not send its whole message in time, and the ranks after it that
    /// sent nothing.
    fn silent_from(&self, first: usize) -> Vec<usize> {
        let is_silent = |rank: &usize| *rank == first || !is_readable(&self.peers[rank - 1]);
        (first..self.count).filter(is_silent).collect()
    }

    /// On other ranks: sends the message to rank 0 and reads those of all other ranks. Returns all messages in the
    /// order of the ranks. Waits for rank 0 by [`REPORT_DELAY`] longer than `deadline`.
    ///
    /// # Errors
    /// The error that rank 0 reports; else [`RankError::Missing`] or [`RankError::Lost`] for rank 0.
    fn exchange(&self, message: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>, RankError> {
        let (zero, until) = (&self.peers[0], deadline.extended(REPORT_DELAY));
        if let Err(failure) = write_frame(zero, Kind::Message, message, deadline) {
            // Rank 0 may have reported why it no longer reads.
            return Err(match read_frame(zero, Deadline::after(REPORT_DELAY)) {
                Ok((kind, content)) if kind != Kind::Message => read_report(kind, &content),
                _ => failure.error(0, deadline),
            });
        }
        let mut messages = Vec::with_capacity(self.count);
        for rank in 0..self.count {
            messages.push(match rank == self.rank {
                true => message.to_vec(),
                false => match read_frame(zero, until).map_err(|failure| failure.error(0, deadline))? {
                    (Kind::Message, content) => content,
                    (kind, content) => return Err(read_report(kind, &content)),
                },
            });
        }
        Ok(messages)
    }
}

impl Transport for TcpTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    /// On rank 0 collects the messages and sends them to all, and reports a failure to the other ranks; on these,
    /// exchanges messages with rank 0. Marks the transport as broken if that fails.
    fn gather(&mut self, message: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RankError> {
        ensure(!self.is_broken, || RankError::Broken)?;
        check_length(message.len() as u64)?;
        let deadline = Deadline::after(timeout);
        let result = match self.rank {
            0 => self.collect(message, deadline).inspect_err(|error| send_report(error, self.peers.iter())),
            _ => self.exchange(message, deadline),
        };
        self.is_broken = result.is_err();
        result
    }

    /// Closes the connections, without waiting for the other ranks.
    fn close(self: Box<Self>) -> Result<(), RankError> {
        ensure(!self.is_broken, || RankError::Broken)
    }

    /// Closes the connections in both directions; ignores the exit code.
    fn abort(&mut self, _code: i32) {
        self.is_broken = true;
        for peer in &self.peers {
            // It may be closed already.
            let _ = peer.shutdown(Shutdown::Both);
        }
    }
}
