//! The errors of messages between ranks, with hints on what to do about them.

use tunebox_foundation::explain::Explain;

use crate::{Launcher, MAX_MESSAGE};

/// What can go wrong between the ranks of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Explain)]
#[explain(category = "ranks")]
pub enum RankError {
    /// A variable that the launcher sets has a value that cannot be right.
    #[error("the environment variable `{name}` is `{value}`")]
    #[explain(why = why.clone(), hint = "start the run by `mpirun`, `srun` or `torchrun`, or unset the variable")]
    Variable {
        /// The name of the variable.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with the value.
        why: String,
    },
    /// The launcher set one variable and not another one that belongs to it.
    #[error("the environment variable `{name}` is not set")]
    #[explain(
        why = format!("`{present}` is set, and {} sets both", launcher.name()),
        hint = "start the run by `mpirun`, `srun` or `torchrun`, or unset `{present}`"
    )]
    NoVariable {
        /// The name of the variable that is not set.
        name: String,
        /// The name of a variable that is set.
        present: String,
        /// The launcher that sets both.
        launcher: Launcher,
    },
    /// No MPI library could be opened.
    #[error("no MPI library is found")]
    #[explain(why = why.clone(), hint = launcher.library_hint())]
    NoLibrary {
        /// The names that were tried, and why each could not be opened.
        why: String,
        /// The launcher of this process.
        launcher: Launcher,
    },
    /// An MPI library was opened and cannot be used.
    #[error("the MPI library `{library}` cannot be used")]
    #[explain(why = why.clone(), hint = "name another library by `TUNEBOX_MPI`")]
    BadLibrary {
        /// The file name of the library.
        library: String,
        /// What is wrong with it.
        why: String,
    },
    /// The opened MPI library belongs to another MPI than the launcher: it does not find the other processes.
    #[error("`{library}` ({kind}) finds {found} of the {expected} ranks that {} started", launcher.name())]
    #[explain(why = "the library and the launcher belong to different MPIs", hint = launcher.library_hint())]
    ForeignLibrary {
        /// The file name of the library.
        library: String,
        /// The MPI that the library belongs to.
        kind: String,
        /// The number of ranks that the library finds.
        found: usize,
        /// The launcher of this process.
        launcher: Launcher,
        /// The number of ranks that the launcher started.
        expected: usize,
    },
    /// A function of MPI failed.
    #[error("`{function}` failed: {why}")]
    Call {
        /// The name of the function.
        function: String,
        /// The message of MPI for its error code.
        why: String,
    },
    /// Rank 0 cannot listen at its address, or the address is not one.
    #[error("rank 0 cannot be reached at `{address}`")]
    #[explain(
        why = why.clone(),
        hint = "set `MASTER_ADDR` to the host of rank 0 and `MASTER_PORT` to a free port there"
    )]
    Address {
        /// The address.
        address: String,
        /// The message of the system.
        why: String,
    },
    /// Rank 0 did not accept the connection of this rank.
    #[error("rank 0 refused the connection of this rank")]
    #[explain(why = why.clone(), hint = "start all ranks with the same program, settings and number of ranks")]
    Refused {
        /// The reason that rank 0 gave.
        why: String,
    },
    /// Ranks did not answer in time.
    #[error("{} did not answer within {seconds} s", name_ranks(ranks))]
    #[explain(hint = format!("look for errors in the output of {}", name_ranks(ranks)))]
    Missing {
        /// The numbers of the ranks, ascending.
        ranks: Vec<usize>,
        /// How long this rank waited, in seconds, rounded up.
        seconds: u64,
    },
    /// The connection to a rank ended.
    #[error("the connection to rank {rank} is lost")]
    #[explain(why = why.clone(), hint = "look for errors in the output of rank {rank}")]
    Lost {
        /// The number of the rank.
        rank: usize,
        /// The message of the system, or what is wrong with the data of the rank.
        why: String,
    },
    /// A message is longer than [`MAX_MESSAGE`].
    #[error("a message between ranks has {length} bytes, at most {MAX_MESSAGE} are possible")]
    TooLong {
        /// The length in bytes.
        length: u64,
    },
    /// The transport is used again after a failure.
    #[error("the ranks are no longer connected, because an earlier exchange failed")]
    Broken,
}

/// Names ranks in a message: `rank 2`, `ranks 1, 2 and 3`; `no rank` for none.
fn name_ranks(ranks: &[usize]) -> String {
    match ranks {
        [rank] => format!("rank {rank}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(ToString::to_string).collect();
            format!("ranks {} and {last}", first.join(", "))
        }
        [] => "no rank".to_owned(),
    }
}
