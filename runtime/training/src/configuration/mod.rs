//! The settings of a run: from `run.toml` and `--set` to checked tables.
//!
//! Checked here: keys, types, ranges, each with its place. What a model, a file or a method
//! has to say about them is left to the plan.

mod check;
mod document;
mod fault;
mod limits;
mod tables;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tunebox_package::{Reference, builtin, read_manifest};
use tunebox_sandbox::{Compiling, Profiler};

pub use check::schema;
pub use document::{Document, Half};
pub use fault::{ConfigurationError, Problem, Spot};
pub use limits::LimitsTable;
pub use tables::{
    AdapterTable, AllLinear, AnswersChoice, BasePrecision, ComputeChoice, DataTable, Grant, Initialise, KindChoice,
    MethodTable, ModelTable, RunFile, RunTable, Targets, TrainTable, VerifierTable,
};

use crate::error::Error;
use crate::files;
use crate::sample::Sample;

/// What ends up in a run's files and is neither in its settings nor in what they name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// The time that chat templates read, in seconds since 1970.
    pub clock: i64,
    /// What the model was called, which adapters say they belong to.
    pub model: String,
}

/// What a run is told: the tables, where they came from, and how to treat an older run.
///
/// It can be handed to another process; that one says for itself where compiled code comes from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSettings {
    /// The checked tables.
    pub file: RunFile,
    /// Go on with a run that has checkpoints, instead of starting one.
    pub resume: bool,
    /// Never ask the network for a model.
    pub offline: bool,
    /// What a run that is made again keeps of the first time.
    pub again: Option<Again>,
    /// Where compiled methods and verifiers come from and are kept. No key of a run file.
    #[serde(skip)]
    pub compiling: Compiling,
    /// Records where the method's own time goes, in this process.
    #[serde(skip)]
    pub profiler: Option<Profiler>,
    document: Document,
    folder: PathBuf,
    /// The folder whose `tunebox.lock` says which packages of strangers the run may use; empty for the present one.
    project: PathBuf,
}

