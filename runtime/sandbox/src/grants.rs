//! The interfaces of the contract that a run lets a method import.
//!
//! The lists are the only place that knows interface names; `admission` compares them with the
//! imports of a component before anything runs.

use std::collections::BTreeSet;

use semver::Version;
use tunebox_foundation::contract::{PACKAGE, is_of_track};

/// The interface that a method must export.
pub(crate) const TRAINING: &str = "training";

/// Every interface of the contract, from harmless to powerful.
pub(crate) const KNOWN_INTERFACES: [&str; 14] = [
    "types",
    "run",
    "tensor",
    "data",
    "model",
    "teacher",
    "learn",
    "optimizer",
    "sample",
    "reward",
    "hidden",
    "patch",
    "weights",
    "text",
];

/// Interfaces that a run grants only by name: they show or change the model itself, or turn tokens into text.
const GRANTED_BY_NAME: [&str; 2] = ["weights", "text"];

/// The interfaces that a run grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Interface names without package and version, such as `tensor`.
    pub interfaces: BTreeSet<String>,
}

impl Default for Grants {
    /// Grants every interface of the contract but `weights` and `text`.
    fn default() -> Self {
        let interfaces =
            KNOWN_INTERFACES.iter().filter(|name| !GRANTED_BY_NAME.contains(name)).map(ToString::to_string).collect();
        Self { interfaces }
    }
}

impl Grants {
    /// Returns the grants with one more interface, named without package and version. Does not check that it exists.
    #[must_use]
    pub fn with(mut self, interface: &str) -> Self {
        self.interfaces.insert(interface.to_owned());
        self
    }
}

/// Splits `tunebox:method/INTERFACE@A.B.C` into interface and version. `None` for another package, and for a version
/// that is missing or has a pre-release or build part. Does not check that the interface exists.
pub(crate) fn split_full_name(name: &str) -> Option<(&str, Version)> {
    let (package, rest) = name.split_once('/')?;
    let (interface, version) = rest.split_once('@')?;
    let version = Version::parse(version).ok()?;
    (package == PACKAGE && version.pre.is_empty() && version.build.is_empty()).then_some((interface, version))
}

/// Returns the interface of a full name, `tensor` for `tunebox:method/tensor@0.2.0`. `None` for a name outside the
/// contract's package or of another track (major and minor version) than this host's. The interface need not exist.
#[must_use]
pub fn interface_of(name: &str) -> Option<&str> {
    split_full_name(name).filter(|(_, version)| is_of_track(version)).map(|(interface, _)| interface)
}
