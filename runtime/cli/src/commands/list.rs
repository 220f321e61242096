//! `tunebox list`: lists runs, packages and models.

mod runs;

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tunebox_model::hub::Hub;
use tunebox_package::builtin;
use tunebox_package::home::existing;
use tunebox_package::store::{Store, Stored};
use tunebox_training::{Listed, RUNS_FOLDER, newest_checkpoint};

use self::runs::print_runs;
use crate::run::summary::{can_answer, chat_command};
use crate::terminal::{CommandResult, ExitStatus, Terminal, escape};
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List only packages: those in the store and the built-in ones
    #[arg(long, conflicts_with = "runs")]
    packages: bool,
    /// List only the runs in `runs`
    #[arg(long)]
    runs: bool,
}

impl List {
    /// Prints runs, packages and models, or only one kind with `--packages` or `--runs`. Suggests to chat with the
    /// newest printed run that has a model, else to inspect the last printed package of the store, else to train the
    /// sample.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let runs = if self.packages { Vec::new() } else { tunebox_training::runs(Path::new(RUNS_FOLDER))? };
        print_runs(terminal, &runs);
        let mut stored = Vec::new();
        if !self.runs {
            stored = existing()?.map_or_else(|| Ok(Vec::new()), |home| Store::open(&home)?.list())?;
            print_packages(terminal, &stored);
        }
        if !self.runs && !self.packages {
            let models = Hub::from_environment(true).cached_models();
            print_table(terminal, "Models from the hub", &models, |name| {
                (vec![name.clone()], json!({ "event": "model", "name": name }))
            });
        }
        let chat = newest_chat_run(&runs).map(|run| chat_command(&run.folder));
        let inspect = stored.last().map(|last| format!("tunebox inspect {}@{}", last.name, last.version));
        terminal.suggest(chat.or(inspect).unwrap_or_else(|| "tunebox train --sample".to_owned()));
        Ok(ExitStatus::Success)
    }
}

/// Prints the packages in the store, then built-in methods and verifiers.
fn print_packages(terminal: Terminal, stored: &[Stored]) {
    print_table(terminal, "Packages in the store", stored, |package| {
        let Stored { name, version, digest, signer, source, size, .. } = package;
        let signed = signer.as_ref().map_or_else(|| "unsigned".to_owned(), |key| format!("by {key}"));
        let row = vec![format!("{name}@{version}"), bytes(*size), signed, format!("from {source}")];
        let object = json!({
            "event": "package", "name": name, "version": version, "bytes": size,
            "digest": format!("sha256:{digest}"), "signer": signer, "source": source,
        });
        (row, object)
    });
    for (title, world, list) in
        [("Built-in methods", "method", builtin::list()), ("Built-in verifiers", "verifier", builtin::verifiers())]
    {
        print_table(terminal, title, list, |builtin| {
            let (name, size) = (builtin.name, builtin.bytes.len() as u64);
            let object = json!({ "event": "built-in", "name": name, "world": world, "bytes": size });
            (vec![name.to_owned(), bytes(size)], object)
        });
    }
}

/// Finds the most recently changed finished run with an adapter, a model or steering vectors; if there is none, the
/// most recently changed unfinished run with a checkpoint.
fn newest_chat_run(runs: &[Listed]) -> Option<&Listed> {
    let saved = |run: &&Listed| newest_checkpoint(&run.folder).is_ok_and(|found| found.is_some());
    let done = runs.iter().filter(|run| run.finished && can_answer(&run.folder)).max_by_key(|run| run.changed);
    done.or_else(|| runs.iter().filter(|run| !run.finished && saved(run)).max_by_key(|run| run.changed))
}

/// Prints a title and a table, or one JSON object for each entry with `--json`. `describe` returns the cells and the
/// object of an entry. Prints nothing if there are no entries.
fn print_table<E>(terminal: Terminal, title: &str, entries: &[E], describe: impl Fn(&E) -> (Vec<String>, Value)) {
    let (rows, objects): (Vec<_>, Vec<_>) = entries.iter().map(describe).unzip();
    objects.into_iter().for_each(|object| terminal.event(object));
    if terminal.json || rows.is_empty() {
        return;
    }
    terminal.print_line(title);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("  {cell:width$}", width = width(column)));
        terminal.print_line(escape(cells.collect::<String>().trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A run that changed `seconds` after the epoch.
    pub(super) fn listed(name: &str, folder: &Path, finished: bool, seconds: u64) -> Listed {
        Listed {
            name: name.into(),
            folder: folder.join(name),
            method: "calm 0.1.0".into(),
            model: "tiny".into(),
            steps: 3,
            finished,
            running: false,
            checkpoint: None,
            loss: None,
            best: None,
            bytes: 0,
            changed: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn only_a_run_that_can_answer_is_offered_for_chat() {
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
            run("nothing", None, true, 4),
            run("stopped", None, false, 5),
            run("vectors", Some("vectors.safetensors"), true, 3),
        ];
        assert_eq!(newest_chat_run(&runs[..4]).unwrap().name, "newer");
        assert!(newest_chat_run(&runs[2..4]).is_none());
        assert_eq!(newest_chat_run(&runs).unwrap().name, "vectors");
    }
}
