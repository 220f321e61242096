//! A method in a process of its own: beside its component, step for step and bit for bit, and as a test of its author
//! drives it.
//!
//! `side` is one method at work on a train state of its own, `comparison` two of them over the same records, `wanted` what a
//! test asks for and the run that it means, `bench` does it. Both stand on the loop's own parts; what is learned is thrown
//! away.

mod bench;
mod comparison;
mod fault;
mod side;
mod wanted;

use std::path::Path;

use tunebox_sandbox::{Grants, interface_of};

pub use bench::drive;
pub use comparison::{Comparison, Difference, compare};
pub use fault::TwinError;

use crate::configuration::RunSettings;
use crate::error::Error;

/// Updates of a method that learns, where nothing else is said: enough to tell, and soon over.
const STEPS: u32 = 5;

/// The embedded model and data for a component, over so many updates; `set` on top. Where nothing is said they are a few,
/// or one pass over the data where the method does not learn: one that edits needs them all. What the component
/// imports is granted: it is its author who asks. Everything is below `place`.
///
/// # Errors
/// As [`RunSettings::sample`].
pub fn sample(
    method: &Path,
    imports: &[String],
    steps: Option<u32>,
    place: &Path,
    set: &[String],
) -> Result<RunSettings, Error> {
    let quoted = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned()).to_string();
    let usual = Grants::default().interfaces;
    let interface = |import: &String| interface_of(import).map(str::to_owned);
    let interfaces: Vec<String> = imports.iter().filter_map(interface).collect();
    let steps = steps.or_else(|| interfaces.iter().any(|name| name == "learn").then_some(STEPS));
    let grants: Vec<String> = interfaces.into_iter().filter(|name| !usual.contains(name)).collect();
    let mut overrides = vec![
        format!("method.use={}", quoted(&std::path::absolute(method).unwrap_or_else(|_| method.to_owned()))),
        format!("run.folder={}", quoted(place)),
        "run.name=twin".into(),
    ];
    overrides.extend(steps.map(|steps| format!("train.steps={steps}")));
    if !grants.is_empty() {
        overrides.push(format!("method.grants={}", toml::Value::from(grants)));
    }
    overrides.extend(set.iter().cloned());
    RunSettings::sample(&overrides)
}
