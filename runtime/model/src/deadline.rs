//! Ends work of a stranger's making, such as a chat template, that takes far longer than its size explains.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::panics::catch_panic;

/// The time that all work together may take before its size counts.
const ALLOWANCE: Duration = Duration::from_secs(10);
/// The time for each byte of work: a hundredth of the speed of the slowest that is published.
const PER_BYTE: Duration = Duration::from_micros(100);
/// The bytes that a piece of work counts for beside its text.
const OVERHEAD: u64 = 16;
/// Stack of a thread that works: as much as other threads have. It counts against the memory of a worker process.
const STACK: usize = 2 << 20;

/// A piece of work that sends its own result.
type Job = Box<dyn FnOnce() + Send>;

/// The time that all pieces of work of one kind have taken so far, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
    /// Threads that wait for work, kept because a new thread takes longer than a small piece of work. They end with this.
    idle: Mutex<Vec<Sender<Job>>>,
}

impl Deadline {
    /// Runs a piece of work on `bytes` bytes on another thread, and waits for it until the time of all work together is
    /// up. Work that takes longer is left behind: its thread goes on until the process ends, so the caller should end
    /// with the error. `size` gives the bytes of a result, which count for the work that follows.
    ///
    /// # Errors
    /// The time is up, a panic of the work, and no thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<T, String> {
        let counted = self.bytes.fetch_add(bytes as u64 + OVERHEAD, Ordering::Relaxed) + bytes as u64 + OVERHEAD;
        let allowed = ALLOWANCE.saturating_add(PER_BYTE.saturating_mul(u32::try_from(counted).unwrap_or(u32::MAX)));
        let left = allowed.saturating_sub(Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)));
        let (sender, outcome) = mpsc::sync_channel(1);
        let begun = Instant::now();
        let thread = self.thread()?;
        // The receiver is gone if the time is up.
        let job = Box::new(move || drop(sender.send(catch_panic(work))));
        thread.send(job).map_err(|_| "its thread has ended")?;
        let outcome = outcome.recv_timeout(left);
        if outcome.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        let spent = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(spent, Ordering::Relaxed);
        let late = |_| format!("it took more than {} s for {counted} bytes of text", allowed.as_secs());
        let done = outcome.map_err(late)??;
        self.bytes.fetch_add(size(&done) as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Takes an idle thread, or starts one. Errors: the system gives no thread.
    fn thread(&self) -> Result<Sender<Job>, String> {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(idle);
        }
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        thread::Builder::new().stack_size(STACK).spawn(work).map_err(|error| error.to_string())?;
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_its_result_its_panic_or_the_time_of_all_work_before_it() {
        let deadline = Deadline::default();
        assert_eq!(deadline.run(1, || 7, |_| 0), Ok(7));
        assert_eq!(deadline.run(1, || panic!("in the work"), |(): &()| 0), Err("in the work".to_owned()));
        deadline.nanoseconds.store(u64::MAX / 2, Ordering::Relaxed);
        let endless = || loop {
            thread::sleep(Duration::from_secs(60));
        };
        let begun = Instant::now();
        let error = deadline.run(1, endless, |(): &()| 0).unwrap_err();
        assert!(error.starts_with("it took more than 10 s for") && begun.elapsed() < ALLOWANCE, "{error}");
    }
}
