//! The byte budget of a run: every large allocation is reserved first, and released when it is dropped.
//!
//! It counts logical bytes (elements × size). The limit has to leave room for fragmentation and library workspaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Counts reserved bytes against a limit. Clones share the count.
#[derive(Debug, Clone)]
pub struct Budget {
    counts: Arc<Counts>,
}

/// Bytes of a budget: the limit, those reserved now, and the most that were ever reserved at once.
#[derive(Debug)]
struct Counts {
    limit: u64,
    held: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// Creates a budget of `limit` bytes, of which none are reserved.
    pub fn new(limit: u64) -> Self {
        Self { counts: Arc::new(Counts { limit, held: AtomicU64::new(0), peak: AtomicU64::new(0) }) }
    }

    /// Reserves `bytes` bytes until the returned reservation is dropped.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the reserved bytes would then pass the limit; nothing is reserved in that case.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let Counts { limit, held, peak } = &*self.counts;
        let take = |now: u64| now.checked_add(bytes).filter(|after| after <= limit);
        match held.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(before) => {
                peak.fetch_max(before + bytes, Ordering::AcqRel);
                Ok(Reservation { counts: Arc::clone(&self.counts), bytes })
            }
            Err(held) => Err(Error::OutOfMemory { wanted: bytes, held, limit: *limit }),
        }
    }

    /// The bytes that are reserved now.
    pub fn held(&self) -> u64 {
        self.counts.held.load(Ordering::Acquire)
    }

    /// The most bytes that were ever reserved at once.
    pub fn peak(&self) -> u64 {
        self.counts.peak.load(Ordering::Acquire)
    }

    /// The most bytes that may be reserved at once.
    pub fn limit(&self) -> u64 {
        self.counts.limit
    }
}

/// Bytes reserved in a [`Budget`]; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    counts: Arc<Counts>,
    bytes: u64,
}

impl Reservation {
    /// The bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases all but `bytes` bytes at once and returns the smaller reservation, which releases the rest when it is
    /// dropped. Returns it as it is if it holds `bytes` bytes or fewer: a reservation never grows.
    #[must_use]
    pub fn shrunk_to(mut self, bytes: u64) -> Self {
        let spare = self.bytes.saturating_sub(bytes);
        self.counts.held.fetch_sub(spare, Ordering::AcqRel);
        self.bytes -= spare;
        self
    }
}

impl Drop for Reservation {
    /// Takes the reserved bytes off those that the budget holds; the peak stays.
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_is_taken() {
        let budget = Budget::new(100);
        let held = budget.reserve(60).unwrap();
        assert!(matches!(budget.reserve(41), Err(Error::OutOfMemory { wanted: 41, held: 60, limit: 100 })));
        assert!(budget.reserve(u64::MAX).is_err());
        assert_eq!(budget.held(), 60);
        drop(held);
        assert_eq!((budget.held(), budget.peak()), (0, 60));
    }

    #[test]
    fn what_a_shrunk_reservation_gives_back_is_given_back_once() {
        let budget = Budget::new(100);
        let kept = budget.reserve(80).unwrap().shrunk_to(30).shrunk_to(50);
        assert_eq!((kept.bytes(), budget.held()), (30, 30));
        drop(kept);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn many_threads_never_pass_the_limit() {
        let budget = Budget::new(10);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| drop(budget.reserve(3))));
            }
        });
        assert_eq!(budget.held(), 0);
        assert!(budget.peak() <= 10);
    }
}
