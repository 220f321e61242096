//! Division of the work of one run among several processes (ranks), each of which has the whole model.
//!
//! Every rank makes the same calls with the same arguments. A call that is heavy computes a share of the rows on each
//! rank and gathers the results, so that it returns the same bits on every rank and for every number of ranks.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::decoder::packing::divide;
use crate::error::{Error, Result};

/// The bytes of a message that ranks exchange at a time.
const PIECE_BYTES: usize = 16 << 20;

/// The ranks of a run, seen from one of them.
pub trait Ranks: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn count(&self) -> usize;

    /// Sends a message of at most 17 MiB to all ranks and returns the messages of all, in the order of the ranks.
    /// `purpose` names the call; it must be the same on all ranks. An `Err` is the message of the error with which
    /// this rank failed.
    ///
    /// # Errors
    /// When a rank sent an error or another purpose, or does not answer. Then no rank gets a message.
    fn gather(&self, purpose: &'static str, message: std::result::Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>>;
}

/// The ranks of a run; `None` for one process alone, which is the default.
#[derive(Debug, Clone, Default)]
pub struct RankGroup(Option<Arc<dyn Ranks>>);

/// Ranks of which only the number is known, for estimates. Their `gather` always fails.
#[derive(Debug)]
struct RankCount(usize);

impl Ranks for RankCount {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        self.0
    }

    fn gather(&self, _: &'static str, _: std::result::Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        Err(Error::Unsupported("this run is only planned".into()))
    }
}

impl RankGroup {
    /// Creates a group of `count` ranks that do not exist, seen from rank 0, to estimate what a run on them needs.
    /// Exchanges among several of them fail.
    #[must_use]
    pub fn for_planning(count: usize) -> Self {
        Self::new(Arc::new(RankCount(count)))
    }

    /// Creates the group of these ranks. If there is only one, the group is that of one process alone, which exchanges
    /// no messages.
    #[must_use]
    pub fn new(ranks: Arc<dyn Ranks>) -> Self {
        Self((ranks.count() > 1).then_some(ranks))
    }

    /// The number of this rank and the number of ranks: 0 of 1 for one process alone.
    #[must_use]
    pub fn position(&self) -> (usize, usize) {
        self.0.as_ref().map_or((0, 1), |ranks| (ranks.rank(), ranks.count()))
    }

    /// Whether there is more than one rank.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.0.is_some()
    }

    /// Divides items among the ranks, into consecutive ranges whose `weights` add up to about equal sums. Returns the
    /// range of each rank; some may be empty.
    #[must_use]
    pub fn divide(&self, weights: &[usize]) -> Vec<Range<usize>> {
        divide(weights, self.position().1)
    }

    /// Sends a message of any length to all ranks and returns the messages of all, in the order of the ranks; that of
    /// this process alone if there are no others. An `Err` is the message of the error with which this rank failed.
    ///
    /// # Errors
    /// Those of [`Ranks::gather`]; a message that is an `Err`.
    pub fn gather(&self, purpose: &'static str, message: std::result::Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        let Some(ranks) = &self.0 else { return Ok(vec![message.map_err(Error::Argument)?]) };
        let mut all = vec![Vec::new(); ranks.count()];
        let mut rest = message.as_deref().map_err(Clone::clone);
        // The first byte of a piece says whether another one follows. A rank that has sent all sends empty pieces.
        loop {
            let piece = rest.clone().map(|rest| {
                let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES));
                (later, [&[u8::from(!later.is_empty())], now].concat())
            });
            let sent = piece.as_ref().map(|(_, piece)| piece.clone()).map_err(Clone::clone);
            let mut is_last = true;
            for (message, piece) in all.iter_mut().zip(ranks.gather(purpose, sent)?) {
                let (more, bytes) = piece.split_first().ok_or_else(|| message_size_error(purpose))?;
                is_last &= *more == 0;
                message.extend_from_slice(bytes);
            }
            if is_last {
                return Ok(all);
            }
            rest = piece.map(|(later, _)| later);
        }
    }

    /// Computes equally many numbers for each of `weights.len()` items, each rank for a range of them, and returns the
    /// numbers of all items, in order, on every rank. `weights` says how much work each item is, `purpose` names the
    /// exchange. `compute` gets this rank's range, that of all items for one process alone, and returns the numbers of
    /// the items in it.
    ///
    /// # Errors
    /// Those of `compute`, on any rank, and of [`Ranks::gather`]; also messages of lengths that do not fit the number
    /// of items.
    pub fn map_items(
        &self,
        purpose: &'static str,
        weights: &[usize],
        compute: impl FnOnce(Range<usize>) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        if !self.are_several() {
            return compute(0..weights.len());
        }
        let (rank, _) = self.position();
        let own = compute(self.divide(weights)[rank].clone());
        let message = own.as_ref().map(|numbers| bytes_of(numbers)).map_err(ToString::to_string);
        let gathered = self.gather(purpose, message);
        let each = own?.len() / self.divide(weights)[rank].len().max(1);
        let all: Vec<f32> = gathered?.iter().flat_map(|message| numbers_of(message)).collect();
        let is_whole =
            all.len().is_multiple_of(weights.len().max(1)) && (each == 0 || all.len() == each * weights.len());
        if is_whole { Ok(all) } else { Err(message_size_error(purpose)) }
    }
}

/// The numbers as bytes, little-endian.
pub(crate) fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The `f32` numbers that little-endian bytes hold, four bytes each; ignores up to three bytes left at the end.
pub(crate) fn numbers_of(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// The error for a message of another rank that has another size than the exchange `purpose` sends.
pub(crate) fn message_size_error(purpose: &str) -> Error {
    Error::Argument(format!("a rank sent a message of another size than `{purpose}` has"))
}
