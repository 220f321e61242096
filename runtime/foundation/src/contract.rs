//! The version of the contract (the WIT interfaces between this program and its components), and the error for a
//! component that needs another version.

use semver::Version;

use crate::explain::Explanation;

/// The WIT package of the contract, whose interfaces a method may import.
pub const PACKAGE: &str = "tunebox:method";

/// The version of the contract that this program implements. Components built for an earlier version with the same
/// major and minor number run as well.
pub const CONTRACT: Version = Version::new(0, 2, 0);

/// Whether `version` has the major and minor number of [`CONTRACT`]; its patch number may be smaller or larger. A
/// component built for one such version runs on every later one.
#[must_use]
pub fn is_of_track(version: &Version) -> bool {
    (version.major, version.minor) == (CONTRACT.major, CONTRACT.minor)
}

/// Builds the error, of the category `sandbox`, for a component that needs version `wants` of the contract, which this
/// program does not implement. `component` is its name in the message, and `location` says where `wants` is named. The
/// cause is `missing`, which says what this program lacks, if `wants` has the major and minor number of [`CONTRACT`];
/// else that other numbers mean another contract. The hint is a newer tunebox if `wants` is later than [`CONTRACT`],
/// else a new build of the component.
#[must_use]
pub fn version_mismatch(component: &str, wants: &Version, location: &str, missing: String) -> Explanation {
    let why = if is_of_track(wants) {
        missing
    } else {
        let (major, minor) = (CONTRACT.major, CONTRACT.minor);
        format!("a version that is not {major}.{minor}.x is another contract, with functions of its own")
    };
    let hint = if *wants > CONTRACT {
        format!(
            "a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for {CONTRACT}"
        )
    } else {
        "its author can build it again with the SDK of this version".to_owned()
    };
    Explanation::new("sandbox", format!("`{component}` needs `{PACKAGE}@{wants}`, this program keeps {CONTRACT}"))
        .with_location(format!("{location}, found before anything ran"))
        .with_why(why)
        .with_hint(hint)
}
