//! Environment variables that this program reads itself. A child process has none of them: its parent sends it those that it
//! needs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The variables that a parent sends to a child: folders, no address, account or token.
const SENT: [&str; 13] = [
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "TUNEBOX_CACHE",
    "TUNEBOX_HOME",
    "TUNEBOX_PUBLISHERS",
    "HF_HOME",
    "HF_HUB_CACHE",
    "CUDA_HOME",
    "CUDA_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
];

/// The variables of this process, if a parent sent them.
static RECEIVED: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Returns a variable: as the parent sent it, in a child that received some, else of the process. `None` if it is not
/// set.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    match RECEIVED.get() {
        Some(received) => received.get(name).map(OsString::from),
        None => std::env::var_os(name),
    }
}

/// Returns the user's home folder, in a child as the parent sent it; `None` if it is not known.
#[must_use]
pub fn home_folder() -> Option<PathBuf> {
    if RECEIVED.get().is_some() { variable("HOME").map(PathBuf::from) } else { std::env::home_dir() }
}

/// Returns the variables to send to a child, by name. Leaves out those that are not set or not UTF-8.
#[must_use]
pub fn to_send() -> BTreeMap<String, String> {
    let home = home_folder().and_then(|home| home.into_os_string().into_string().ok());
    let value = |name: &str| if name == "HOME" { home.clone() } else { variable(name)?.into_string().ok() };
    SENT.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect()
}

/// Makes `received` the variables of this process. Does nothing the second time.
pub fn receive(received: BTreeMap<String, String>) {
    // The first ones count: nothing may change them while others read.
    let _ = RECEIVED.set(received);
}
