//! Writes what the sandbox includes from the contract: the tensor functions, the cost table, and the requests of a
//! native twin. How is in `tunebox-contract`; no function is named here.

use std::path::PathBuf;
use std::{env, fs};

use tunebox_contract::{Contract, Outcome, write};

fn main() -> Outcome<()> {
    let wit = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("no folder")?).join("../../wit");
    println!("cargo::rerun-if-changed={}", wit.display());
    let contract = Contract::read(&wit)?;
    let output = PathBuf::from(env::var_os("OUT_DIR").ok_or("no folder to write to")?);
    fs::write(output.join("operations.rs"), write::operations(&contract))?;
    fs::write(output.join("costs.rs"), write::costs(&contract))?;
    fs::write(output.join("requests.rs"), write::requests(&contract)?)?;
    Ok(())
}