impl RunSettings {
    /// Reads a run file and applies every `--set` in order.
    ///
    /// # Errors
    /// A file that cannot be read; unknown keys, wrong types and values, each with its place.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, Error> {
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let project = folder.clone();
        let settings = Self::from_text(&path.display().to_string(), &files::read_text(path)?, folder, overrides)?;
        Ok(Self { project, ..settings })
    }

    /// The same from the text of a run file that messages call `name`; its paths begin at `folder`.
    ///
    /// # Errors
    /// As [`RunSettings::load`], but for reading the file.
    pub fn from_text(name: &str, text: &str, folder: PathBuf, overrides: &[String]) -> Result<Self, Error> {
        Self::from_document(Document::parse(name, text)?, folder, overrides)
    }

    /// Settings that come from `--set` alone.
    ///
    /// # Errors
    /// As [`RunSettings::load`].
    pub fn from_overrides(overrides: &[String]) -> Result<Self, Error> {
        Self::from_document(Document::default(), PathBuf::new(), overrides)
    }

    /// The embedded default: the run file and data made for the method, on the embedded model;
    /// `overrides` on top. A method of another name gets those of a built-in one that learns from
    /// the same shape of records. Unpacks the files into the folder for runs.
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

    fn from_document(mut document: Document, folder: PathBuf, overrides: &[String]) -> Result<Self, Error> {
        for assignment in overrides {
            document.set(assignment)?;
        }
        check::check(&mut document)?;
        let tree = Value::Object(document.tree.clone());
        let file = serde_json::from_value(tree).map_err(|error| ConfigurationError {
            problem: Problem::Conflict { what: error.to_string(), hint: "see the schema of run files".into() },
            spot: None,
        })?;
        let compiling = Compiling::default();
        let project = PathBuf::new();
        let (again, profiler) = (None, None);
        Ok(Self { file, resume: false, offline: false, again, compiling, profiler, document, folder, project })
    }

    /// Where a key stands, for errors that only the plan can find.
    #[must_use]
    pub fn spot(&self, key: &str, half: Half) -> Option<Spot> {
        self.document.spot(&split(key), half)
    }

    /// The path that a key means: from the run file's folder, or from the present one for `--set`.
    #[must_use]
    pub fn path(&self, key: &str, written: &str) -> PathBuf {
        if self.document.is_override(&split(key)) { PathBuf::from(written) } else { self.folder.join(written) }
    }

    /// A model or method by path or by name: the path if there is something at it, else as written.
    #[must_use]
    pub fn path_or_name(&self, key: &str, written: &str) -> String {
        let path = self.path(key, written);
        if path.exists() { path.to_string_lossy().into_owned() } else { written.to_owned() }
    }

    /// The folder whose `tunebox.lock` says which packages of strangers the run may use: that of the run file, or the
    /// present one.
    #[must_use]
    pub fn project(&self) -> &Path {
        if self.project.as_os_str().is_empty() { Path::new(".") } else { &self.project }
    }

    /// Whether everything that runs in the sandbox is built in. A name that leads nowhere is not: what is
    /// found there a moment later would be a stranger's.
    #[must_use]
    pub fn is_all_built_in(&self) -> bool {
        let own = |found: &Result<Reference, _>| matches!(found, Ok(Reference::Builtin(_)));
        self.references().iter().all(own)
    }

    /// What the run file names as method and as verifiers, found or not.
    pub(crate) fn references(&self) -> Vec<Result<Reference, tunebox_package::Error>> {
        let method = self.method_reference();
        let verifiers = self.file.verifier.iter().enumerate();
        let verifiers = verifiers.map(|(number, table)| self.verifier_reference(number, &table.r#use));
        std::iter::once(method).chain(verifiers).collect()
    }

    /// Where the method is.
    pub(crate) fn method_reference(&self) -> Result<Reference, tunebox_package::Error> {
        Reference::parse(&self.file.method.r#use, &self.base("method.use"))
    }

    /// Where a verifier is that the run file calls so.
    pub(crate) fn verifier_reference(&self, number: usize, name: &str) -> Result<Reference, tunebox_package::Error> {
        Reference::verifier(name, &self.base(&format!("verifier.{number}.use")))
    }

    /// Writes the version behind every name of a package in the store, so that a later version there changes nothing.
    pub(crate) fn pin(&mut self) {
        let pinned = |found: Result<Reference, tunebox_package::Error>, written: &mut String| {
            if let Ok(Reference::Stored(stored)) = found
                && *written == stored.name
            {
                *written = format!("{}@{}", stored.name, stored.version);
            }
        };
        pinned(self.method_reference(), &mut self.file.method.r#use);
        for number in 0..self.file.verifier.len() {
            let found = self.verifier_reference(number, &self.file.verifier[number].r#use);
            pinned(found, &mut self.file.verifier[number].r#use);
        }
    }

    /// Where the relative paths of a key begin.
    fn base(&self, key: &str) -> PathBuf {
        let base = self.path(key, "");
        if base.as_os_str().is_empty() { PathBuf::from(".") } else { base }
    }

    /// Whether a key came from a `--set`.
    #[must_use]
    pub fn is_override(&self, key: &str) -> bool {
        self.document.is_override(&split(key))
    }

    /// Whether a key or table was given at all, by file or `--set`.
    #[must_use]
    pub fn given(&self, key: &str) -> bool {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|name| self.document.tree.get(name));
        let below = |value: &'_ Value, name: &str| match value {
            Value::Array(items) => name.parse().ok().and_then(|place: usize| items.get(place).cloned()),
            other => other.get(name).cloned(),
        };
        parts.fold(first.cloned(), |value, name| value.and_then(|value| below(&value, name))).is_some()
    }

    /// The settings with every default filled in and every path absolute, as TOML that can be
    /// run from anywhere; `name` is what the run is called.
    #[must_use]
    pub fn to_toml(&self, name: &str) -> String {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned();
        let mut file = self.file.clone();
        let settle = |key: &str, written: &mut String| {
            let path = self.path(key, written);
            if path.exists() {
                *written = absolute(path);
            }
        };
        settle("model.path", &mut file.model.path);
        settle("data.path", &mut file.data.path);
        file.model.adapter.iter_mut().for_each(|written| settle("model.adapter", written));
        file.data.validation.iter_mut().for_each(|written| settle("data.validation", written));
        if tunebox_package::builtin::find(&file.method.r#use).is_none() {
            settle("method.use", &mut file.method.r#use);
        }
        for (number, verifier) in file.verifier.iter_mut().enumerate() {
            if tunebox_package::builtin::find_verifier(&verifier.r#use).is_none() {
                settle(&format!("verifier.{number}.use"), &mut verifier.r#use);
            }
        }
        file.run.folder = absolute(PathBuf::from(&file.run.folder));
        file.run.name = Some(name.to_owned());
        let mut table = toml::Table::try_from(&file).unwrap_or_default();
        if file.model.adapter.is_some()
            && let Some(train) = table.get_mut("train").and_then(toml::Value::as_table_mut)
        {
            // A continued adapter keeps its own description; the two together are refused.
            train.remove("adapter");
        }
        toml::to_string_pretty(&table).unwrap_or_default()
    }

    /// An error about one key.
    #[must_use]
    pub fn wrong(&self, key: &str, half: Half, problem: Problem) -> Error {
        ConfigurationError { problem, spot: self.spot(key, half).map(Box::new) }.into()
    }
}

fn split(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// The run file of a built-in method that learns from the same shape of records.
fn alike(sample: Sample, method: &str) -> Option<&'static str> {
    let shape = Reference::parse(method, Path::new(".")).and_then(|found| found.open()).ok()?.manifest.shape;
    builtin::list().iter().find_map(|other| {
        let text = sample.run_file_of(other.name)?;
        (read_manifest(other.bytes).ok()?.shape == shape).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use tunebox_compute::explain::Explain;

    use super::*;

    const GOOD: &str = "[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \"lora\"\nbeta = 0.2\n";

    fn read(text: &str, overrides: &[&str]) -> Result<RunSettings, Error> {
        let document = Document::parse("run.toml", text)?;
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        RunSettings::from_document(document, PathBuf::from("folder"), &overrides)
    }

    fn complaint(text: &str, overrides: &[&str]) -> tunebox_compute::explain::Explanation {
        read(text, overrides).unwrap_err().explanation()
    }

    #[test]
    fn a_short_file_gets_the_documented_defaults() {
        let file = read(GOOD, &[]).unwrap().file;

        assert_eq!((file.train.batch, file.train.accumulation, file.train.seed), (4, 1, 42));
        assert_eq!((file.train.clip, file.train.schedule.as_str(), file.data.max_length), (1.0, "linear", 1024));
        assert_eq!(file.method.settings["beta"], 0.2);
    }

    #[test]
    fn an_unknown_key_is_shown_in_its_line_with_the_nearest_name() {
        let error = complaint(&format!("{GOOD}\n[train]\nbacth = 2\n"), &[]);

        assert_eq!(error.what, "unknown key `bacth`");
        assert_eq!(error.place.as_deref(), Some("run.toml:10:1"));
        let snippet = error.snippet.unwrap();
        assert_eq!((snippet.text.as_str(), snippet.column, snippet.width), ("bacth = 2", 1, 5));
        assert!(error.hint.unwrap().starts_with("did you mean `batch`?"));
    }

    #[test]
    fn an_unknown_table_is_refused() {
        assert_eq!(complaint(&format!("{GOOD}[trian]\n"), &[]).what, "unknown key `trian`");
    }

    #[test]
    fn a_wrong_type_points_at_the_value() {
        let error = complaint(&format!("{GOOD}[train]\nbatch = \"four\"\n"), &[]);

        assert_eq!(error.what, "`train.batch` is text, a whole number is wanted");
        assert_eq!(error.place.as_deref(), Some("run.toml:9:9"));
    }

    #[test]
    fn a_value_out_of_range_says_the_range() {
        let error = complaint(&format!("{GOOD}[train.adapter]\nrank = 0\n"), &[]);
        assert_eq!(error.what, "`train.adapter.rank` is 0, outside 1 to 4096");

        let error = complaint(GOOD, &["train.rate=0"]);
        assert_eq!(error.what, "`train.rate` is 0, outside above 0, up to 10");
        assert_eq!(error.place.as_deref(), Some("`--set train.rate=0`"));
    }

    #[test]
    fn a_word_that_is_no_choice_gets_the_choices() {
        let error = complaint(GOOD, &["train.adapter.kind=lara"]);

        assert_eq!(error.what, "`train.adapter.kind` cannot be `lara`");
        assert!(error.hint.unwrap().contains("did you mean `lora`?"));
    }

    #[test]
    fn verifiers_are_a_list_and_a_wrong_key_of_one_is_shown_at_its_own_line() {
        let list = "[[verifier]]\nuse = \"number\"\n[[verifier]]\nuse = \"text\"\nweight = \"x\"\nmax-lines = 3\n";
        let error = complaint(&format!("{GOOD}{list}"), &[]);
        assert_eq!(error.what, "`verifier.1.weight` is text, a number is wanted");
        assert!(error.place.unwrap().starts_with("run.toml:12:"));

        let settings = read(&format!("{GOOD}{list}"), &["verifier.1.weight=0.5", "verifier.2.use=exact"]).unwrap();
        let weights: Vec<f64> = settings.file.verifier.iter().map(|verifier| verifier.weight).collect();
        assert_eq!(weights, [1.0, 0.5, 1.0]);
        assert_eq!(settings.file.verifier[1].settings["max-lines"], 3);
        assert_eq!(settings.spot("verifier.1.max-lines", Half::Key).unwrap().line.unwrap().0, 13);
        assert!(
            complaint(&format!("{GOOD}[[verifier]]\nweight = 2\n"), &[]).what.contains("`verifier.0.use` is missing")
        );
    }

    #[test]
    fn targets_are_one_word_or_a_list() {
        let targets = |value: &str| read(GOOD, &[value]).unwrap().file.train.adapter.targets;

        assert_eq!(targets("train.adapter.targets=all-linear"), Targets::Word(AllLinear::AllLinear));
        assert_eq!(targets("train.adapter.targets=['q_proj']"), Targets::Names(vec!["q_proj".into()]));
        assert_eq!(complaint(GOOD, &["train.adapter.targets=all"]).what, "`train.adapter.targets` cannot be `all`");
    }

    #[test]
    fn a_missing_model_is_named_with_the_flag_that_gives_it() {
        let error = complaint("[data]\npath = \"d\"\n[method]\nuse = \"lora\"\n", &[]);

        assert_eq!(error.what, "`model.path` is missing");
        assert!(error.hint.unwrap().contains("--model"));
    }

    #[test]
    fn text_that_is_not_toml_is_shown_where_it_breaks() {
        let error = complaint("[model]\npath = \n", &[]);

        assert!(error.what.starts_with("the run file is not valid TOML"), "{}", error.what);
        assert!(error.place.unwrap().starts_with("run.toml:2:"));
    }

    #[test]
    fn an_override_replaces_the_file_and_starts_paths_at_the_present_folder() {
        let settings = read(GOOD, &["data.path=other.jsonl", "run.name=42", "train.steps=7"]).unwrap();

        assert_eq!(settings.file.train.steps, Some(7));
        assert_eq!(settings.file.run.name.as_deref(), Some("42"));
        assert_eq!(settings.path("data.path", "other.jsonl"), PathBuf::from("other.jsonl"));
        assert_eq!(settings.path("model.path", "m"), PathBuf::from("folder/m"));
    }

    #[test]
    fn an_override_without_a_value_is_refused() {
        assert_eq!(complaint(GOOD, &["train.batch"]).what, "`--set train.batch` is not of the form `table.key=value`");
    }

    #[test]
    fn the_written_settings_read_back_the_same() {
        let first = read(GOOD, &["train.rate=1e-5", "limits.step-seconds=3"]).unwrap();
        let second = read(&first.to_toml("again"), &["run.folder=runs"]).unwrap();

        let named = RunTable { name: Some("again".into()), ..RunTable::default() };
        let first = RunFile { run: named, ..first.file };
        assert_eq!(serde_json::to_value(&first).unwrap(), serde_json::to_value(&second.file).unwrap());
    }

    #[test]
    fn every_key_of_the_schema_has_a_description() {
        fn walk(name: &str, schema: &Value) {
            for (key, below) in schema["properties"].as_object().into_iter().flatten() {
                assert!(below["description"].is_string(), "`{name}.{key}` has no description");
                walk(key, below);
            }
        }
        walk("run", &schema());
    }
}
