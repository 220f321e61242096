//! Writes the Rust code that the sandbox includes: the host's tensor functions, the costs, and what a native twin may ask.

mod native;
mod tensor;

use std::fmt::Write as _;

pub use native::requests;
pub use tensor::operations;

use crate::{Contract, Cost};

/// The rows of the cost table as the source of a slice, in alphabetical order.
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
