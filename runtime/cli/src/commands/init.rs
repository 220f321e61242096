//! `tunebox init`: writes a run file for the model and the data at hand.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use tunebox_foundation::files;
use tunebox_foundation::paths::parent;
use tunebox_package::{Package, Reference, World, builtin, read_manifest};
use tunebox_training::configuration::schema;
use tunebox_training::data::{Shape, has_data_name, read_beginning};

use crate::arguments::{Global, RUN_FILE};
use crate::package::describe::has_import;
use crate::run_file::template::{NewRunFile, SCHEMA_FILE};
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Records that are looked at.
const MAX_RECORDS: usize = 20;

/// The built-in methods to propose, the usual one of each shape of records. Of those that fit the data, the first is
/// taken.
const PROPOSED: [&str; 6] = ["lora", "dpo", "kto", "grpo", "abliterate", "steer"];

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// File to write
    #[arg(default_value = RUN_FILE)]
    file: PathBuf,
    /// Method to train with [default: the usual built-in one for the records of the data]
    #[arg(long)]
    method: Option<String>,
    /// Model to train: a folder, a `.gguf` file or a hub name [default: the only model in this folder]
    #[arg(long)]
    model: Option<String>,
    /// File or folder with the training records, also on the hub, `hf://datasets/owner/name` [default: the only data
    /// file in this folder]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Validation data: a file or folder, or what is held back of the training data: a share, such as 0.1, or a number
    /// of records
    #[arg(long, value_name = "FILE|N")]
    validation: Option<String>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Init {
    /// Writes the run file, and the JSON schema of run files into `.tunebox` beside it. Fails, with nothing written, if
    /// the file exists and `--force` is not given, for data of no known shape, and for a method that does not learn
    /// from them.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        if self.file.exists() && !self.force {
            let what = format!("`{}` exists already", self.file.display());
            return Err(Failure::usage(what, "`--force` replaces it; or name another file: `tunebox init FILE`"));
        }
        let data = self.data.clone().map_or_else(|| only_file("data file", "--data FILE", is_data), Ok)?;
        let (shape, records) = read_data(&data, global.offline)?;
        let fitting = fitting_methods(shape);
        let method = self.method.clone().or_else(|| propose_method(&fitting)).ok_or_else(|| {
            let what = format!("no built-in method learns from {shape}, as `{}` has", data.display());
            Failure::usage(what, "name a method that does: `--method PATH`")
        })?;
        let package = open_method(&method, shape, &data, &fitting)?;
        let model = match &self.model {
            Some(model) => model.clone(),
            None => only_file("model", "--model PATH", is_model)?.display().to_string(),
        };
        let text = NewRunFile {
            model: &self.path_in_run_file(&model),
            data: &self.path_in_run_file(&data.display().to_string()),
            validation: self.validation.as_ref().map(|value| self.path_in_run_file(value)),
            method: &self.method_in_run_file(&method),
            manifest: &package.manifest,
            imports: &package.imports,
            rate: shape.usual_rate(true),
            verifier: choose_verifier(&package, &records),
        };
        self.write(&text.text())?;
        let others: Vec<&str> = fitting.iter().copied().filter(|name| *name != method).collect();
        self.show(terminal, &method, shape, &others);
        Ok(ExitStatus::Success)
    }

    /// Converts a path to the form for the run file, which resolves paths relative to its own folder: the path is made
    /// absolute if that is not the current folder. A path that does not exist here, such as a name on the hub, does not
    /// change.
    fn path_in_run_file(&self, path: &str) -> String {
        if parent(&self.file) == Path::new(".") || !Path::new(path).exists() {
            return path.to_owned();
        }
        std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
    }

    /// Returns the method as the run file must write it: a name as it is, a path by
    /// [`path_in_run_file`](Self::path_in_run_file).
    fn method_in_run_file(&self, method: &str) -> String {
        match Reference::parse(method, Path::new(".")) {
            Ok(Reference::File(_) | Reference::Folder(_)) => self.path_in_run_file(method),
            _ => method.to_owned(),
        }
    }

    /// Writes the run file and the schema, each in one step. Creates their folders.
    fn write(&self, text: &str) -> Result<(), Failure> {
        let schema_file = parent(&self.file).join(SCHEMA_FILE);
        files::create_folder(parent(&schema_file))?;
        files::write(&schema_file, format!("{:#}\n", schema()).as_bytes())?;
        Ok(files::write(&self.file, text.as_bytes())?)
    }

    /// Shows what was written and which other methods fit, and suggests the commands that check and train.
    fn show(&self, terminal: Terminal, method: &str, shape: Shape, others: &[&str]) {
        let file = self.file.display().to_string();
        terminal.status("Wrote", format!("{file}  `{method}`, for records that are each {shape}"));
        if !others.is_empty() {
            terminal.note(format!("these methods learn from such records as well: {}", others.join(", ")));
        }
        let argument = if self.file == Path::new(RUN_FILE) { String::new() } else { format!(" {}", quote(&file)) };
        terminal.suggest(format!("tunebox check{argument}\ntunebox train{argument}"));
        terminal.event(json!({
            "event": "created", "file": self.file, "method": method, "shape": shape, "other-methods": others,
        }));
    }
}

