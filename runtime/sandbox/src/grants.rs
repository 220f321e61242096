//! What a run lets a method import, and what this host keeps of the contract.
//!
//! The lists are the only place that knows interface names; `admission` compares them with the
//! imports of a component before anything runs.

use std::collections::BTreeSet;

/// The package whose interfaces a method may import.
pub(crate) const PACKAGE: &str = "tunebox:method";

/// The compatibility track of the contract.
pub(crate) const TRACK: &str = "0.1";

/// What a method must export.
pub(crate) const TRAINING: &str = "training";

/// Every interface of the contract, from harmless to powerful.
const KNOWN: [&str; 12] =
    ["types", "run", "tensor", "data", "model", "learn", "sample", "reward", "hidden", "patch", "weights", "text"];

/// The interfaces that this host keeps; the others are refused as not offered yet.
const OFFERED: [&str; 12] = KNOWN;

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
    /// The grants with one more interface.
    #[must_use]
    pub fn with(mut self, interface: &str) -> Self {
        self.interfaces.insert(interface.to_owned());
        self
    }

    /// What this run answers to an import, given its full name.
    pub(crate) fn answer(&self, import: &str) -> Answer {
        let Some(interface) = interface_of(import) else { return Answer::Foreign };
        if !KNOWN.contains(&interface) {
            return Answer::Unknown;
        }
        if !self.interfaces.contains(interface) {
            return Answer::NotGranted;
        }
        if OFFERED.contains(&interface) { Answer::Granted } else { Answer::NotOffered }
    }
}

/// What a run answers to an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The method gets it.
    Granted,
    /// It is not of this contract, or of another version of it.
    Foreign,
    /// This version of the host knows no such interface.
    Unknown,
    /// The run must grant it by name.
    NotGranted,
    /// The contract has it and the run grants it, but this host does not keep it yet.
    NotOffered,
}

/// The interface of `tunebox:method/INTERFACE@0.1.x`, or nothing for other names.
pub(crate) fn interface_of(name: &str) -> Option<&str> {
    let (package, rest) = name.split_once('/')?;
    let (interface, version) = rest.split_once('@')?;
    let patch = version.strip_prefix(TRACK)?.strip_prefix('.')?;
    let numbered = !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
    (package == PACKAGE && numbered).then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_text_are_granted_by_name_only() {
        let grants = Grants::default();
        assert_eq!(grants.answer("tunebox:method/weights@0.1.0"), Answer::NotGranted);
        assert_eq!(grants.with("weights").answer("tunebox:method/weights@0.1.0"), Answer::Granted);
    }

    #[test]
    fn a_later_patch_of_the_contract_is_the_same_contract() {
        assert_eq!(Grants::default().answer("tunebox:method/tensor@0.1.7"), Answer::Granted);
    }

    #[test]
    fn other_tracks_and_look_alike_names_are_foreign() {
        for name in [
            "tunebox:method/tensor@0.2.0",
            "tunebox:method/tensor@0.1",
            "tunebox:method/tensor@0.1.",
            "tunebox:method/tensor@0.1.0-rc",
            "tunebox:method/tensor@0.10.0",
            "tunebox:methods/tensor@0.1.0",
            "tensor",
            "wasi:filesystem/preopens@0.2.6",
        ] {
            assert_eq!(Grants::default().answer(name), Answer::Foreign, "{name}");
        }
    }
}
