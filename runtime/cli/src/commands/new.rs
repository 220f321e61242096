//! `tunebox new`: creates the folder of a method, verifier or environment, which builds, tests and trains.

use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tunebox_package::build::approval;
use tunebox_package::template::{Language, SHAPES, Start, Template};
use tunebox_package::{World, builtin};
use tunebox_training::{RUNS_FOLDER, sample};

use crate::arguments::one_of;
use crate::package::describe::train_command;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Where the sample is unpacked in a method folder.
const SAMPLE_FOLDER: &str = "runs/.sample";

/// The part of the sample's run file that names the verifier.
const SAMPLE_VERIFIER: &str = "[[verifier]]\nuse = \"number\"\n";

/// What takes the place of [`SAMPLE_VERIFIER`] for an environment.
const ENVIRONMENT: &str = "[environment]\nuse = \".\"\nmax-turns = 2\n";

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the component and its folder: lower-case words joined by hyphens
    name: String,
    /// What to create: a method, which trains or edits a model; a verifier, a reward function that judges completions;
    /// an environment, which answers completions over several turns
    #[arg(long, default_value = "method", conflicts_with_all = ["like", "shape"], value_parser = one_of([
        ("method", World::Method), ("verifier", World::Verifier), ("environment", World::Environment)
    ]))]
    kind: World,
    /// Start from the source of this built-in method or verifier [default: a small working one]
    #[arg(long, value_name = "METHOD")]
    like: Option<String>,
    /// Start from a small working method for this kind of training records [default: supervised]
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
    /// Writes the template of a method, verifier or environment with a run file for the sample, and unpacks the
    /// sample's model and data under `runs`. The copy of a built-in verifier gets neither run file nor sample. Records
    /// the folder as approved, so that builds show no note. Fails, with nothing written, if a file of the template
    /// exists, or for a name that no component can have.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let start = self.start();
        let mut template = Template::new(&self.name, self.language, start)?;
        if self.has_run_file() {
            template.add("run.toml", self.run_file(start));
        }
        let present = Path::new(".");
        let unpack = |folder: &Path| -> Result<(), Failure> {
            if self.has_run_file() {
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
        // The user's own folder needs no note that building runs its code. If it cannot be remembered, the note
        // appears.
        let _ = approval::record(&folder);
        self.show_created(terminal, &template, &folder);
        Ok(ExitStatus::Success)
    }

    /// The source that the folder begins with: that of `--like`, else by `--kind`, for a method of the shape `--shape`
    /// or the first of [`SHAPES`].
    fn start(&self) -> Start<'_> {
        match (&self.like, self.kind) {
            (Some(like), _) => Start::Like(like),
            (None, World::Method) => Start::Shape(self.shape.as_deref().unwrap_or(SHAPES[0])),
            (None, World::Verifier) => Start::Verifier,
            (None, World::Environment) => Start::Environment,
        }
    }

    /// Whether the folder gets a run file: true but for the copy of a built-in verifier, which need not fit the sample.
    fn has_run_file(&self) -> bool {
        self.world() == self.kind
    }

    /// What the folder holds: the kind of the built-in of `--like`, else `--kind`.
    fn world(&self) -> World {
        let is_verifier = self.like.as_deref().is_some_and(|like| builtin::find_verifier(like).is_some());
        if is_verifier { World::Verifier } else { self.kind }
    }

    /// The text of the run file, made from the sample's run file of the method or shape. A component in Python gets the
    /// limits that it needs.
    fn run_file(&self, start: Start<'_>) -> String {
        let sample = match start {
            Start::Like(method) => sample::run_file_of(method),
            Start::Shape(shape) => sample::run_file_of_shape(shape),
            Start::Verifier | Start::Environment => sample::run_file_of_shape("prompts"),
        };
        let text = rewrite_run_file(&self.name, sample.unwrap_or(sample::RUN_FILE), start);
        let limits = if self.language == Language::Python { python_limits(self.kind) } else { String::new() };
        format!("{text}{limits}")
    }

    /// Shows the created files and suggests the commands that build, test and train (without a run file, only the first
    /// two). Emits a `created` event.
    fn show_created(&self, terminal: Terminal, template: &Template, folder: &Path) {
        let (name, world) = (&self.name, self.world());
        let files: Vec<&str> = template.own_files().collect();
        let place = if self.here { "here".to_owned() } else { format!("{name}/") };
        let kind = match world {
            World::Method => "",
            World::Verifier => ", a verifier",
            World::Environment => ", an environment",
        };
        terminal.status("Created", format!("{place}{kind}  ({})", files.join(", ")));
        let enter = if self.here { String::new() } else { format!("cd {name}; ") };
        let train = match (self.language, world) {
            _ if !self.has_run_file() => String::new(),
            (Language::Rust, World::Method) => format!("; {}", train_command(".", 0, &self.imports())),
            // The run file has the limits for Python, and names the verifier or environment.
            _ => "; tunebox train run.toml".to_owned(),
        };
        terminal.suggest(format!("{enter}tunebox build; tunebox test{train}"));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        terminal.event(json!({ "event": "created", "name": name, "folder": absolute, "files": files }));
    }

    /// The imports of the built-in method of `--like`; empty without it.
    fn imports(&self) -> Vec<String> {
        let built_in = self.like.as_deref().and_then(builtin::find);
        built_in.and_then(|method| tunebox_sandbox::imports(method.bytes).ok()).unwrap_or_default()
    }
}

