//! The settings of a run on the model and data that come with the program.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tunebox_package::{Reference, builtin, read_manifest};

use super::{Document, RunSettings};
use crate::error::Error;
use crate::sample::Sample;

impl RunSettings {
    /// The embedded default: the run file and data made for the method, on the embedded model;
    /// `overrides` on top. A method of another name gets those of the first built-in one that learns from
    /// the same shape of records, whoever has it. Unpacks the files into the folder for runs.
    ///
    /// # Errors
    /// As [`RunSettings::load`]; and when this build holds no sample, or it cannot be unpacked.
    pub fn sample(overrides: &[String]) -> Result<Self, Error> {
        let sample = Sample::embedded().ok_or(Error::NoSample)?;
        let parse = |text: &str| Document::parse("the sample's run file", text);
        let mut plain = parse(sample.run_file())?;
        for assignment in overrides {
            plain.set(assignment)?;
        }
        let method = plain.tree.get("method").and_then(|table| table.get("use")).and_then(Value::as_str);
        let document = match method.and_then(|method| sample.run_file_of(method)) {
            Some(text) => parse(text)?,
            None => {
                let mut document = parse(method.and_then(|method| alike(sample, method)).unwrap_or(sample.run_file()))?;
                // The settings in it are those of another method.
                if let Some(Value::Object(table)) = document.tree.get_mut("method") {
                    table.retain(|key, _| key == "use");
                }
                document
            }
        };
        let mut settings = Self::from_document(document, PathBuf::new(), overrides)?;
        settings.folder = sample.unpack(Path::new(&settings.file.run.folder))?;
        Ok(settings)
    }
}

/// The run file of the first built-in method that learns from the same shape of records. Nothing beside the method is
/// looked at: its author and whoever got it as a package train on the same.
fn alike(sample: Sample, method: &str) -> Option<&'static str> {
    let shape = Reference::parse(method, Path::new(".")).and_then(|found| found.open()).ok()?.manifest.shape;
    builtin::list().iter().find_map(|other| {
        let text = sample.run_file_of(other.name)?;
        (read_manifest(other.bytes).ok()?.shape == shape).then_some(text)
    })
}
