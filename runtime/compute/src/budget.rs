//! The byte budget: every large allocation is reserved before it is made and given back when it is dropped.
//!
//! One [`Budget`] a run. It counts logical bytes (elements × size); slack for fragmentation and library
//! workspaces is the business of whoever sets the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Counts the bytes that are held against a limit. Clones share the count.
#[derive(Debug, Clone)]
pub struct Budget {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    limit: u64,
    held: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// An empty ledger that lets at most `limit` bytes be held at once.
    pub fn new(limit: u64) -> Self {
        Self { account: Arc::new(Account { limit, held: AtomicU64::new(0), peak: AtomicU64::new(0) }) }
    }

    /// Takes `bytes` of the budget until the reservation is dropped.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if they do not fit; then nothing is taken.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let Account { limit, held, peak } = &*self.account;
        let take = |now: u64| now.checked_add(bytes).filter(|after| after <= limit);
        match held.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(before) => {
                peak.fetch_max(before + bytes, Ordering::AcqRel);
                Ok(Reservation { account: Arc::clone(&self.account), bytes })
            }
            Err(held) => Err(Error::OutOfMemory { wanted: bytes, held, limit: *limit }),
        }
    }

    /// The bytes that are held now.
    pub fn held(&self) -> u64 {
        self.account.held.load(Ordering::Acquire)
    }

    /// The most bytes that were ever held at once.
    pub fn peak(&self) -> u64 {
        self.account.peak.load(Ordering::Acquire)
    }

    /// The most bytes that may be held at once.
    pub fn limit(&self) -> u64 {
        self.account.limit
    }
}

/// Bytes taken from a [`Budget`]; dropping it gives them back.
#[derive(Debug)]
pub struct Reservation {
    account: Arc<Account>,
    bytes: u64,
}

impl Reservation {
    /// The bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but `bytes`; a reservation never grows.
    #[must_use]
    pub fn shrunk_to(mut self, bytes: u64) -> Self {
        let spare = self.bytes.saturating_sub(bytes);
        self.account.held.fetch_sub(spare, Ordering::AcqRel);
        self.bytes -= spare;
        self
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_is_taken() {
        let ledger = Budget::new(100);
        let held = ledger.reserve(60).unwrap();
        assert!(matches!(ledger.reserve(41), Err(Error::OutOfMemory { wanted: 41, held: 60, limit: 100 })));
        assert!(ledger.reserve(u64::MAX).is_err());
        assert_eq!(ledger.held(), 60);
        drop(held);
        assert_eq!((ledger.held(), ledger.peak()), (0, 60));
    }

    #[test]
    fn what_a_shrunk_reservation_gives_back_is_given_back_once() {
        let ledger = Budget::new(100);
        let kept = ledger.reserve(80).unwrap().shrunk_to(30).shrunk_to(50);
        assert_eq!((kept.bytes(), ledger.held()), (30, 30));
        drop(kept);
        assert_eq!(ledger.held(), 0);
    }

    #[test]
    fn many_threads_never_pass_the_limit() {
        let ledger = Budget::new(10);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| drop(ledger.reserve(3))));
            }
        });
        assert_eq!(ledger.held(), 0);
        assert!(ledger.peak() <= 10);
    }
}
