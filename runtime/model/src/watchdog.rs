//! Ends the process if work on untrusted files, such as rendering a chat template, takes far more time or memory than
//! their size explains.
//!
//! Code marks such work by [`Work::begin`]. One thread of the process, started by [`start`], looks at the marks. In a
//! program that does not start it, nothing is ended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tunebox_compute::memory;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::format;

/// The time that one kind of work on one file may take in total, beside that for its bytes.
const ALLOWANCE: Duration = Duration::from_secs(10);
/// The time for each byte of a text that is rendered, encoded or decoded: a hundredth of the slowest published speed.
const PER_TEXT_BYTE: Duration = Duration::from_micros(100);
/// The time for each byte of a file that is read.
const PER_FILE_BYTE: Duration = Duration::from_micros(1);
/// The most bytes of a file that count: no part of a model that is read whole is longer.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The bytes that each piece of work on a text counts as, beside those of the text.
pub(crate) const OVERHEAD: u64 = 16;
/// The bytes by which the memory of the process may grow while watched work is under way, beside those for its bytes.
const MEMORY: u64 = 2 << 30;
/// The bytes of memory that each byte of a text or file allows.
const MEMORY_PER_BYTE: u64 = 64;
/// How often the watchdog's thread checks all work.
const TICK: Duration = Duration::from_millis(100);

/// All work of this process that can be marked.
static ACCOUNTS: Mutex<Vec<Weak<Account>>> = Mutex::new(Vec::new());

/// Starts a thread that checks all marked work every 100 ms for the life of the process, and calls `end` when some work
/// has taken more time or memory than it may. `end` is expected to show the explanation and end the process with
/// [`Exit::Usage`](tunebox_foundation::explain::Exit::Usage); if `end` returns, the checks go on. Each check adds at
/// most 200 ms to the time of work. Call `start` once, since each call starts a thread.
///
/// # Errors
/// The system gives no thread.
pub fn start(end: impl Fn(Explanation) + Send + 'static) -> io::Result<()> {
    let watch = move || {
        let mut last = Instant::now();
        loop {
            thread::sleep(TICK);
            // The time for which the process was stopped does not count.
            let elapsed = last.elapsed().min(2 * TICK);
            last = Instant::now();
            if let Some(explanation) = charge_all(elapsed, memory::resident().unwrap_or(0)) {
                end(explanation);
            }
        }
    };
    thread::Builder::new().name("watchdog".into()).spawn(watch).map(drop)
}

/// Charges `elapsed` to all work under way, oldest first, while the process holds `resident` bytes of memory. Stops at
/// the first work that has taken more time or memory than it may, and returns its explanation; else `None`. Drops the
/// entries of work of which no [`Work`] is left.
fn charge_all(elapsed: Duration, resident: u64) -> Option<Explanation> {
    let mut accounts = ACCOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    accounts.retain(|account| account.strong_count() > 0);
    accounts.iter().filter_map(Weak::upgrade).find_map(|account| account.charge(elapsed, resident))
}

/// One kind of work on one file, such as all renderings of a chat template. Copies share its time.
#[derive(Debug, Clone)]
pub(crate) struct Work(Arc<Account>);

/// The time that one kind of work has taken, the memory of the process before it, and the bytes of texts or files that
/// limit both.
#[derive(Debug)]
struct Account {
    /// The words for this work in messages.
    what: &'static str,
    /// The file that messages name.
    file: PathBuf,
    /// The time that each byte allows.
    per_byte: Duration,
    /// The bytes of all texts, or of the file.
    bytes: AtomicU64,
    /// The time taken so far, summed over threads.
    nanoseconds: AtomicU64,
    /// Bytes that the process held when this work was last not under way.
    resident_before: AtomicU64,
    /// How many threads do this work now.
    threads: AtomicU32,
}

/// Marks work as under way until it is dropped.
pub(crate) struct Mark<'a>(&'a Account);

impl Work {
    /// Registers work on texts by `what`, such as "the chat template", which comes from `file`. It has no bytes until
    /// [`add_bytes`](Self::add_bytes) adds those of each text.
    pub(crate) fn on_texts(what: &'static str, file: &Path) -> Self {
        Self::new(what, file, PER_TEXT_BYTE)
    }

    /// Registers work on a file, described by `what`, such as "reading the tokenizer". Its bytes are the size of the
    /// file, at most [`MAX_FILE_BYTES`]; 0 if the size cannot be read.
    pub(crate) fn on_file(what: &'static str, file: &Path) -> Self {
        let work = Self::new(what, file, PER_FILE_BYTE);
        work.add_bytes(std::fs::metadata(file).map_or(0, |metadata| metadata.len().min(MAX_FILE_BYTES)));
        work
    }

