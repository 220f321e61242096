//! Writes the Rust code that the sandbox includes: the host's tensor functions, the costs, and what a native twin may
//! ask; and the contract as data for the Python SDK.

mod native;
mod python;
mod tensor;

use std::fmt::Write as _;

pub use native::requests;
pub use python::python;
pub use tensor::operations;

use crate::{Contract, Cost};

/// Generates the source of a Rust slice of (path, cost) with every row of the table, in alphabetical order.
pub fn costs(contract: &Contract) -> String {
    let mut source = String::from("&[\n");
    for row in contract.rows() {
        // Writing to a `String` cannot fail.
        let _ = match &row.cost {
            Cost::Call => writeln!(source, "    ({:?}, Cost::Call),", row.path),
            Cost::Units(work, unit) => writeln!(source, "    ({:?}, Cost::Units({work}, {unit:?})),", row.path),
            Cost::Operation(class) => writeln!(source, "    ({:?}, Cost::Operation(Kind::{class})),", row.path),
        };
    }
    source + "]\n"
}
