//! `tunebox check`: everything that can be known about a run or a method without a step.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_package::Reference;
use tunebox_sandbox::{CompileLimits, Compiling, Engine, Grants, Limits};
use tunebox_training::plan::{free, held, without_effect};
use tunebox_training::{Listed, Plan, RunSettings, plan, runs};

use super::build::training_with;
use super::subject::expect_method;
use super::trust::Trusting;
use super::{Ending, Outcome, train, worker};
use crate::arguments::Global;
use crate::terminal::Terminal;
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A run file, a method folder, a `.wasm` file, or a package in the store
    #[arg(default_value = "run.toml")]
    subject: PathBuf,
    /// Sets a key of the run file; of a method, one of its limits
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Whether the run fits into the memory that is free; exit code 1 if not
    #[arg(long)]
    fit: bool,
    #[command(flatten)]
    trusting: Trusting,
}

impl Check {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        if self.subject.extension().is_some_and(|extension| extension == "toml") {
            self.check_run(terminal, global)
        } else {
            self.check_method(terminal)
        }
    }

    fn check_run(&self, terminal: Terminal, global: &Global) -> Outcome {
        let mut settings = RunSettings::load(&self.subject, &self.set)?;
        settings.offline = global.offline;
        settings.compiling = worker::compiling()?;
        let there = carried_out(&mut settings)?;
        if let Some(run) = &there {
            let (name, state) = (&run.name, if run.finished { "is finished" } else { "has begun" });
            terminal
                .say("Note", format!("the run `{name}` {state}; what follows is about another of the same settings"));
        }
        self.trusting.settle(terminal, &settings)?;
        // Before the model is opened: what this process takes for it is part of what the run needs.
        let free = free(&settings);
        let plan = plan(settings)?;
        train::show_plan(terminal, &plan);
        show_precision(terminal, &plan);
        let fits = show_fit(terminal, &plan, free);
        if self.fit && !fits {
            return Ok(Ending::Exit(Exit::No));
        }
        let name = if there.is_some() { " --name NAME" } else { "" };
        terminal.next(format!("tunebox train {}{name}", self.subject.display()));
        Ok(Ending::Done)
    }

    /// The limits of a method, with what `--set limits.NAME=VALUE` changes.
    fn limits(&self) -> Result<Limits, tunebox_training::Error> {
        let needed = ["model.path=.", "data.path=.", "method.use=."].map(str::to_owned);
        let settings = RunSettings::from_overrides(&[&needed, self.set.as_slice()].concat())?;
        Ok(settings.file.limits.of_method())
    }

    /// Admits the component as a run would, with the default grants.
    fn check_method(&self, terminal: Terminal) -> Outcome {
        expect_method(&self.subject)?;
        let limits = self.limits()?;
        let found = Reference::parse(&self.subject.to_string_lossy(), Path::new("."))?;
        self.trusting.settle_one(terminal, &found)?;
        let compile = CompileLimits { seconds: limits.compile_seconds, bytes: limits.compile_memory };
        let compiling = Compiling { limits: compile, ..worker::compiling()? };
        let engine = Engine::with(compiling)?.of_stranger(!matches!(found, Reference::Builtin(_)));
        let package = held(&found, Path::new("."))?;
        let method = engine.admit(&package.bytes, &package.manifest.name, &Grants::default(), &limits)?;
        if let Some(text) = engine.warning() {
            terminal.say("Warning", text);
        }
        terminal.say("Method", format!("{} {}, all imports granted", package.manifest.name, package.manifest.version));
        if package.manifest.world.is_method()
            && let Some(text) = without_effect(method.imports())
        {
            terminal.say("Warning", text);
        }
        terminal.next(training_with(self.subject.display(), package.bytes.len() as u64));
        if terminal.json {
            terminal.object(json!({ "event": "checked", "name": package.manifest.name, "imports": method.imports() }));
        }
        Ok(Ending::Done)
    }
}

/// The run that a run file names, if it was begun. Its name is left open then: a plan never enters a run that is there.
fn carried_out(settings: &mut RunSettings) -> Result<Option<Listed>, tunebox_training::Error> {
    let table = &mut settings.file.run;
    let Some(name) = &table.name else { return Ok(None) };
    let there = runs(Path::new(&table.folder))?.into_iter().find(|run| run.name == *name);
    if there.is_some() {
        table.name = None;
    }
    Ok(there)
}

/// What the run keeps in which type.
fn show_precision(terminal: Terminal, plan: &Plan) {
    let kept: Vec<String> = plan.run.summary.precision.iter().map(|(name, kept)| format!("{name} {kept}")).collect();
    terminal.say("Kept", kept.join(", "));
}

/// Whether the run fits into the memory that is free, and what would make it smaller where it does not. True as well
/// where nobody knows what is free.
fn show_fit(terminal: Terminal, plan: &Plan, free: Option<u64>) -> bool {
    let Some(free) = free else { return true };
    let needed = plan.run.summary.memory.total();
    let fits = needed <= free;
    let verdict = if fits { "ok" } else { "too much" };
    terminal.say("Fit", format!("{} of {} free: {verdict}", bytes(needed), bytes(free)));
    if !fits {
        for (setting, then) in plan.smaller() {
            terminal.say("Hint", format!("`--set {setting}` needs about {}", bytes(then)));
        }
    }
    fits
}