    /// Creates work without bytes, time and marks, which may take `per_byte` of time for each byte, and adds it to
    /// [`ACCOUNTS`]. Reads the memory of the process; where the system does not report it, counts no growth of memory.
    fn new(what: &'static str, file: &Path, per_byte: Duration) -> Self {
        let (bytes, nanoseconds, threads) = Default::default();
        let (file, resident_before) = (file.to_path_buf(), memory::resident().unwrap_or(u64::MAX).into());
        let account = Arc::new(Account { what, file, per_byte, bytes, nanoseconds, resident_before, threads });
        ACCOUNTS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&account));
        Self(account)
    }

    /// Marks this work as under way on one more thread until the mark is dropped.
    pub(crate) fn begin(&self) -> Mark<'_> {
        self.0.threads.fetch_add(1, Ordering::Relaxed);
        Mark(&self.0)
    }

    /// Adds bytes of texts or files, which raise the limits of time and memory of this work.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Mark<'_> {
    /// Marks the work as under way on one thread less.
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Account {
    /// Adds `elapsed` to this work's time for each thread that does it, while the process holds `resident` bytes of
    /// memory. If no thread does it, only stores `resident` as the memory before the work, and returns `None`. Returns
    /// an explanation if the process has grown since then by more than [`MEMORY`] and [`MEMORY_PER_BYTE`] for each
    /// byte, or the total time exceeds [`ALLOWANCE`] and `per_byte` for each byte; else `None`.
    fn charge(&self, elapsed: Duration, resident: u64) -> Option<Explanation> {
        let threads = self.threads.load(Ordering::Relaxed);
        if threads == 0 {
            self.resident_before.store(resident, Ordering::Relaxed);
            return None;
        }
        let new = u64::try_from((elapsed * threads).as_nanos()).unwrap_or(u64::MAX);
        let spent = Duration::from_nanos(self.nanoseconds.fetch_add(new, Ordering::Relaxed).saturating_add(new));
        let bytes = self.bytes.load(Ordering::Relaxed);
        let allowed = ALLOWANCE + self.per_byte.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY);
        if resident.saturating_sub(self.resident_before.load(Ordering::Relaxed)) > memory {
            return Some(self.explain(&format!("{} of memory", format::bytes(memory)), bytes));
        }
        (spent > allowed).then(|| self.explain(&format!("{} s", allowed.as_secs()), bytes))
    }

    /// The explanation that this work takes more than `allowed`, a time or memory as text, for so many bytes; 0 bytes
    /// are called "its first text". Names the file, and ends with a hint.
    fn explain(&self, allowed: &str, bytes: u64) -> Explanation {
        let work = if bytes == 0 { "its first text".into() } else { format!("{bytes} bytes") };
        Explanation::new("model", format!("{} takes more than {allowed} for {work}", self.what))
            .with_location(self.file.display().to_string())
            .with_why("a file of the model asks for far more work than its size explains, so the program ends")
            .with_hint("use the files that came with the model, or a model from a source that you trust")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_never_ends_its_first_text_is_reported() {
        let work = Work::on_texts("the chat template", Path::new("chat_template.jinja"));
        let _mark = work.begin();
        let explanation = work.0.charge(Duration::from_secs(11), 0).unwrap();
        assert_eq!(explanation.what, "the chat template takes more than 10 s for its first text");
    }

    #[test]
    fn work_that_takes_more_than_its_bytes_explain_is_reported_with_its_file() {
        let work = Work::on_texts("the chat template", Path::new("model/chat_template.jinja"));
        let seconds = Duration::from_secs;
        let held = 1 << 30;
        assert_eq!(work.0.charge(seconds(60), held), None, "none is under way");
        work.add_bytes(20_000);
        let copy = work.clone();
        let mark = copy.begin();
        assert_eq!(work.0.charge(seconds(12), held), None);
        assert_eq!(work.0.charge(Duration::ZERO, held + (2 << 30)), None);
        let explanation = work.0.charge(Duration::ZERO, held + (3 << 30)).unwrap();
        assert_eq!(explanation.what, "the chat template takes more than 2.0 GiB of memory for 20000 bytes");
        let explanation = work.0.charge(seconds(1), held).unwrap();
        assert_eq!(explanation.what, "the chat template takes more than 12 s for 20000 bytes");
        assert_eq!(explanation.location.unwrap(), "model/chat_template.jinja");
        drop(mark);
        assert_eq!(work.0.charge(seconds(60), held), None, "it has ended");
    }
}
