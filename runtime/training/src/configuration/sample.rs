//! The settings of a run on the model and data that are embedded in the program.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tunebox_foundation::files;
use tunebox_package::Reference;
use tunebox_sandbox::Limits;

use super::{Document, RunSettings, check, problems};
use crate::error::Error;
use crate::sample;

impl RunSettings {
    /// Builds the settings of a run on the embedded sample, with the `--set` arguments `overrides` on top, and unpacks
    /// the sample into the folder for runs. Uses the sample's run file of the method. A method without one gets that of
    /// the first built-in method with the same shape of records, or [`sample::RUN_FILE`], in both cases without
    /// settings of the method. A method's folder with a `run.toml` that has `[limits]` is run with those, which count
    /// as requests of that file.
    ///
    /// # Errors
    /// A setting that the schema of run files rejects, a `--set` that is not of the form `table.key=value`, wrong
    /// limits in the `run.toml` of a method's folder, and a folder that cannot be written.
    pub fn sample(overrides: &[String]) -> Result<Self, Error> {
        let parse = |text: &str| Document::parse("the sample's run file", text);
        let mut plain = parse(sample::RUN_FILE)?;
        for assignment in overrides {
            plain.set(assignment)?;
        }
        let method = plain.tree["method"]["use"].as_str();
        let mut document = match method.and_then(sample::run_file_of) {
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
        let own = method.map(read_limits).transpose()?.flatten();
        if let (Some((_, limits)), Value::Object(tables)) = (&own, &mut document.tree) {
            tables.insert("limits".to_owned(), limits.clone());
        }
        let mut settings = Self::from_document(document, PathBuf::new(), overrides)?;
        settings.folder = sample::unpack(Path::new(&settings.file.run.folder))?;
        settings.file_path = own.map(|(path, _)| path);
        Ok(settings)
    }

    /// The limits for a method outside of a run: those in the `run.toml` of its folder if `method` is one, with the
    /// `--set` arguments `overrides` on top, else the defaults with these.
    ///
    /// # Errors
    /// Wrong limits in the folder's `run.toml`, a wrong setting.
    pub fn limits_of_method(method: &str, overrides: &[String]) -> Result<Limits, Error> {
        let mut document = Document::default();
        document.tree = minimal_tables(read_limits(method)?.map_or_else(|| json!({}), |(_, limits)| limits));
        Ok(Self::from_document(document, PathBuf::new(), overrides)?.file.limits)
    }
}

/// The tables of a run file that has these limits and otherwise only what every one must have.
fn minimal_tables(limits: Value) -> Value {
    json!({ "limits": limits, "model": { "path": "." }, "data": { "path": "." }, "method": { "use": "" } })
}

/// Reads the table `[limits]` of the `run.toml` in a method's folder, with the path of that file. `None` if `method` is
/// no folder, or its run file is missing or has no such table. Errors: a file that cannot be read or is not TOML, a
/// limit that is unknown or out of range.
fn read_limits(method: &str) -> Result<Option<(PathBuf, Value)>, Error> {
    let Ok(Reference::Folder(folder)) = Reference::parse(method, Path::new(".")) else { return Ok(None) };
    let path = folder.join("run.toml");
    if !path.is_file() {
        return Ok(None);
    }
    let mut document = Document::parse(&path.display().to_string(), &files::read_text(&path)?)?;
    let Some(limits) = document.tree.get_mut("limits").map(Value::take) else { return Ok(None) };
    // The other tables describe a run that is not this one.
    document.tree = minimal_tables(limits.clone());
    problems::join(problems::locate(check::check(&mut document), &document))?;
    Ok(Some((path, limits)))
}

/// The sample's run file of the first built-in method that learns from the same shape of records as `method`. `None` if
/// `method` cannot be opened or no such file exists. Ignores the run file beside the method, so that its author and a
/// user of its package train on the same data.
fn run_file_of_shape(method: &str) -> Option<&'static str> {
    let found = Reference::parse(method, Path::new(".")).and_then(|found| found.open());
    sample::run_file_of_shape(&found.ok()?.manifest.shape)
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    /// A method's folder whose run file has these limits, and the settings of a run with it on the sample.
    fn sample(limits: &str, overrides: &[&str]) -> Result<RunSettings, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("pyproject.toml"), "").unwrap();
        std::fs::write(folder.path().join("run.toml"), format!("[train]\nsteps = 3\n{limits}")).unwrap();
        let own = [format!("method.use={path}"), format!("run.folder={path}/runs")];
        let overrides = overrides.iter().map(|text| (*text).to_owned());
        RunSettings::sample(&own.into_iter().chain(overrides).collect::<Vec<_>>())
    }

    #[test]
    fn a_method_folder_is_run_on_the_sample_with_the_limits_of_its_run_file_alone() {
        let limits = "[limits]\ncomponent-bytes = 33554432\ncompile-seconds = 120.0\n";
        let settings = sample(limits, &["limits.compile-seconds=60"]).unwrap();
        assert_eq!((settings.file.limits.component_bytes, settings.file.limits.compile_seconds), (32 << 20, 60.0));
        assert_ne!(settings.file.train.steps, Some(3));
        let requests = settings.requests(false);
        assert!(requests.file.ends_with("run.toml"), "{requests:?}");
        assert_eq!(requests.clauses, ["raises `component-bytes` from 16.0 MiB to 32.0 MiB"]);
        let plain = sample("", &[]).unwrap();
        assert_eq!(plain.file.limits.component_bytes, Limits::default().component_bytes);
        assert!(plain.requests(false).clauses.is_empty());
    }

    #[test]
    fn a_wrong_limit_of_a_method_folder_is_an_error_in_its_run_file() {
        let error = sample("[limits]\ncomponent-byte = 1\n", &[]).unwrap_err();
        assert_eq!(error.to_string(), "unknown key `component-byte`");
        assert!(error.location().unwrap().ends_with("run.toml:4:1"), "{:?}", error.location());
    }
}
