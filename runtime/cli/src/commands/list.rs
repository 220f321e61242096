//! `tunebox list`: what is here: packages, models, runs.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tunebox_model::hub::Hub;
use tunebox_package::builtin;
use tunebox_package::home::existing;
use tunebox_package::store::{Store, Stored};
use tunebox_training::Listed;

use super::{Ending, Outcome};
use crate::terminal::diagnostic::Failure;
use crate::terminal::{Terminal, bytes, counted, grouped};

/// Where runs go unless a run file says otherwise.
const RUNS: &str = "runs";

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
            if let Some(run) = runs.iter().rfind(|run| run.finished) {
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
        let state = match (run.finished, run.checkpoint) {
            (true, _) => "finished".to_owned(),
            (false, Some(step)) => format!("stopped, saved at step {}", grouped(step)),
            (false, None) => "stopped, nothing saved".to_owned(),
        };
        [run.name.clone(), run.method.clone(), format!("on {}", run.model), counted(run.steps, "step"), state]
    };
    let object = |run: &Listed| {
        let mut value = json!(run);
        value["event"] = "run".into();
        value
    };
    show(terminal, "Runs", runs, row, object);
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
        terminal.data(cells.trim_end());
    }
}
