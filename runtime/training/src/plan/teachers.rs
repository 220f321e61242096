//! Finds or fetches the teachers of a run, frozen models from which its method learns, and opens them.

use std::sync::Arc;

use tunebox_compute::precision::PrecisionRequest;
use tunebox_foundation::explain::Explanation;
use tunebox_model::{Model, Source};
use tunebox_package::Package;

use super::method::imports;
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;
use crate::runs::find_model;
use crate::sample;

/// An opened teacher.
pub(super) struct Teacher {
    /// The name by which the method asks for it.
    pub(super) name: String,
    /// The model, on the device of the run's model.
    pub(super) model: Arc<Model>,
    /// SHA-256 of the weight files.
    pub(super) digest: String,
}

/// Finds the files of teacher `number` (from 0). If its `path` does not exist, takes it as a name on the hub and
/// fetches the files that are not present, unless the run is offline.
///
/// # Errors
/// A model that does not exist or cannot be fetched, located at the key of its path.
pub(crate) fn find_teacher(settings: &RunSettings, number: usize) -> Result<Source, Error> {
    let (key, table) = (path_key(number), &settings.file.teacher[number]);
    let path = settings.path(&key, &table.path);
    sample::check_present(&path)?;
    let name = if path.exists() { path.to_string_lossy() } else { table.path.as_str().into() };
    find_model(&name, table.revision.as_deref(), settings.offline).map_err(|error| settings.with_location(&key, error))
}

/// Fetches the teachers that are not present from the hub. Returns whether there are some of the hub; does nothing for
/// those of this machine.
///
/// # Errors
/// A teacher that is not on the hub, or cannot be fetched.
pub(super) fn fetch_teachers(settings: &RunSettings) -> Result<bool, Error> {
    let tables = settings.file.teacher.iter().enumerate();
    let on_hub = tables.filter(|(number, table)| !settings.path(&path_key(*number), &table.path).exists());
    let named: Vec<usize> = on_hub.map(|(number, _)| number).collect();
    named.iter().try_for_each(|number| find_teacher(settings, *number).map(drop))?;
    Ok(!named.is_empty())
}

/// The digests of a run's teachers, in the order of the run file, without opening them.
pub(crate) fn teacher_digests(settings: &RunSettings) -> Result<Vec<String>, Error> {
    (0..settings.file.teacher.len()).map(|number| Ok(find_teacher(settings, number)?.digest()?)).collect()
}

/// Opens the teachers of a run, in the order of the run file, where its model is and with activations as
/// `train.compute` says.
///
/// # Errors
/// A teacher that cannot be found, fetched or read, and one of another vocabulary than the model's.
pub(super) fn open_teachers(settings: &RunSettings, model: &Model) -> Result<Vec<Teacher>, Error> {
    let open = |number: usize| {
        let (source, table) = (find_teacher(settings, number)?, &settings.file.teacher[number]);
        let requested = PrecisionRequest { base: table.precision, compute: settings.file.train.compute };
        let teacher = Model::open_in(&source, model.weights.device(), requested);
        let teacher = teacher.map_err(|error| settings.with_location(&path_key(number), error))?;
        check_vocabulary(settings, number, model, &teacher)?;
        Ok(Teacher { name: table.name.clone(), model: Arc::new(teacher), digest: source.digest()? })
    };
    (0..settings.file.teacher.len()).map(open).collect()
}

/// Checks that a teacher has a token of the same spelling for every id that the model's tokenizer has. Sizes of the
/// output heads, which may be padded, may differ.
fn check_vocabulary(settings: &RunSettings, number: usize, model: &Model, teacher: &Model) -> Result<(), Error> {
    let (own, other) = (model.tokenizer()?, teacher.tokenizer()?);
    let Some(id) = own.first_difference(other) else { return Ok(()) };
    let spelling = |token: Option<String>| token.map_or_else(|| "no token".into(), |token| format!("`{token}`"));
    let what = format!("teacher `{}` has another vocabulary than the model", settings.file.teacher[number].name);
    let why = format!("id {id} is {} there and {} here", spelling(other.token(id)), spelling(own.token(id)));
    let hint = "a teacher scores the same tokens that the model learns: use a model of the same family";
    let problem = Explanation::new("config", what).with_why(why).with_hint(hint);
    Err(settings.error(&path_key(number), Underline::Value, problem))
}

/// Returns the problems of the tables `[[teacher]]`: there is none though the method asks for a teacher, there is one
/// though it asks for none, or two have one name.
pub(super) fn teacher_problems(settings: &RunSettings, package: &Package) -> Vec<Error> {
    let (teachers, name) = (&settings.file.teacher, &settings.file.method.r#use);
    let mut problems = Vec::new();
    match (imports(package, "teacher"), teachers.is_empty()) {
        (true, true) => {
            let what = format!("`{name}` learns from a teacher, and the run has none");
            let hint = "add `[[teacher]]` and `path = \"MODEL\"` below it, or `--set teacher.0.path=MODEL`";
            problems.push(settings.conflict("method.use", Underline::Value, &what, hint));
        }
        (false, false) => {
            let what = format!("`{name}` never asks for a teacher, so `[[teacher]]` has no effect");
            let hint = "remove the table, or take a method such as `distill`";
            problems.push(settings.conflict("teacher.0.path", Underline::Key, &what, hint));
        }
        _ => {}
    }
    for (number, table) in teachers.iter().enumerate() {
        if teachers[..number].iter().any(|other| other.name == table.name) {
            let what = format!("two teachers are called `{}`", table.name);
            problems.push(settings.conflict(
                &path_key(number),
                Underline::Value,
                &what,
                "give one of them another `name`",
            ));
        }
    }
    problems
}

/// The key of the path of teacher `number`, from 0.
fn path_key(number: usize) -> String {
    format!("teacher.{number}.path")
}
