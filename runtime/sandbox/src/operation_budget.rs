//! The budget of one tensor operation: the session's bytes and the call's count of work.
//!
//! Operations of `compute` state their cost before they do anything; it is charged here, or refused.

use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::error::Error;
use tunebox_compute::ops::{Admit, Cost};

use crate::meters::Meters;

/// The two accounts of a session, borrowed for one operation.
#[derive(Debug)]
pub(crate) struct OperationBudget<'a> {
    /// Bytes.
    pub(crate) ledger: &'a Budget,
    /// Work.
    pub(crate) meters: &'a mut Meters,
}

impl Admit for OperationBudget<'_> {
    fn admit(&mut self, cost: Cost) -> Result<Reservation, Error> {
        let limit = self.meters.max_work();
        self.meters.charge(cost.work).map_err(|_| Error::OutOfWork { work: cost.work, limit })?;
        self.ledger.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}
