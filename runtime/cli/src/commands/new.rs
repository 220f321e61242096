//! `tunebox new`: creates a method folder that builds, tests and trains.

use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tunebox_package::build::approval;
use tunebox_package::builtin;
use tunebox_package::template::{Language, SHAPES, Start, Template};
use tunebox_training::{RUNS_FOLDER, sample};

use crate::arguments::one_of;
use crate::package::describe::train_command;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Where the sample is unpacked in a method folder.
const SAMPLE_FOLDER: &str = "runs/.sample";

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
    /// Start from a small working method for records of this shape [default: supervised]
    #[arg(long, conflicts_with = "like", value_parser = PossibleValuesParser::new(SHAPES))]
    shape: Option<String>,
    /// Programming language
    #[arg(long, default_value = "rust", value_parser = one_of([("rust", Language::Rust), ("python", Language::Python)]))]
    language: Language,
    /// Write into the current folder instead of a new one
    #[arg(long)]
    here: bool,
}

impl New {
    /// Writes the template of a method with a run file for the sample, and unpacks the sample's model and data under
    /// `runs`. A verifier gets neither run file nor sample. Records the folder as approved, so that builds show no
    /// note. Fails, with nothing written, if a file of the template exists, or for a name that no method can have.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let shape = self.shape.as_deref().unwrap_or(SHAPES[0]);
        let start = self.like.as_deref().map_or(Start::Shape(shape), Start::Like);
        let mut template = Template::new(&self.name, self.language, start)?;
        if !self.is_verifier() {
            let sample_run_file = match start {
                Start::Like(method) => sample::run_file_of(method),
                Start::Shape(shape) => sample::run_file_of_shape(shape),
            };
            let limits = if self.language == Language::Python { PYTHON_LIMITS } else { "" };
            let text = rewrite_run_file(&self.name, sample_run_file.unwrap_or(sample::RUN_FILE), start);
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

    /// Shows the created files and suggests the commands that build, test and train (not for a verifier).
    /// Emits a `created` event.
    fn show_created(&self, terminal: Terminal, template: &Template, folder: &Path) {
        let name = &self.name;
        let files: Vec<&str> = template.own_files().collect();
        let place = if self.here { "here".to_owned() } else { format!("{name}/") };
        let kind = if self.is_verifier() { ", a verifier" } else { "" };
        terminal.status("Created", format!("{place}{kind}  ({})", files.join(", ")));
        let enter = if self.here { String::new() } else { format!("cd {name}; ") };
        let train = match self.language {
            // The limits for Python are in the run file.
            Language::Python => "; tunebox test; tunebox train run.toml".to_owned(),
            Language::Rust if self.is_verifier() => "; tunebox test".to_owned(),
            Language::Rust => format!("; tunebox test; {}", train_command(".", 0, &self.imports())),
        };
        terminal.suggest(format!("{enter}tunebox build{train}"));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        terminal.event(json!({ "event": "created", "name": name, "folder": absolute, "files": files }));
    }

    /// The imports of the built-in method of `--like`; empty without it.
    fn imports(&self) -> Vec<String> {
        let built_in = self.like.as_deref().and_then(builtin::find);
        built_in.and_then(|method| tunebox_sandbox::imports(method.bytes).ok()).unwrap_or_default()
    }

    /// Whether `--like` names a verifier.
    fn is_verifier(&self) -> bool {
        self.like.as_deref().is_some_and(|like| builtin::find_verifier(like).is_some())
    }
}

/// Rewrites the run file `sample` for the method `name`: replaces its leading comments, sets the method to `.`, and
/// lets model, data and validation name the unpacked files. Leaves out the settings and grants of the sample's method unless
/// the new one starts with its source.
fn rewrite_run_file(name: &str, sample: &str, start: Start<'_>) -> String {
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
            Some((key @ ("path" | "validation"), file)) => text += &format!("{key} = \"{SAMPLE_FOLDER}/{file}"),
            Some(("use", _)) if table == "[method]" => text += "use = \".\"",
            _ if table == "[method]" && line.contains(" = ") && matches!(start, Start::Shape(_)) => continue,
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
            let text = rewrite_run_file("calm", file, Start::Like("lora")) + PYTHON_LIMITS;
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

    #[test]
    fn the_run_file_of_a_shape_has_data_of_the_shape_and_no_settings_of_the_built_in_method() {
        for (shape, data) in [("supervised", "lora"), ("preference", "cpo"), ("prompts", "grpo"), ("contrast", "steer")]
        {
            let sample = sample::run_file_of_shape(shape).unwrap_or(sample::RUN_FILE);
            let text = rewrite_run_file("calm", sample, Start::Shape(shape));
            let settings = RunSettings::from_text("run.toml", &text, ".".into(), &[]).unwrap();
            assert_eq!(settings.file.data.path, format!("{SAMPLE_FOLDER}/{data}.jsonl"));
            assert!(settings.file.method.settings.is_empty() && settings.file.method.grants.is_empty(), "{text}");
        }
    }
}
