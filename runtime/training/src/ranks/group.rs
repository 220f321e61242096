//! The ranks of a run, whose messages a function gathers.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex};

use tunebox_foundation::explain::Explanation;
use tunebox_model::{RankGroup, Ranks};

use super::connection::{Connection, lock};

/// The messages of all ranks, or why they could not be gathered.
pub(crate) type Gathered = Result<Vec<Vec<u8>>, Box<Explanation>>;

/// The ranks of a run with a function that sends a message of this purpose, or the text of the error with which this
/// rank failed, to all of them and returns the messages of all.
pub(crate) struct GatheringRanks<F> {
    pub(crate) rank: usize,
    pub(crate) count: usize,
    pub(crate) gather: F,
}

impl<F> Debug for GatheringRanks<F> {
    /// Writes the number of the rank and the number of ranks.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {}", self.rank, self.count)
    }
}

impl<F: Fn(&'static str, Result<Vec<u8>, String>) -> Gathered + Send + Sync> Ranks for GatheringRanks<F> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn gather(&self, purpose: &'static str, message: Result<Vec<u8>, String>) -> tunebox_model::Result<Vec<Vec<u8>>> {
        (self.gather)(purpose, message).map_err(tunebox_model::Error::Ranks)
    }
}

/// The ranks of a run in the process that holds the connection, which exchanges their messages.
pub(crate) fn connected_ranks(connection: Arc<Mutex<Connection>>) -> RankGroup {
    let (rank, count) = {
        let connection = lock(&connection);
        (connection.rank(), connection.count())
    };
    let gather = move |purpose: &'static str, message| lock(&connection).gather(purpose, message);
    RankGroup::new(Arc::new(GatheringRanks { rank, count, gather }))
}