/// The end of the run file of a component in Python: limits above the defaults.
fn python_limits(kind: World) -> String {
    let prefix = if kind.is_method() { String::new() } else { format!("{}-", kind.name()) };
    format!(
        "\n# A component in Python contains an interpreter, so it needs larger limits than the defaults.\n\
         [limits]\n{prefix}component-bytes = 33554432\ncompile-seconds = 120.0\n"
    )
}

/// Rewrites the run file `sample` for the component `name`: replaces its leading comments, sets the method, verifier
/// or environment to `.`, and lets model, data and validation name the unpacked files. Leaves out the settings and
/// grants of the sample's method unless a new method starts with its source. An environment also gets room for its
/// second turn.
fn rewrite_run_file(name: &str, sample: &str, start: Start<'_>) -> String {
    let mut text = format!(
        "# `{name}` on the bundled tiny model and data; replace them by your own.\n\
         # `tunebox train --sample` restores those files if they are missing.\n"
    );
    let is_method = matches!(start, Start::Shape(_) | Start::Like(_));
    let mut table = "";
    for line in sample.lines().skip_while(|line| line.starts_with('#')) {
        if line.starts_with('[') {
            table = line;
        }
        match line.split_once(" = \"") {
            Some((key @ ("path" | "validation"), file)) => text += &format!("{key} = \"{SAMPLE_FOLDER}/{file}"),
            Some(("use", _)) if table == "[method]" && is_method => text += "use = \".\"",
            _ if table == "[method]" && line.contains(" = ") && matches!(start, Start::Shape(_)) => continue,
            _ => text += line,
        }
        text.push('\n');
    }
    match start {
        Start::Shape(_) | Start::Like(_) => text,
        Start::Verifier => text.replace(SAMPLE_VERIFIER, &SAMPLE_VERIFIER.replace("number", ".")),
        Start::Environment => {
            text.replace(SAMPLE_VERIFIER, ENVIRONMENT).replace("max-length = 32\n", "max-length = 64\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use tunebox_training::RunSettings;
    use tunebox_training::configuration::ValidationData;

    use super::*;

    #[test]
    fn the_run_file_of_every_sample_names_the_unpacked_files() {
        let folder = tempfile::tempdir().unwrap();
        sample::unpack(&folder.path().join(RUNS_FOLDER)).unwrap();
        let files = builtin::list().iter().filter_map(|method| sample::run_file_of(method.name));
        for file in files.chain([sample::RUN_FILE]) {
            let text = rewrite_run_file("calm", file, Start::Like("lora")) + &python_limits(World::Method);
            let settings = RunSettings::from_text("run.toml", &text, folder.path().to_owned(), &[]).unwrap();
            let (model, data) = (&settings.file.model.path, &settings.file.data);
            assert!(settings.path("model.path", model).join("config.json").is_file(), "{text}");
            assert!(settings.path("data.path", &data.path).is_file(), "{text}");
            let validation = data
                .validation
                .as_ref()
                .and_then(ValidationData::path)
                .map(|path| settings.path("data.validation", path));
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

    #[test]
    fn the_run_file_of_a_verifier_or_environment_names_its_folder_beside_a_method_of_the_program() {
        for (start, kind) in [(Start::Verifier, World::Verifier), (Start::Environment, World::Environment)] {
            let sample = sample::run_file_of_shape("prompts").unwrap();
            let text = rewrite_run_file("calm", sample, start) + &python_limits(kind);
            let settings = RunSettings::from_text("run.toml", &text, ".".into(), &[]).unwrap();
            let (file, limits) = (&settings.file, &settings.file.limits);
            let verifiers: Vec<&str> = file.verifier.iter().map(|verifier| verifier.r#use.as_str()).collect();
            let environment = file.environment.as_ref().map(|environment| environment.r#use.as_str());
            let large =
                [limits.verifier_component_bytes, limits.environment_component_bytes].map(|size| size == 32 << 20);
            let is_verifier = kind == World::Verifier;
            assert_eq!(file.method.r#use, "grpo");
            assert_eq!(verifiers, if is_verifier { vec!["."] } else { vec![] });
            assert_eq!(environment, if is_verifier { None } else { Some(".") });
            assert_eq!(large, [is_verifier, !is_verifier]);
            assert_eq!(file.data.max_length, if is_verifier { 32 } else { 64 });
        }
    }
}
