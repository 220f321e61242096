//! What every function of the contract costs, by its row of `runtime/contract/functions.txt`. The formulas of the
//! tensor operations are in `compute`, by kind; rows and formulas share one version, [`COSTS`].
//!
//! Costs are counted in units of work: about one number read or written. They are known before the work is done.
//! They depend on sizes alone, never on a clock or a machine. Passes through the model are charged as passes and as
//! multiply-adds besides.

pub use tunebox_compute::ops::COSTS;
use tunebox_compute::ops::Kind;

/// The work charged for every call of the host, in addition to what the function's row says.
pub(crate) const CALL_WORK: u64 = 16;

/// How a function is charged beside [`CALL_WORK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing beside the call.
    Call,
    /// By the formula of a kind of tensor operation.
    Operation(Kind),
    /// This much work for each unit; the text names the unit.
    Units(u64, &'static str),
}

/// Every function with its cost, in alphabetical order.
pub const TABLE: &[(&str, Cost)] = include!(concat!(env!("OUT_DIR"), "/costs.rs"));

/// Returns the work charged for one unit of a host function, such as one token; 1 if its row in the table names no unit
/// or there is no such function.
pub(crate) fn unit_work(function: &str) -> u64 {
    match cost_of(function) {
        Some(Cost::Units(work, _)) => work,
        Some(Cost::Call | Cost::Operation(_)) | None => 1,
    }
}

/// Returns the cost of a function by its name in the table, as in `tensor.tensor.exp`; `None` if the contract has no
/// such function.
#[must_use]
pub fn cost_of(function: &str) -> Option<Cost> {
    let index = TABLE.binary_search_by(|(name, _)| (*name).cmp(function)).ok()?;
    TABLE.get(index).map(|(_, cost)| *cost)
}

#[cfg(test)]
mod tests;