/// Finds the only file or folder of the current folder for which `fits` returns true. `kind` says what is looked for
/// and `option` how to name one, in the failure if there are none or several. Ignores names that begin with a dot.
fn only_file(kind: &str, option: &str, fits: fn(&Path) -> bool) -> Result<PathBuf, Failure> {
    let names = files::names(Path::new("."))?;
    let mut found: Vec<PathBuf> =
        names.iter().filter(|name| !name.starts_with('.')).map(PathBuf::from).filter(|path| fits(path)).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::usage(format!("there is no {kind} in this folder"), format!("name one: `{option}`"))),
        count => {
            let listed: Vec<String> = found.iter().take(5).map(|path| format!("`{}`", path.display())).collect();
            let more = if count > listed.len() { ", …" } else { "" };
            let what = format!("this folder has {count} that could be the {kind}: {}{more}", listed.join(", "));
            Err(Failure::usage(what, format!("name one: `{option}`")))
        }
    }
}

/// Whether a path is that of a data file, by its name. A `.json` file must be named by the user: most of them are no
/// data.
fn is_data(path: &Path) -> bool {
    has_data_name(path) && path.is_file()
}

/// Whether a path is that of a model: a folder with `config.json`, or a GGUF file by its extension.
fn is_model(path: &Path) -> bool {
    path.join("config.json").is_file()
        || (path.extension().is_some_and(|extension| extension == "gguf") && path.is_file())
}

/// Reads the first records of the data, and the shape of the first one. Fetches data of a hub, unless `offline`. Fails
/// if the data cannot be read, have no record, or the first one is of no shape.
fn read_data(data: &Path, offline: bool) -> Result<(Shape, Vec<Map<String, Value>>), Failure> {
    let beginning = read_beginning(data, MAX_RECORDS, offline)?;
    let shape = beginning.shape.ok_or_else(|| {
        let what = format!("the first record of `{}` is of no shape that a method learns from", data.display());
        Failure::usage(what, "`tunebox data FILE` says what is wrong; the README lists the fields of each shape")
    })?;
    Ok((shape, beginning.records))
}

/// The built-in methods that learn from records of a shape, by name.
fn fitting_methods(shape: Shape) -> Vec<&'static str> {
    let learns = |bytes: &[u8]| read_manifest(bytes).is_ok_and(|manifest| learns_from(&manifest.shape, shape));
    builtin::list().iter().filter(|method| learns(method.bytes)).map(|method| method.name).collect()
}

/// Whether a method whose manifest has the word `word` learns from records of a shape.
fn learns_from(word: &str, shape: Shape) -> bool {
    Shape::of_method(word).is_some_and(|shapes| shapes.contains(&shape))
}

/// Returns the method to propose among the built-in methods `fitting`: the first of [`PROPOSED`] that is one of them,
/// else their first. `None` if there are none.
fn propose_method(fitting: &[&str]) -> Option<String> {
    let usual = PROPOSED.iter().find(|name| fitting.contains(name)).or(fitting.first());
    usual.map(|name| (*name).to_owned())
}

/// Opens a method. Fails if it is a verifier, or does not learn from records of `shape`, as `data` has; `fitting` are
/// the built-in methods that do.
fn open_method(method: &str, shape: Shape, data: &Path, fitting: &[&str]) -> Result<Package, Failure> {
    let package = Reference::parse(method, Path::new("."))?.open()?;
    package.expect_world(World::Method)?;
    if !learns_from(&package.manifest.shape, shape) {
        let what = format!("`{method}` does not learn from {shape}, as the first record of `{}` is", data.display());
        let hint = format!("these built-in methods do: {}", fitting.join(", "));
        return Err(Failure::usage(what, hint));
    }
    Ok(package)
}

/// Chooses the built-in verifier for the answers of the records, if the method learns from rewards: `number` if each
/// answer is a number or no record has one, `exact` if some are other texts. Returns its name and a comment for the run
/// file; `None` for any other method.
fn choose_verifier(package: &Package, records: &[Map<String, Value>]) -> Option<(&'static str, &'static str)> {
    if !has_import(&package.imports, "reward") {
        return None;
    }
    let answers: Vec<&Value> =
        records.iter().filter_map(|record| record.get("answer")).filter(|answer| !answer.is_null()).collect();
    let is_number = |answer: &&Value| {
        answer.is_number() || answer.as_str().is_some_and(|text| text.trim().replace(',', "").parse::<f64>().is_ok())
    };
    Some(if answers.is_empty() {
        (
            "number",
            "The records have no field `answer`: choose a verifier that needs none, or name the field by `answer`.",
        )
    } else if answers.iter().all(is_number) {
        ("number", "Accepts a completion whose number is that of the record's answer.")
    } else {
        ("exact", "Accepts a completion that is the record's answer; `tunebox list` names other verifiers.")
    })
}
