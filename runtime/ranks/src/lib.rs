//! Messages between the processes of a distributed run, called ranks: one operation, which gathers a message from each.
//!
//! [`find_launch`] reads from the environment how this process was started, [`connect`] connects it to the other ranks:
//! by MPI if an MPI launcher or Slurm started it, by TCP if `torchrun` or a program like it did.

mod error;
mod launch;
mod mpi;
mod tcp;

use std::time::{Duration, Instant};

pub use error::RankError;
pub use launch::{Launch, Launcher, find_launch};

/// The length in bytes of the longest message that [`Transport::gather`] sends: 64 MiB.
pub const MAX_MESSAGE: usize = 64 << 20;

/// Exchanges messages between the ranks of a run.
///
/// After an error of [`gather`](Transport::gather) other than [`RankError::TooLong`] the transport is of no further
/// use: every later call fails with [`RankError::Broken`]. The program then calls [`abort`](Transport::abort).
pub trait Transport: Send {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks of the run.
    fn count(&self) -> usize;

    /// Sends `message` to every rank and returns the messages of all ranks in the order of their numbers, that of this
    /// rank included. Every rank must call this function, equally often. Waits at most `timeout`; over TCP, ranks other
    /// than 0 wait one second longer, because rank 0 tells them which ranks did not answer.
    ///
    /// # Errors
    /// - [`RankError::TooLong`] if `message` is longer than [`MAX_MESSAGE`]; nothing is sent then.
    /// - [`RankError::Missing`] if ranks did not answer in time.
    /// - [`RankError::Lost`] if the connection to a rank ended.
    /// - [`RankError::Call`] if a function of MPI failed.
    /// - [`RankError::Broken`] if an earlier call failed.
    fn gather(&mut self, message: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RankError>;

    /// Ends the connection in an orderly way once all ranks are done. Over MPI this is `MPI_Finalize`, which waits for
    /// the other ranks; call it on the thread that called [`connect`].
    ///
    /// # Errors
    /// [`RankError::Broken`] if an earlier call failed, [`RankError::Call`] if a function of MPI failed.
    fn close(self: Box<Self>) -> Result<(), RankError>;

    /// Ends all ranks at once after a failure. Over MPI this is `MPI_Abort` with `code`: it ends all processes of the
    /// run, also this one, and normally does not return. Otherwise closes the connections, so that the other ranks fail
    /// with [`RankError::Lost`], and returns.
    fn abort(&mut self, code: i32);
}

/// Connects to the other ranks of a run. Over TCP waits at most `timeout` for them; over MPI, how long
/// `MPI_Init_thread` waits for them is up to the library. May be called once per process over MPI.
///
/// # Errors
/// - [`RankError::NoLibrary`], [`RankError::BadLibrary`] or [`RankError::ForeignLibrary`] if there is no MPI library
///   that belongs to the launcher.
/// - [`RankError::Call`] if a function of MPI failed.
/// - [`RankError::Address`] if rank 0 cannot listen at the address of `launch`, or the address has no meaning.
/// - [`RankError::Missing`] if ranks did not connect in time, [`RankError::Lost`] if a connection ended.
/// - [`RankError::Refused`] if rank 0 does not accept this rank.
pub fn connect(launch: &Launch, timeout: Duration) -> Result<Box<dyn Transport>, RankError> {
    match launch.launcher {
        Launcher::OpenMpi | Launcher::Mpich | Launcher::Slurm => mpi::connect(launch),
        Launcher::Torchrun => Ok(Box::new(tcp::connect(launch, timeout)?)),
    }
}

/// A point in time up to which an operation waits, and the whole time that it waits.
#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Creates the deadline of an operation that begins now and waits at most `timeout`, or a year if that is shorter.
    fn after(timeout: Duration) -> Self {
        let timeout = timeout.min(Duration::from_secs(365 * 24 * 3600));
        Self { end: Instant::now() + timeout, timeout }
    }

    /// Returns a deadline that is later by `delay`. Its errors name the time without the delay.
    fn extended(self, delay: Duration) -> Self {
        Self { end: self.end + delay, ..self }
    }

    /// Returns the time until the deadline, zero once it passed.
    fn remaining(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Builds the error that `ranks` did not answer before the deadline. It names the whole waiting time in seconds,
    /// rounded up.
    fn missing(self, ranks: Vec<usize>) -> RankError {
        let seconds = u64::try_from(self.timeout.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        RankError::Missing { ranks, seconds }
    }
}

/// Checks that `length` bytes are within [`MAX_MESSAGE`], and returns them as `usize`.
///
/// # Errors
/// [`RankError::TooLong`] if they are not.
fn check_length(length: u64) -> Result<usize, RankError> {
    let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= MAX_MESSAGE);
    bytes.ok_or(RankError::TooLong { length })
}
