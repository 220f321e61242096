//! Runs a method in its own process (the native twin), for the method's author: compared with its component step by
//! step, or driven by a unit test.
//!
//! `runner` executes one method as a run would, `comparison` two of them on the same records. `unit_test` executes what
//! a unit test asks for. The trained weights are discarded.

mod comparison;
mod runner;
mod unit_test;

use std::path::Path;

use tunebox_sandbox::{Grants, interface_of};

pub use comparison::{Comparison, Difference, compare};
pub use unit_test::serve_test;

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::trains;

/// Default number of updates of a comparison, for a method that trains.
const STEPS: u32 = 5;

/// Builds the settings for a comparison on the embedded model and data, of the method at the path `method`; `set` holds
/// further `--set` arguments, which take precedence. `steps` defaults to 5 for a method that trains ([`trains`]), and
/// else to one epoch. Grants every interface in `imports`, the imports of the method's component, beyond the default
/// ones. Puts all files below `folder`, and unpacks the sample there.
///
/// # Errors
/// A `--set` or setting that [`RunSettings::sample`] rejects, and a folder that cannot be written.
pub fn sample(
    method: &Path,
    imports: &[String],
    steps: Option<u32>,
    folder: &Path,
    set: &[String],
) -> Result<RunSettings, Error> {
    let quoted = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned()).to_string();
    let granted = Grants::default().interfaces;
    let interface = |import: &String| interface_of(import).map(str::to_owned);
    let interfaces: Vec<String> = imports.iter().filter_map(interface).collect();
    let steps = steps.or_else(|| imports.iter().any(|import| trains(import)).then_some(STEPS));
    let grants: Vec<String> = interfaces.into_iter().filter(|name| !granted.contains(name)).collect();
    let mut overrides = vec![
        format!("method.use={}", quoted(&std::path::absolute(method).unwrap_or_else(|_| method.to_owned()))),
        format!("run.folder={}", quoted(folder)),
        "run.name=twin".into(),
    ];
    overrides.extend(steps.map(|steps| format!("train.steps={steps}")));
    if !grants.is_empty() {
        overrides.push(format!("method.grants={}", toml::Value::from(grants)));
    }
    overrides.extend(set.iter().cloned());
    RunSettings::sample(&overrides)
}
