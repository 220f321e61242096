//! The transport between threads of one process: channels, for tests.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tunebox_foundation::explain::ensure;

use crate::{Deadline, RankError, Transport, check_length};

/// The transport of one rank whose other ranks are in the same process, with a channel to and from each rank.
pub struct LocalTransport {
    rank: usize,
    count: usize,
    /// The channels to all ranks, by number of the rank; that of this rank is unused. Empty after a failure.
    senders: Vec<Sender<Vec<u8>>>,
    /// The channels from all ranks, by number of the rank; that of this rank is unused. Empty after a failure.
    receivers: Vec<Receiver<Vec<u8>>>,
}

/// Creates the connected transports of `count` ranks in one process, in the order of their numbers. Each may be moved
/// to a thread.
#[must_use]
pub fn local(count: usize) -> Vec<LocalTransport> {
    let mut transports: Vec<LocalTransport> =
        (0..count).map(|rank| LocalTransport { rank, count, senders: Vec::new(), receivers: Vec::new() }).collect();
    for from in 0..count {
        for to in 0..count {
            let (sender, receiver) = channel();
            transports[from].senders.push(sender);
            transports[to].receivers.push(receiver);
        }
    }
    transports
}

impl LocalTransport {
    /// Sends `message` to all other ranks and receives theirs. Returns the messages of all ranks in the order of their
    /// numbers. Sending never waits.
    ///
    /// # Errors
    /// [`RankError::Lost`] for the first rank whose channel is closed, else [`RankError::Missing`] with all ranks that
    /// did not answer in time.
    fn exchange(&self, message: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>, RankError> {
        let others = |rank: &usize| *rank != self.rank;
        for rank in (0..self.count).filter(others) {
            self.senders[rank].send(message.to_vec()).map_err(|_| lost_error(rank))?;
        }
        let (mut messages, mut missing) = (vec![message.to_vec(); self.count], Vec::new());
        for rank in (0..self.count).filter(others) {
            match self.receivers[rank].recv_timeout(deadline.remaining()) {
                Ok(received) => messages[rank] = received,
                Err(RecvTimeoutError::Timeout) => missing.push(rank),
                Err(RecvTimeoutError::Disconnected) => return Err(lost_error(rank)),
            }
        }
        if missing.is_empty() { Ok(messages) } else { Err(deadline.missing(missing)) }
    }

    /// Closes the channels to and from all other ranks.
    fn disconnect(&mut self) {
        self.senders.clear();
        self.receivers.clear();
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    /// Exchanges the messages over the channels. Closes all channels if that fails.
    fn gather(&mut self, message: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RankError> {
        ensure(!self.senders.is_empty(), || RankError::Broken)?;
        check_length(message.len() as u64)?;
        self.exchange(message, Deadline::after(timeout)).inspect_err(|_| self.disconnect())
    }

    /// Closes the channels, without waiting for the other ranks.
    fn close(self: Box<Self>) -> Result<(), RankError> {
        ensure(!self.senders.is_empty(), || RankError::Broken)
    }

    /// Closes the channels; ignores the exit code.
    fn abort(&mut self, _code: i32) {
        self.disconnect();
    }
}

/// Builds the error that the transport of `rank` no longer exists.
fn lost_error(rank: usize) -> RankError {
    RankError::Lost { rank, why: "the rank closed its connection".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::thread::{scope, sleep};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(200);

    /// Runs `work` with each transport on a thread of its own, and returns the results in the order of the ranks.
    fn run<T: Send>(transports: Vec<LocalTransport>, work: impl Fn(LocalTransport) -> T + Sync) -> Vec<T> {
        scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                transports.into_iter().map(|transport| scope.spawn(move || work(transport))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn messages_of_all_lengths_reach_all_ranks() {
        for count in 1..=4 {
            let message = |turn: usize, rank: usize| vec![rank as u8; turn * (rank + 10)];
            run(local(count), |mut transport| {
                for turn in 0..3 {
                    let found = transport.gather(&message(turn, transport.rank()), LONG).unwrap();
                    assert_eq!(found, (0..count).map(|rank| message(turn, rank)).collect::<Vec<_>>());
                }
                Box::new(transport).close().unwrap();
            });
        }
    }

    #[test]
    fn silent_ranks_are_named_and_the_transport_is_broken() {
        let errors = run(local(4), |mut transport| {
            if transport.rank() % 2 == 1 {
                sleep(SHORT * 2);
                return None;
            }
            let error = transport.gather(b"a", SHORT).unwrap_err();
            assert_eq!((transport.gather(b"a", SHORT), transport.count()), (Err(RankError::Broken), 4));
            sleep(SHORT);
            Some(error)
        });
        let missing = Some(RankError::Missing { ranks: vec![1, 3], seconds: 1 });
        assert_eq!(errors, [missing.clone(), None, missing, None]);
    }

    #[test]
    fn a_rank_that_aborts_is_named() {
        let errors = run(local(2), |mut transport| {
            if transport.rank() == 1 {
                transport.abort(1);
            }
            transport.gather(b"a", LONG).unwrap_err()
        });
        assert_eq!(errors, [lost_error(1), RankError::Broken]);
    }
}
