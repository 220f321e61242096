//! What a run lets a method import, and what this host keeps of the contract.
//!
//! The lists are the only place that knows interface names; `admission` compares them with the
//! imports of a component before anything runs.

use std::collections::BTreeSet;
use std::fmt;

/// The package whose interfaces a method may import.
pub(crate) const PACKAGE: &str = "tunebox:method";

/// The version of the contract that this host keeps, and with it all that came before in its track.
pub const CONTRACT: Version = Version { major: 0, minor: 1, patch: 0 };

/// What a method must export.
pub(crate) const TRAINING: &str = "training";

/// Every interface of the contract, from harmless to powerful.
pub(crate) const KNOWN: [&str; 12] =
    ["types", "run", "tensor", "data", "model", "learn", "sample", "reward", "hidden", "patch", "weights", "text"];

/// Granted only by name: they show or change the model itself, or turn tokens into text.
const BY_NAME: [&str; 2] = ["weights", "text"];

/// The interfaces that a run grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Interface names without package and version, such as `tensor`.
    pub interfaces: BTreeSet<String>,
}

impl Default for Grants {
    /// Everything but `weights` and `text`.
    fn default() -> Self {
        let interfaces = KNOWN.iter().filter(|name| !BY_NAME.contains(name)).map(ToString::to_string).collect();
        Self { interfaces }
    }
}

impl Grants {
    /// Returns the grants with one more interface, named without package and version.
    #[must_use]
    pub fn with(mut self, interface: &str) -> Self {
        self.interfaces.insert(interface.to_owned());
        self
    }
}

/// A version of the contract, as its names end in: three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes with what is no contract yet.
    pub major: u64,
    /// Changes with what breaks; with `major` it names the track.
    pub minor: u64,
    /// Changes with what is added.
    pub patch: u64,
}

impl Version {
    /// Parses exactly three decimal numbers joined by points, without leading zeros; `None` for any other text.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain && (text == "0" || !text.starts_with('0')) { text.parse().ok() } else { None }
        };
        let mut parts = text.split('.').map(number);
        let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }

    /// Whether both versions have the same major and minor number. A method built for one runs on every later one of
    /// its track.
    pub(crate) fn is_of_track(self, other: Self) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Splits `tunebox:method/INTERFACE@A.B.C` into interface and version; `None` for any other name.
pub(crate) fn named(name: &str) -> Option<(&str, Version)> {
    let (package, rest) = name.split_once('/')?;
    let (interface, version) = rest.split_once('@')?;
    let version = Version::parse(version)?;
    (package == PACKAGE).then_some((interface, version))
}

/// Returns the interface of a full name, `tensor` for `tunebox:method/tensor@0.1.0`. `None` for a name outside the
/// contract or of another track than this host's.
#[must_use]
pub fn interface_of(name: &str) -> Option<&str> {
    named(name).filter(|(_, version)| version.is_of_track(CONTRACT)).map(|(interface, _)| interface)
}
