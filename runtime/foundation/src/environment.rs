//! Environment variables that this program reads itself. A worker process starts without them: its parent sends it
//! those that it needs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Names of the variables that a parent process sends to its child: paths only, no address, account or token.
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

/// The variables that the parent process sent, by name; unset if [`override_variables`] was not called.
static RECEIVED: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Returns the value of an environment variable: the one that the parent process sent if [`override_variables`] was
/// called, else that of this process. `None` if it is not set.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    match RECEIVED.get() {
        Some(received) => received.get(name).map(OsString::from),
        None => std::env::var_os(name),
    }
}

/// Returns the home folder of the user: `HOME` as the parent process sent it if [`override_variables`] was called, else
/// what [`std::env::home_dir`] returns in this process. `None` if it is not known.
#[must_use]
pub fn home_folder() -> Option<PathBuf> {
    if RECEIVED.get().is_some() { variable("HOME").map(PathBuf::from) } else { std::env::home_dir() }
}

/// Returns the environment variables to send to a child process: the variables in `SENT` that are set in this process
/// and are UTF-8, such as `TUNEBOX_HOME` and `CUDA_HOME`, and `HOME` with the result of [`home_folder`].
#[must_use]
pub fn child_variables() -> BTreeMap<String, String> {
    let home = home_folder().and_then(|home| home.into_os_string().into_string().ok());
    let value = |name: &str| if name == "HOME" { home.clone() } else { variable(name)?.into_string().ok() };
    SENT.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect()
}

/// Makes [`variable`] and [`home_folder`] return `received` (values by name) instead of this process's own environment.
/// A variable that `received` lacks then counts as not set. Only the first call has an effect.
pub fn override_variables(received: BTreeMap<String, String>) {
    // The first ones count: nothing may change them while others read.
    let _ = RECEIVED.set(received);
}
