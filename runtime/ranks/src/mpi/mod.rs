//! The transport over MPI, for processes that `mpirun` or `srun` started.
//!
//! Each gather sends and receives messages between all pairs of ranks, first lengths, then contents, without blocking:
//! so a rank that does not answer is known by its number, and waiting does not take a processor core.
#![expect(unsafe_code, reason = "MPI reads and writes buffers while other code runs")]

mod functions;
mod library;

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use tunebox_foundation::explain::ensure;

use self::functions::{MPICH, Mpi, STANDARD, open_mpi_constants};
use self::library::Interface;
use crate::{Deadline, Launch, RankError, Transport, check_length};

/// The tag of the messages with the lengths.
const LENGTH: c_int = 1;
/// The tag of the messages with the contents.
const CONTENT: c_int = 2;

/// How long a rank polls at full speed for the lengths: the other ranks may still compute, and use its core.
const POLL_LENGTHS: Duration = Duration::from_micros(50);
/// How long a rank polls at full speed for contents: all ranks are there, and the library copies only while it is
/// polled.
const POLL_CONTENTS: Duration = Duration::from_millis(500);
/// The time between polls after that.
const PAUSE: Duration = Duration::from_micros(200);

/// Opens the MPI library of the launcher, initializes it, and checks that it finds as many ranks as the launcher
/// started.
///
/// # Errors
/// - [`RankError::NoLibrary`] and [`RankError::BadLibrary`] if no library can be opened and used.
/// - [`RankError::ForeignLibrary`] if the library finds another number of ranks.
/// - [`RankError::Call`] if a function of MPI fails.
pub(crate) fn connect(launch: &Launch) -> Result<Box<dyn Transport>, RankError> {
    let opened = library::open(launch)?;
    match opened.interface {
        Interface::OpenMpi => {
            let constants = open_mpi_constants(&opened)?;
            // SAFETY: the handles of Open MPI are pointers, and the constants are its own.
            initialize_transport(unsafe { Mpi::<usize>::new(opened, constants)? }, launch)
        }
        // SAFETY: the handles of the standard's binary interface are pointers, and the constants are its own.
        Interface::Standard => initialize_transport(unsafe { Mpi::<usize>::new(opened, STANDARD)? }, launch),
        // SAFETY: the handles of MPICH are of the type `int`, and the constants are its own.
        Interface::Mpich => initialize_transport(unsafe { Mpi::<c_int>::new(opened, MPICH)? }, launch),
    }
}

/// Initializes MPI and returns the transport between the ranks. If MPI finds another number of ranks than the launcher
/// started, finalizes MPI, which this process then cannot use again.
///
/// # Errors
/// - [`RankError::ForeignLibrary`] if the number of ranks differs.
/// - [`RankError::BadLibrary`] if MPI is initialized already, or only one thread may use the library.
/// - [`RankError::Call`] if a function of MPI fails.
fn initialize_transport<H: Copy + Default + Send + 'static>(
    mpi: Mpi<H>,
    launch: &Launch,
) -> Result<Box<dyn Transport>, RankError> {
    let (rank, count) = mpi.initialize()?;
    if count != launch.count {
        // A failure is ignored: the error below explains the cause.
        let _ = mpi.finalize();
        return Err(RankError::ForeignLibrary {
            library: mpi.name,
            kind: mpi.interface.name().to_owned(),
            found: count,
            launcher: launch.launcher,
            expected: launch.count,
        });
    }
    Ok(Box::new(MpiTransport { mpi, rank, count, is_broken: false }))
}

/// The transport of a rank over MPI. `H` is the type of the handles of the library.
struct MpiTransport<H> {
    mpi: Mpi<H>,
    rank: usize,
    count: usize,
    /// Whether a gather failed, whose requests may still be pending.
    is_broken: bool,
}

/// The memory that the requests of one gather read and write.
struct Buffers {
    /// The length of this rank's message.
    length: Vec<u8>,
    /// The lengths of the messages, by rank.
    lengths: Vec<[u8; 8]>,
    /// The messages, by rank; that of this rank from the start.
    messages: Vec<Vec<u8>>,
}

/// A request to send to a rank or to receive from it.
struct Request<H> {
    rank: usize,
    is_receive: bool,
    is_done: bool,
    handle: H,
}

