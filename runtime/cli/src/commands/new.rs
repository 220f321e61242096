//! `tunebox new`: a method folder that builds, tests and trains at once.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tunebox_package::build::approval;
use tunebox_package::builtin;
use tunebox_package::template::{self, Template};
use tunebox_training::{RUNS, Sample};

use super::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// Where a sample that was unpacked lies in a method's folder.
const SAMPLE: &str = "runs/.sample";

/// What the run file of a method in Python says more.
const LIMITS_OF_PYTHON: &str = "\n# A component in Python holds an interpreter: larger, and slower to compile, than runs \
    allow unless they say so.\n[limits]\ncomponent-bytes = 33554432\ncompile-seconds = 120.0\n";

#[derive(Debug, Args)]
pub(crate) struct New {
    /// The method's name, and its folder's: lower-case words joined by hyphens
    name: String,
    /// Begin with the source of a built-in method or verifier instead of a small method that works
    #[arg(long, value_name = "METHOD")]
    like: Option<String>,
    /// What it is written in
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    language: Language,
    /// Write into the present folder instead of a new one
    #[arg(long)]
    here: bool,
}

/// The languages that there is a template for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    Python,
}

impl From<Language> for template::Language {
    fn from(language: Language) -> Self {
        match language {
            Language::Rust => Self::Rust,
            Language::Python => Self::Python,
        }
    }
}

impl New {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        let mut template = Template::new(&self.name, self.language.into(), self.like.as_deref())?;
        let sample = if self.is_verifier() { None } else { Sample::embedded() };
        if let Some(sample) = sample {
            let of_its_kind = self.like.as_deref().and_then(|like| sample.run_file_of(like));
            let limits = if self.language == Language::Python { LIMITS_OF_PYTHON } else { "" };
            let text = run_file(&self.name, of_its_kind.unwrap_or(sample.run_file()));
            template.add("run.toml", format!("{text}{limits}"));
        }
        let present = Path::new(".");
        let unpack = |folder: &Path| sample.map_or(Ok(()), |sample| unpacked(sample, folder));
        let folder = if self.here {
            template.write_here(present, unpack)?;
            present.to_owned()
        } else {
            template.write(present, unpack)?
        };
        // What was begun here is this person's own; where it cannot be noted, the first build says what building means.
        let _ = approval::record(&folder);
        self.report(terminal, &template, &folder);
        Ok(Ending::Done)
    }

    fn report(&self, terminal: Terminal, template: &Template, folder: &Path) {
        let name = &self.name;
        let files: Vec<&str> = template.own_files().collect();
        let place = if self.here { "here".to_owned() } else { format!("{name}/") };
        let kind = if self.is_verifier() { ", a verifier" } else { "" };
        terminal.say("Created", format!("{place}{kind}  ({})", files.join(", ")));
        let enter = if self.here { String::new() } else { format!("cd {name}; ") };
        let train = match self.language {
            // A native twin is there for Rust alone, and the limits are in the run file.
            Language::Python => "; tunebox train run.toml",
            Language::Rust if self.is_verifier() => "; tunebox test",
            Language::Rust => "; tunebox test; tunebox train --sample --method .",
        };
        terminal.next(format!("{enter}tunebox build{train}"));
        if terminal.json {
            terminal.object(json!({ "event": "created", "name": name, "folder": absolute(folder), "files": files }));
        }
    }

    /// A verifier trains nothing.
    fn is_verifier(&self) -> bool {
        self.like.as_deref().is_some_and(|like| builtin::find_verifier(like).is_some())
    }
}

/// Puts the sample where the run file of a method's folder looks for it.
fn unpacked(sample: Sample, folder: &Path) -> Result<(), Failure> {
    sample.unpack(&folder.join(RUNS))?;
    Ok(())
}

fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// The run file of a sample as one in the method's folder: its method, and its data where they are unpacked.
fn run_file(name: &str, sample: &str) -> String {
    let mut text = format!(
        "# `{name}` on the tiny model and data that come with tunebox; name your own here.\n\
         # `tunebox train --sample` puts those files back where they are gone.\n"
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
    fn the_run_file_of_every_sample_leads_to_the_files_that_are_unpacked() {
        let sample = Sample::embedded().unwrap();
        let folder = tempfile::tempdir().unwrap();
        sample.unpack(&folder.path().join(RUNS)).unwrap();
        let files = builtin::list().iter().filter_map(|method| sample.run_file_of(method.name));
        for file in files.chain([sample.run_file()]) {
            let text = run_file("calm", file) + LIMITS_OF_PYTHON;
            let settings = RunSettings::from_text("run.toml", &text, folder.path().to_owned(), &[]).unwrap();
            let (model, data) = (&settings.file.model.path, &settings.file.data);
            assert!(settings.path("model.path", model).join("config.json").is_file(), "{text}");
            assert!(settings.path("data.path", &data.path).is_file(), "{text}");
            let validation = data.validation.as_ref().map(|path| settings.path("data.validation", path));
            assert!(validation.is_none_or(|path| path.is_file()), "{text}");
            assert_eq!((settings.file.method.r#use.as_str(), settings.file.run.name), (".", None));
            assert_eq!(settings.file.limits.of_method().component_bytes, 32 << 20);
        }
    }
}
