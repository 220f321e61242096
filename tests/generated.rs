//! What is written from the contract and kept in the repository: its page, the Python stubs, the tensor operations of the
//! SDK, and how the golden rows call an operation. `BLESS=1` rewrites them.

mod operations;
mod page;
mod python;

use tunebox_contract::Contract;

use crate::support::golden::root;

/// The contract of the repository.
fn contract() -> Contract {
    Contract::read(&root().join("wit")).unwrap()
}