impl<H: Copy + Default> MpiTransport<H> {
    /// Exchanges first the lengths of messages, then their contents, and writes them to `buffers`. Empty messages have
    /// no second part. If this fails, requests may be pending, so MPI may still read and write `buffers`.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait), and [`RankError::Lost`] for a rank that announces more than `MAX_MESSAGE` bytes.
    fn exchange(&self, buffers: &mut Buffers, deadline: Deadline) -> Result<(), RankError> {
        let mut requests = Vec::new();
        for (rank, length) in buffers.lengths.iter_mut().enumerate().filter(|(rank, _)| *rank != self.rank) {
            // SAFETY: the buffers are neither moved nor used before all requests are complete; see `gather`.
            requests.push(Request::receive(rank, unsafe { self.mpi.receive(length, rank, LENGTH)? }));
            // SAFETY: as above.
            requests.push(Request::send(rank, unsafe { self.mpi.send(&buffers.length, rank, LENGTH)? }));
        }
        self.wait(&mut requests, deadline, POLL_LENGTHS)?;

        for rank in (0..self.count).filter(|rank| *rank != self.rank) {
            let length = check_length(u64::from_le_bytes(buffers.lengths[rank]));
            let length = length.map_err(|error| RankError::Lost { rank, why: error.to_string() })?;
            buffers.messages[rank] = vec![0; length];
        }
        requests.clear();
        for rank in (0..self.count).filter(|rank| *rank != self.rank) {
            if !buffers.messages[rank].is_empty() {
                // SAFETY: the buffers are neither moved nor used before all requests are complete; see `gather`.
                let handle = unsafe { self.mpi.receive(&mut buffers.messages[rank], rank, CONTENT)? };
                requests.push(Request::receive(rank, handle));
            }
            if !buffers.messages[self.rank].is_empty() {
                // SAFETY: as above.
                let handle = unsafe { self.mpi.send(&buffers.messages[self.rank], rank, CONTENT)? };
                requests.push(Request::send(rank, handle));
            }
        }
        self.wait(&mut requests, deadline, POLL_CONTENTS)
    }

    /// Waits until all requests are complete. Polls at full speed for the time `eager`, then with pauses.
    ///
    /// # Errors
    /// - [`RankError::Missing`] after the deadline. It names the ranks from which nothing was received; if there are
    ///   none, those that did not receive.
    /// - [`RankError::Call`] if a request failed.
    fn wait(&self, requests: &mut [Request<H>], deadline: Deadline, eager: Duration) -> Result<(), RankError> {
        let begin = Instant::now();
        loop {
            for request in requests.iter_mut().filter(|request| !request.is_done) {
                request.is_done = self.mpi.test(&mut request.handle)?;
            }
            if requests.iter().all(|request| request.is_done) {
                return Ok(());
            }
            if deadline.remaining().is_zero() {
                let pending = |is_receive: bool| {
                    let requests = requests.iter().filter(move |request| !request.is_done);
                    requests.filter(move |request| request.is_receive == is_receive).map(|request| request.rank)
                };
                let silent: Vec<usize> = pending(true).collect();
                return Err(deadline.missing(if silent.is_empty() { pending(false).collect() } else { silent }));
            }
            if begin.elapsed() < eager { yield_now() } else { sleep(PAUSE) }
        }
    }
}

impl<H> Request<H> {
    /// Creates a pending request to receive from `rank`; `handle` is that of MPI.
    fn receive(rank: usize, handle: H) -> Self {
        Self { rank, is_receive: true, is_done: false, handle }
    }

    /// Creates a pending request to send to `rank`; `handle` is that of MPI.
    fn send(rank: usize, handle: H) -> Self {
        Self { rank, is_receive: false, is_done: false, handle }
    }
}

impl<H: Copy + Default + Send> Transport for MpiTransport<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    /// Exchanges the messages. If that fails, never frees the buffers, since MPI may still read and write them, and
    /// marks the transport as broken.
    fn gather(&mut self, message: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RankError> {
        ensure(!self.is_broken, || RankError::Broken)?;
        let length = check_length(message.len() as u64)? as u64;
        let mut messages = vec![Vec::new(); self.count];
        messages[self.rank] = message.to_vec();
        // Never released if the exchange fails: MPI may still read and write it then.
        let mut buffers = ManuallyDrop::new(Buffers {
            length: length.to_le_bytes().to_vec(),
            lengths: vec![[0; 8]; self.count],
            messages,
        });
        // Set before the exchange, so that it stays set if the exchange fails or panics.
        self.is_broken = true;
        self.exchange(&mut buffers, Deadline::after(timeout))?;
        self.is_broken = false;
        Ok(ManuallyDrop::into_inner(buffers).messages)
    }

    /// Finalizes MPI, which waits for the other ranks.
    fn close(self: Box<Self>) -> Result<(), RankError> {
        ensure(!self.is_broken, || RankError::Broken)?;
        self.mpi.finalize()
    }

    fn abort(&mut self, code: i32) {
        self.mpi.abort(code);
    }
}
