//! Reports of rank 0 to the other ranks on why an exchange failed, and reading them.

use std::net::TcpStream;
use std::time::Duration;

use super::frame::{Kind, write_frame};
use crate::{Deadline, RankError};

/// How long rank 0 tries to send a report to each rank. It is short and fits the buffers of the system.
const REPORT_TIME: Duration = Duration::from_millis(100);

/// Sends the error to all `peers`, so that they need not wait for their own timeouts. Does nothing for an error other
/// than [`RankError::Missing`] and [`RankError::Lost`]. Tries each peer for [`REPORT_TIME`] and ignores failures.
pub(super) fn send_report<'a>(error: &RankError, peers: impl Iterator<Item = &'a TcpStream>) {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let (kind, content) = match error {
        RankError::Missing { ranks, seconds } => {
            let seconds = usize::try_from(*seconds).unwrap_or(usize::MAX);
            (Kind::Missing, std::iter::once(&seconds).chain(ranks).flat_map(|value| number(*value)).collect())
        }
        RankError::Lost { rank, why } => (Kind::Lost, [&number(*rank)[..], why.as_bytes()].concat()),
        _ => return,
    };
    for peer in peers {
        // A peer that cannot be reached finds out by its own timeout.
        let _ = write_frame(peer, kind, &content, Deadline::after(REPORT_TIME));
    }
}

/// Converts a frame that is not a message into the error that it reports. A frame that reports none, or that is
/// malformed, becomes a [`RankError::Lost`] of rank 0.
pub(super) fn read_report(kind: Kind, content: &[u8]) -> RankError {
    let (numbers, rest) = content.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes));
    match (kind, numbers.next()) {
        (Kind::Refused, _) => RankError::Refused { why: String::from_utf8_lossy(content).into_owned() },
        (Kind::Missing, Some(seconds)) if rest.is_empty() => {
            RankError::Missing { ranks: numbers.map(|rank| rank as usize).collect(), seconds: seconds.into() }
        }
        (Kind::Lost, Some(rank)) => {
            RankError::Lost { rank: rank as usize, why: String::from_utf8_lossy(&content[4..]).into_owned() }
        }
        _ => RankError::Lost { rank: 0, why: "it sent something else than was expected".to_owned() },
    }
}
