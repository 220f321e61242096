//! `tunebox check`: checks a run file or a component without training, and estimates memory, time, energy and price.

use std::env::temp_dir;
use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_foundation::files::{FileError, temporary_folder};
use tunebox_package::{Package, Reference, World};
use tunebox_sandbox::confinement::MemoryLimit;
use tunebox_sandbox::{CodeOptions, Compiling, Engine, Grants, Limits};
use tunebox_training::plan::{free, no_effect_warning, open_package};
use tunebox_training::{Listed, Plan, RunSettings, confine_memory, memory_of_plan, plan, runs, try_steps};

use crate::access::Access;
use crate::arguments::{Global, RUN_FILE};
use crate::key_flags::KeyFlags;
use crate::package::build::show_types;
use crate::package::describe::{expect_no_run, train_built_command, usage_command};
use crate::package::trust::TrustOptions;
use crate::processes::compile_settings;
use crate::run::plan::show_plan;
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use tunebox_foundation::format::{bytes, duration, pluralize};

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Run file; folder of a method, verifier or environment; `.wasm` file; or package in the store
    #[arg(default_value = RUN_FILE)]
    subject: PathBuf,
    #[command(flatten)]
    keys: KeyFlags,
    /// Set a key of the run file; for a method, a limit as `limits.NAME=VALUE`. Can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Execute a few steps in a temporary folder, and estimate time, energy and price of the run from them. Exit with
    /// code 1 instead if the estimated memory is more than the free memory
    #[arg(long)]
    fit: bool,
    /// Number of processes (ranks) to plan the run for: shows what each holds, and how large the gradients are that
    /// they send
    #[arg(long, value_name = "COUNT", conflicts_with = "fit", value_parser = value_parser!(u16).range(2..=4096))]
    ranks: Option<u16>,
    #[command(flatten)]
    trust: TrustOptions,
}

impl Check {
    /// Asks whether to accept what the run file requests, fetches the model and compiles the components. Returns the
    /// files that the command reads, and with `--fit` a folder for the steps. `None` for a run on an accelerator, and
    /// for a method: the check compiles it in a child process, and reads no model.
    pub(super) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        if !self.is_run_file() {
            return Ok(None);
        }
        let mut settings = self.read_settings(global)?;
        find_existing_run(&mut settings)?;
        if !global.supervised {
            self.trust.check_run(terminal, &settings)?;
        }
        let access = Access::prepare_run(terminal, &settings, global)?;
        let own = [self.subject.clone(), PathBuf::from(&settings.file.run.folder)];
        let Some(access) = access else { return Ok(None) };
        let is_parent = self.fit && !global.supervised;
        let scratch = is_parent.then(|| temporary_folder(&temp_dir(), "tunebox-check-")).transpose()?;
        let write = if self.fit { vec![temp_dir()] } else { Vec::new() };
        Ok(Some(Access { read: access.read.into_iter().chain(own).collect(), write, scratch, ..access }))
    }

    /// Whether the argument is a run file, by its extension `toml`; else it names a method. Does not look for the file.
    fn is_run_file(&self) -> bool {
        self.subject.extension().is_some_and(|extension| extension == "toml")
    }

    /// Reads the settings of the run file with the flags and `--set` on top. Fails with a hint if no run file was named
    /// and the present folder has no `run.toml`.
    fn read_settings(&self, global: &Global) -> Result<RunSettings, Failure> {
        if self.subject == Path::new(RUN_FILE) && !self.subject.exists() {
            let hint = "`tunebox init` writes one; or name a run file, or a method";
            return Err(Failure::usage(format!("there is no `{RUN_FILE}` in this folder"), hint));
        }
        let mut settings = RunSettings::load(&self.subject, &self.keys.overrides(&self.set)?)?;
        settings.offline = global.offline;
        settings.compiling = compile_settings()?;
        Ok(settings)
    }

    /// Checks a run file if the argument ends in `.toml`, else a component.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        if self.is_run_file() { self.check_run(terminal, global) } else { self.check_component(terminal) }
    }

    /// Limits the memory of this process, plans the run without a step, and shows plan, precision and estimated memory.
    /// If the named run exists, shows a note and plans a new run. With `--fit`, exit code 1 if the memory does not fit,
    /// else executes a few steps and shows what the run will cost.
    fn check_run(&self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut settings = self.read_settings(global)?;
        let existing = find_existing_run(&mut settings)?;
        if let Some(run) = &existing {
            let (name, state) = (&run.name, if run.finished { "is finished" } else { "has begun" });
            terminal.note(format!("the run `{name}` {state}; this checks a new run with the same settings"));
        }
        self.ranks.into_iter().for_each(|count| settings.plan_for_ranks(count.into()));
        let limit = MemoryLimit::set(memory_of_plan(&settings)).map_err(FileError::at("used", &self.subject))?;
        // Before the model is opened: the memory for it is part of the estimate.
        let free = free(&settings);
        let plan = plan(settings)?;
        drop(limit);
        show_plan(terminal, &plan);
        let precision = plan.run.summary.precision.iter().map(|(name, precision)| format!("{name} {precision}"));
        terminal.status("Precision", precision.collect::<Vec<_>>().join(", "));
        let fits = show_memory_fit(terminal, &plan, free);
        if self.fit && !fits {
            return Ok(ExitStatus::Code(Exit::No));
        }
        if self.fit {
            confine_memory(&plan.run).map_err(FileError::at("used", &self.subject))?;
            show_cost(terminal, plan)?;
        }
        let name = if existing.is_some() { " --name NAME" } else { "" };
        let launcher = self.ranks.map_or_else(String::new, |count| format!("mpirun -n {count} "));
        let subject = quote(&self.subject.display().to_string());
        terminal.suggest(format!("{launcher}tunebox train {subject}{name}"));
        Ok(ExitStatus::Success)
    }

    /// Checks a method, verifier or environment as before a run, without running it: checks its signer, compiles it,
    /// and checks its imports, exports and sizes against the contract, the default grants and its limits. These are the
    /// default limits, with those of its folder's `run.toml` and of `--set` on top. Shows name and version, warnings,
    /// and how to use it; for a folder in Python that was built here also the findings of the type checker. Emits a
    /// `checked` event.
    ///
    /// Fails for the folder of a run, for a flag that only run files have, and for a component that is refused.
    fn check_component(&self, terminal: Terminal) -> CommandResult {
        expect_no_run(&self.subject)?;
        if let Some(flag) = self.keys.first() {
            let what = format!("`{flag}` is for run files, and `{}` is a component", self.subject.display());
            return Err(Failure::usage(what, "leave it out, or name a run file"));
        }
        let limits = RunSettings::limits_of_method(&self.subject.to_string_lossy(), &self.set)?;
        let found = Reference::parse(&self.subject.to_string_lossy(), Path::new("."))?;
        self.trust.check_package(terminal, &found)?;
        let package = open_package(&found, Path::new("."))?;
        let imports = admit(terminal, &package, &limits, !matches!(found, Reference::Builtin(_)))?;
        let manifest = &package.manifest;
        let granted = if manifest.world.is_method() { ", all imports granted" } else { "" };
        terminal.status(title(manifest.world), format!("{} {}{granted}", manifest.name, manifest.version));
        if manifest.world.is_method()
            && let Some(text) = no_effect_warning(&imports)
        {
            terminal.warn(text);
        }
        if let Reference::Folder(folder) = &found {
            show_types(terminal, folder);
        }
        let size = package.bytes.len() as u64;
        terminal.suggest(match &found {
            Reference::Folder(folder) if manifest.world.is_method() => {
                train_built_command(folder, false, folder, size, &imports)
            }
            _ => usage_command(&package, &imports, &self.subject.to_string_lossy()),
        });
        terminal.event(json!({ "event": "checked", "name": manifest.name, "imports": imports }));
        Ok(ExitStatus::Success)
    }
}

