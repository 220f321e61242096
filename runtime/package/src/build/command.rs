//! Cargo, as everything here calls it.

use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::toolchain::{Toolchain, command};

/// What tells cargo to use no network, whatever it is asked to do.
const OFFLINE: &str = "CARGO_NET_OFFLINE";

/// The toolchain's cargo in a folder: with its own compiler, first on the path too, and without what an outer cargo
/// left in the environment. Errors: no such folder.
pub fn cargo_in(folder: &Path, toolchain: &Toolchain, offline: bool) -> Result<Command, Error> {
    let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
    let mut cargo = command(&toolchain.cargo);
    let own = toolchain.cargo.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Ok(path) = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path))) {
        cargo.env("PATH", path);
    }
    cargo.env("RUSTC", &toolchain.rustc).current_dir(folder);
    if offline {
        cargo.env(OFFLINE, "true");
    }
    Ok(cargo)
}
