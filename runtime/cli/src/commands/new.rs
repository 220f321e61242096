//! `tunebox new`: creates a method folder that builds, tests and trains.

use std::path::Path;

use clap::Args;
use serde_json::json;
use tunebox_package::build::approval;
use tunebox_package::builtin;
use tunebox_package::template::{Language, Template};
use tunebox_training::{RUNS_FOLDER, sample};

use crate::arguments::one_of;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Where the sample is unpacked in a method folder.
const SAMPLE: &str = "runs/.sample";

/// The end of the run file of a method in Python.
const PYTHON_LIMITS: &str = "\n# A component in Python contains an interpreter, so it needs larger limits than the \
    defaults.\n[limits]\ncomponent-bytes = 33554432\ncompile-seconds = 120.0\n";

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the method and its folder: lower-case words joined by hyphens
    name: String,
    /// Start from the source of this built-in method or verifier [default: a small working method]
    #[arg(long, value_name = "METHOD")]
    like: Option<String>,
    /// Programming language
    #[arg(long, default_value = "rust", value_parser = one_of([("rust", Language::Rust), ("python", Language::Python)]))]
    language: Language,
    /// Write into the current folder instead of a new one
    #[arg(long)]
    here: bool,
}

impl New {
    /// Writes the template of a method with a run file for the sample, and unpacks the sample's model and data under
    /// `runs`. A verifier gets neither. Records the folder as approved, so that builds show no note.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let mut template = Template::new(&self.name, self.language, self.like.as_deref())?;
        if !self.is_verifier() {
            let sample_run_file = self.like.as_deref().and_then(sample::run_file_of);
            let limits = if self.language == Language::Python { PYTHON_LIMITS } else { "" };
            let text = run_file(&self.name, sample_run_file.unwrap_or(sample::RUN_FILE));
            template.add("run.toml", format!("{text}{limits}"));
        }
        let present = Path::new(".");
        let unpack = |folder: &Path| -> Result<(), Failure> {
            if !self.is_verifier() {
                sample::unpack(&folder.join(RUNS_FOLDER))?;
            }
            Ok(())
        };
        let folder = if self.here {
            template.write_here(present, unpack)?;
            present.to_owned()
        } else {
            template.write(present, unpack)?
        };
        // The user's own folder needs no note that building runs its code. If it cannot be remembered, the note appears.
        let _ = approval::record(&folder);
        self.show_created(terminal, &template, &folder);
        Ok(ExitStatus::Success)
    }

    /// Shows the created files and suggests the commands that build, test (only in Rust) and train (not for a verifier).
    /// Emits a `created` event.
    fn show_created(&self, terminal: Terminal, template: &Template, folder: &Path) {
        let name = &self.name;
        let files: Vec<&str> = template.own_files().collect();
        let place = if self.here { "here".to_owned() } else { format!("{name}/") };
        let kind = if self.is_verifier() { ", a verifier" } else { "" };
        terminal.status("Created", format!("{place}{kind}  ({})", files.join(", ")));
        let enter = if self.here { String::new() } else { format!("cd {name}; ") };
        let train = match self.language {
            // Only methods in Rust have a native twin to test; the limits for Python are in the run file.
            Language::Python => "; tunebox train run.toml",
            Language::Rust if self.is_verifier() => "; tunebox test",
            Language::Rust => "; tunebox test; tunebox train --sample --method .",
        };
        terminal.suggest(format!("{enter}tunebox build{train}"));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        terminal.event(json!({ "event": "created", "name": name, "folder": absolute, "files": files }));
    }

    /// Whether `--like` names a verifier.
    fn is_verifier(&self) -> bool {
        self.like.as_deref().is_some_and(|like| builtin::find_verifier(like).is_some())
    }
}

/// Rewrites the run file `sample` for the method `name`: replaces its leading comments, sets the method to `.`, and
/// lets model, data and validation name the unpacked files.
fn run_file(name: &str, sample: &str) -> String {
    let mut text = format!(
        "# `{name}` on the bundled tiny model and data; replace them by your own.\n\
         # `tunebox train --sample` restores those files if they are missing.\n"
    );
    let mut table = "";
    for line in sample.lines().skip_while(|line| line.starts_with('#')) {
        if line.starts_with('[') {
            table = line;
        }
        match line.split_once(" = \"") {
            Some((key @ ("path" | "validation"), file)) => text += &format!("{key} = \"{SAMPLE}/{file}"),
            Some(("use", _)) if table == "[method]" => text += "use = \".\"",
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use tunebox_training::RunSettings;

    use super::*;

    #[test]
    fn the_run_file_of_every_sample_names_the_unpacked_files() {
        let folder = tempfile::tempdir().unwrap();
        sample::unpack(&folder.path().join(RUNS_FOLDER)).unwrap();
        let files = builtin::list().iter().filter_map(|method| sample::run_file_of(method.name));
        for file in files.chain([sample::RUN_FILE]) {
            let text = run_file("calm", file) + PYTHON_LIMITS;
            let settings = RunSettings::from_text("run.toml", &text, folder.path().to_owned(), &[]).unwrap();
            let (model, data) = (&settings.file.model.path, &settings.file.data);
            assert!(settings.path("model.path", model).join("config.json").is_file(), "{text}");
            assert!(settings.path("data.path", &data.path).is_file(), "{text}");
            let validation = data.validation.as_ref().map(|path| settings.path("data.validation", path));
            assert!(validation.is_none_or(|path| path.is_file()), "{text}");
            assert_eq!((settings.file.method.r#use.as_str(), settings.file.run.name), (".", None));
            assert_eq!(settings.file.limits.component_bytes, 32 << 20);
        }
    }
}
