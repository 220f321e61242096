//! `tunebox list`: what is here: packages, models, runs.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tunebox_model::hub::Hub;
use tunebox_package::builtin;
use tunebox_package::home::existing;
use tunebox_package::store::{Store, Stored};
use tunebox_training::plan::ENDLESS;
use tunebox_training::{Listed, RUNS, newest_checkpoint};

use super::{Ending, Outcome};
use crate::terminal::diagnostic::Failure;
use crate::terminal::{Terminal, shown};
use tunebox_foundation::format::{bytes, counted, grouped};

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only packages: those of the store, and what is built in
    #[arg(long, conflicts_with = "runs")]
    packages: bool,
    /// Only the runs in `runs`
    #[arg(long)]
    runs: bool,
}

impl List {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        let (packages, models, runs) = (!self.runs, !self.runs && !self.packages, !self.packages);
        let mut next = "tunebox train --sample".to_owned();
        if packages {
            let stored = stored()?;
            if let Some(package) = stored.last() {
                next = format!("tunebox inspect {}@{}", package.name, package.version);
            }
            show_packages(terminal, &stored);
        }
        if models {
            show_models(terminal);
        }
        if runs {
            let runs = tunebox_training::runs(Path::new(RUNS))?;
            if let Some(run) = to_talk_to(&runs) {
                next = format!("tunebox chat {}", run.folder.display());
            }
            show_runs(terminal, &runs);
        }
        terminal.next(next);
        Ok(Ending::Done)
    }
}

/// The packages of the store; none where there is no store yet.
fn stored() -> Result<Vec<Stored>, Failure> {
    match existing()? {
        Some(home) => Ok(Store::open(&home)?.list()?),
        None => Ok(Vec::new()),
    }
}

fn show_packages(terminal: Terminal, stored: &[Stored]) {
    let row = |package: &Stored| {
        let signed = package.signer.as_ref().map_or_else(|| "not signed".to_owned(), |key| format!("by {key}"));
        [
            format!("{}@{}", package.name, package.version),
            bytes(package.size),
            signed,
            format!("from {}", package.source),
        ]
    };
    let object = |package: &Stored| {
        json!({
            "event": "package", "name": package.name, "version": package.version, "bytes": package.size,
            "digest": format!("sha256:{}", package.digest), "signer": package.signer, "source": package.source,
        })
    };
    show(terminal, "Packages in the store", stored, row, object);
    for (title, world, list) in
        [("Built-in methods", "method", builtin::list()), ("Built-in verifiers", "verifier", builtin::verifiers())]
    {
        let row = |builtin: &builtin::Builtin| [builtin.name.to_owned(), bytes(builtin.bytes.len() as u64)];
        let object = |builtin: &builtin::Builtin| json!({ "event": "built-in", "name": builtin.name, "world": world, "bytes": builtin.bytes.len() });
        show(terminal, title, list, row, object);
    }
}

fn show_models(terminal: Terminal) {
    let models = Hub::from_environment(true).cached_models();
    let object = |name: &String| json!({ "event": "model", "name": name });
    show(terminal, "Models from the hub", &models, |name| [name.clone()], object);
}

fn show_runs(terminal: Terminal, runs: &[Listed]) {
    let row = |run: &Listed| {
        let steps = steps(run).map_or_else(|| "endless".to_owned(), |steps| counted(steps, "step"));
        [run.name.clone(), run.method.clone(), format!("on {}", run.model), steps, state(run)]
    };
    let object = |run: &Listed| {
        let mut value = json!(run);
        value["event"] = "run".into();
        value["steps"] = steps(run).into();
        value
    };
    show(terminal, "Runs", runs, row, object);
}

/// How a run stands.
fn state(run: &Listed) -> String {
    if run.finished {
        return "finished".to_owned();
    }
    let now = if run.running { "running" } else { "stopped" };
    match run.checkpoint {
        Some(step) => format!("{now}, saved at step {}", grouped(step)),
        None => format!("{now}, nothing saved"),
    }
}

/// The steps of a run. None: it goes on until somebody stops it.
fn steps(run: &Listed) -> Option<u64> {
    Some(run.steps).filter(|steps| *steps != u64::from(ENDLESS))
}

/// The newest run that left something to talk to, else the newest that has saved something. Directions alone are none.
fn to_talk_to(runs: &[Listed]) -> Option<&Listed> {
    let left =
        |run: &&Listed| ["adapter_config.json", "config.json"].iter().any(|name| run.folder.join(name).is_file());
    let saved = |run: &&Listed| newest_checkpoint(&run.folder).is_ok_and(|found| found.is_some());
    let done = runs.iter().filter(|run| run.finished && left(run)).max_by_key(|run| run.changed);
    done.or_else(|| runs.iter().filter(|run| !run.finished && saved(run)).max_by_key(|run| run.changed))
}

/// A table under its title; nothing where there is nothing, but in JSON each entry on a line of its own.
fn show<Entry, const COLUMNS: usize>(
    terminal: Terminal,
    title: &str,
    entries: &[Entry],
    row: impl Fn(&Entry) -> [String; COLUMNS],
    object: impl Fn(&Entry) -> Value,
) {
    if terminal.json {
        entries.iter().for_each(|entry| terminal.object(object(entry)));
        return;
    }
    let rows: Vec<[String; COLUMNS]> = entries.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    if !rows.is_empty() {
        terminal.data(title);
    }
    for row in &rows {
        let cells: String = row.iter().zip(widths).map(|(cell, width)| format!("  {cell:width$}")).collect();
        terminal.data(shown(cells.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A run that changed so many seconds after all others.
    fn listed(name: &str, folder: &Path, finished: bool, seconds: u64) -> Listed {
        Listed {
            name: name.into(),
            folder: folder.join(name),
            method: "calm 0.1.0".into(),
            model: "tiny".into(),
            steps: 3,
            finished,
            running: false,
            checkpoint: None,
            changed: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn only_a_run_that_left_a_model_or_an_adapter_is_one_to_talk_to() {
        let place = tempfile::tempdir().unwrap();
        let run = |name: &str, file: Option<&str>, finished, seconds| {
            let run = listed(name, place.path(), finished, seconds);
            std::fs::create_dir(&run.folder).unwrap();
            file.iter().for_each(|file| std::fs::write(run.folder.join(file), "{}").unwrap());
            run
        };
        let runs = [
            run("newer", Some("adapter_config.json"), true, 2),
            run("older", Some("adapter_config.json"), true, 1),
            run("directions", Some("vectors.safetensors"), true, 3),
            run("nothing", None, true, 4),
            run("stopped", None, false, 5),
        ];
        assert_eq!(to_talk_to(&runs).unwrap().name, "newer");
        assert!(to_talk_to(&runs[2..]).is_none());
    }

    #[test]
    fn a_run_that_a_process_trains_is_not_called_stopped() {
        let run = |finished, running, checkpoint| {
            state(&Listed { running, checkpoint, ..listed("calm-1", Path::new("runs"), finished, 0) })
        };
        assert_eq!(run(false, true, Some(1200)), "running, saved at step 1,200");
        assert_eq!(run(false, false, None), "stopped, nothing saved");
        assert_eq!(run(true, true, Some(3)), "finished");
    }

    #[test]
    fn a_run_without_an_end_has_no_number_of_steps() {
        let run = |steps| Listed { steps, ..listed("calm-1", Path::new("runs"), false, 0) };
        assert_eq!((steps(&run(7)), steps(&run(u64::from(ENDLESS)))), (Some(7), None));
    }
}
