//! The settings of a run on the model and data that are embedded in the program.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tunebox_package::{Reference, builtin, read_manifest};

use super::{Document, RunSettings};
use crate::error::Error;
use crate::sample;

impl RunSettings {
    /// Builds the settings of a run on the embedded sample, with the `--set` arguments `overrides` on top, and unpacks the
    /// sample into the folder for runs. Uses the sample's run file of the method. A method without one gets that of the
    /// first built-in method with the same shape of records, or [`sample::RUN_FILE`], in both cases without settings of the
    /// method.
    ///
    /// # Errors
    /// A wrong setting, and a folder that cannot be written.
    pub fn sample(overrides: &[String]) -> Result<Self, Error> {
        let parse = |text: &str| Document::parse("the sample's run file", text);
        let mut plain = parse(sample::RUN_FILE)?;
        for assignment in overrides {
            plain.set(assignment)?;
        }
        let method = plain.tree["method"]["use"].as_str();
        let document = match method.and_then(sample::run_file_of) {
            Some(text) => parse(text)?,
            None => {
                let mut document = parse(method.and_then(run_file_of_shape).unwrap_or(sample::RUN_FILE))?;
                // The settings in that run file belong to the built-in method.
                if let Some(Value::Object(table)) = document.tree.get_mut("method") {
                    table.retain(|key, _| key == "use");
                }
                document
            }
        };
        let mut settings = Self::from_document(document, PathBuf::new(), overrides)?;
        settings.folder = sample::unpack(Path::new(&settings.file.run.folder))?;
        Ok(settings)
    }
}

/// The sample's run file of the first built-in method that learns from the same shape of records as `method`. `None` if
/// `method` cannot be opened or no such file exists. Ignores the files beside the method, so that its author and a user
/// of its package train on the same data.
fn run_file_of_shape(method: &str) -> Option<&'static str> {
    let shape = Reference::parse(method, Path::new(".")).and_then(|found| found.open()).ok()?.manifest.shape;
    builtin::list().iter().find_map(|other| {
        let text = sample::run_file_of(other.name)?;
        (read_manifest(other.bytes).ok()?.shape == shape).then_some(text)
    })
}