/// Compiles the component of a package and checks it against its world and the limits, for a method also against the
/// default grants. `is_untrusted`: it is not built in. Shows a warning of the engine, if any. Returns the imports of a
/// method; others have none.
fn admit(terminal: Terminal, package: &Package, limits: &Limits, is_untrusted: bool) -> Result<Vec<String>, Failure> {
    let (bytes, manifest) = (&package.bytes, &package.manifest);
    let instructions = match manifest.world {
        World::Method => limits.step_instructions,
        World::Verifier => limits.verifier_instructions,
        World::Environment => limits.environment_instructions,
    };
    let code = CodeOptions { count_instructions: instructions > 0, ..CodeOptions::default() };
    let compiling = Compiling { limits: limits.clone(), code, ..compile_settings()? };
    let engine = Engine::with(compiling)?.for_untrusted(is_untrusted);
    let imports = match manifest.world {
        World::Method => engine.admit(bytes, &manifest.name, &Grants::default(), limits)?.imports().to_vec(),
        World::Verifier => engine.admit_verifier(bytes, &manifest.name, limits).map(|_| Vec::new())?,
        World::Environment => engine.admit_environment(bytes, &manifest.name, limits).map(|_| Vec::new())?,
    };
    if let Some(text) = engine.warning() {
        terminal.warn(text);
    }
    Ok(imports)
}

/// The title of the line that names a component of this world.
fn title(world: World) -> &'static str {
    match world {
        World::Method => "Method",
        World::Verifier => "Verifier",
        World::Environment => "Environment",
    }
}

/// Executes a few steps of a plan in a temporary folder, and shows what the whole run will cost. Emits an `estimated`
/// event.
fn show_cost(terminal: Terminal, plan: Plan) -> Result<(), Failure> {
    terminal.status("Timing", "a few steps of the run, none of which is kept");
    let folder = temporary_folder(&temp_dir(), "tunebox-trial-")?;
    let trial = try_steps(plan, folder.path())?;
    let from = format!("estimated from {} in {}", pluralize(trial.steps as u64, "step"), duration(trial.seconds));
    terminal.status("Cost", format!("about {}\n{from}", trial.cost));
    terminal.event(json!({
        "event": "estimated", "cost": trial.cost, "steps": trial.steps, "seconds": trial.seconds,
    }));
    Ok(())
}

/// Finds the run that the run file names, and `None` if it names none or the run does not exist. If it exists, removes
/// the name from the settings, because planning fails for the name of an existing run.
fn find_existing_run(settings: &mut RunSettings) -> Result<Option<Listed>, tunebox_training::Error> {
    let table = &mut settings.file.run;
    let Some(name) = &table.name else { return Ok(None) };
    let existing = runs(Path::new(&table.folder))?.into_iter().find(|run| run.name == *name);
    if existing.is_some() {
        table.name = None;
    }
    Ok(existing)
}

/// Shows the estimated memory beside the `free` bytes, and, if it does not fit, settings that need less. Returns true
/// if it fits. Returns true and shows nothing if the free memory is unknown.
fn show_memory_fit(terminal: Terminal, plan: &Plan, free: Option<u64>) -> bool {
    let Some(free) = free else { return true };
    let needed = plan.run.summary.memory.total();
    let fits = needed <= free;
    let verdict = if fits { "ok" } else { "does not fit" };
    terminal.status("Fit", format!("{} of {} free: {verdict}", bytes(needed), bytes(free)));
    if !fits {
        for (setting, then) in plan.smaller() {
            terminal.status("Hint", format!("`--set {setting}` needs about {}", bytes(then)));
        }
    }
    fits
}
