//! What pays for the work of an operation: the run's ledger of bytes and the call's count of work.
//!
//! Operations of `compute` tell their cost before they do anything; this takes it or refuses.

use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::error::Error;
use tunebox_compute::ops::{Admit, Cost};

use crate::meters::Meters;

/// The two accounts of a session, borrowed for one operation.
#[derive(Debug)]
pub(crate) struct Purse<'a> {
    /// Bytes.
    pub(crate) ledger: &'a Budget,
    /// Work.
    pub(crate) meters: &'a mut Meters,
}

impl Admit for Purse<'_> {
    fn admit(&mut self, cost: Cost) -> Result<Reservation, Error> {
        let limit = self.meters.max_work();
        self.meters.charge(cost.work).map_err(|_| Error::OutOfWork { work: cost.work, limit })?;
        self.ledger.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}
