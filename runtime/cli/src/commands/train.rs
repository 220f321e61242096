//! `tunebox train`: one run, which ends with an artifact.

mod again;
mod profile;
mod report;
mod sample;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_foundation::paths;
use tunebox_training::data::Shape;
use tunebox_training::{Plan, RunSettings, carry_out, plan};

use super::trust::Trusting;
use super::{Ending, Outcome, worker};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use profile::GuestProfile;
use report::report;
pub(super) use report::tell;
use sample::Before;
use tunebox_foundation::format::bytes;
pub(super) use watch::Watch;

/// A run, as the person described it.
#[derive(Debug, Args)]
pub(crate) struct Train {
    /// A run file; without one, `--model` and `--data` say what to train on what
    run: Option<PathBuf>,
    /// The tiny model and data that come with tunebox, whatever a folder's `run.toml` says: those of the method, or where
    /// it is not built in, of the first that learns from such records; `--data` names others
    #[arg(long, conflicts_with = "run")]
    sample: bool,
    /// A built-in method, a method folder, a `.wasm` file, or a package in the store: `NAME` or `NAME@VERSION`; with
    /// `--help`, its settings are listed
    #[arg(long)]
    method: Option<String>,
    /// A model: folder, `.gguf` file, or hub name
    #[arg(long)]
    model: Option<String>,
    /// What the frozen base is kept in: `nf4`, 4 bits; as in the model's files without it
    #[arg(long)]
    precision: Option<String>,
    /// A JSONL file
    #[arg(long)]
    data: Option<String>,
    /// Sets a key of the run file, as in `train.rate=1e-4`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The name of the run's folder
    #[arg(long)]
    name: Option<String>,
    /// `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long)]
    device: Option<String>,
    /// Go on with a run that was stopped
    #[arg(long)]
    resume: bool,
    /// Only plan: check everything, run no step
    #[arg(long)]
    dry_run: bool,
    /// Run a method or verifier that is not built in inside this process, without a worker between; for those you trust
    #[arg(long)]
    in_process: bool,
    /// Write where the method's own time goes into this file, which https://profiler.firefox.com opens
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    guest_profile: Option<PathBuf>,
    #[command(flatten)]
    trusting: Trusting,
}

impl Train {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let mut settings = self.settled(terminal, global.offline)?;
        let before = self.sample.then(|| Before::of(&settings));
        if self.dry_run {
            show_plan(terminal, &plan(settings)?);
            terminal.next("the same command without `--dry-run`");
            return Ok(Ending::Done);
        }
        let stop = on_interrupt()?;
        let mut watch = Watch::new(terminal);
        let worker = if self.in_process { None } else { Some(worker::worker()?) };
        let profile = self.guest_profile.as_deref();
        let profile = profile.map(|path| GuestProfile::begin(path, &mut settings, self.in_process)).transpose()?;
        let ended = carry_out(settings, worker.as_ref(), &mut watch, &stop);
        watch.clear();
        let profiled = profile.map_or(Ok(()), |profile| profile.write(terminal));
        let ending = report(terminal, &ended?, before.as_ref())?;
        profiled.map(|()| ending)
    }

    /// The settings, with every signer decided about.
    fn settled(&self, terminal: Terminal, offline: bool) -> Result<RunSettings, Failure> {
        let settings = self.settings(offline)?;
        self.trusting.settle(terminal, &settings)?;
        Ok(settings)
    }

    /// The run file, the sample, or the flags alone; flags and `--set` on top.
    pub(crate) fn settings(&self, offline: bool) -> Result<RunSettings, Failure> {
        let overrides = self.overrides();
        let mut settings = match (&self.run, self.sample) {
            (_, true) => RunSettings::sample(&overrides)?,
            (Some(path), _) if path.is_dir() => return Err(no_run_file(path)),
            (Some(path), _) => RunSettings::load(path, &overrides)?,
            (None, false) if self.model.is_none() || self.data.is_none() => {
                return Err(Failure::usage(
                    "there is nothing to train",
                    "`tunebox train --sample` trains what comes with tunebox; else give a run file, or `--model` and `--data`",
                ));
            }
            (None, false) => RunSettings::from_overrides(&overrides)?,
        };
        settings.resume = self.resume;
        settings.offline = offline;
        settings.compiling = if self.in_process { worker::compiling_here() } else { worker::compiling()? };
        Ok(settings)
    }

    /// Flags are short forms of `--set`; an explicit `--set` comes last and so decides.
    fn overrides(&self) -> Vec<String> {
        let default_method = (self.run.is_none() && !self.sample && self.method.is_none()).then(|| "lora".to_owned());
        let flags = [
            ("model.path", self.model.clone()),
            ("model.precision", self.precision.clone()),
            ("data.path", self.data.clone()),
            ("method.use", self.method.clone().or(default_method)),
            ("run.name", self.name.clone()),
            ("train.device", self.device.clone()),
        ];
        let quoted = flags
            .into_iter()
            .filter_map(|(key, value)| value.map(|value| format!("{key}={}", toml::Value::String(value))));
        quoted.chain(self.set.iter().cloned()).collect()
    }
}

/// A folder in the place of a run file, and what was probably meant.
fn no_run_file(folder: &Path) -> Failure {
    let shown = paths::simplify(folder);
    let what = format!("`{}` is a folder, a run file is wanted", shown.display());
    let holds = |name: &str| folder.join(name).is_file();
    let hint = if holds("run.toml") {
        format!("`tunebox train {}`", shown.join("run.toml").display())
    } else if holds("Cargo.toml") || holds("pyproject.toml") {
        format!("`tunebox train --sample --method {}` trains with the method in it", shown.display())
    } else {
        "give a run file, or `--model` and `--data`".to_owned()
    };
    Failure::usage(what, hint)
}

/// A flag that the first Ctrl-C raises; the second ends the program at once.
pub(super) fn on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    })
    .map_err(|error| Failure::usage(format!("Ctrl-C cannot be heard: {error}"), "run it without another handler"))?;
    Ok(stop)
}

/// What a plan says, for a person or a machine.
pub(super) fn show_plan(terminal: Terminal, plan: &Plan) {
    if terminal.json {
        terminal.object(json!({ "event": "plan", "plan": plan.run.summary }));
        return;
    }
    watch::card(terminal, &plan.run.summary, &plan.run.folder, None);
    for text in &plan.run.warnings {
        terminal.say("Warning", text);
    }
    let memory = &plan.run.summary.memory;
    let beside = if plan.run.summary.device == "cpu" { "program" } else { "widened matrix" };
    terminal.say(
        "Memory",
        format!(
            "about {}: weights {}, training {}, activations {}, scratch {}, head {}, {beside} {}",
            bytes(memory.total()),
            bytes(memory.weights),
            bytes(memory.training),
            bytes(memory.activations),
            bytes(memory.scratch),
            bytes(memory.head),
            bytes(memory.runtime)
        ),
    );
    if plan.run.data.shape == Shape::Prompts {
        terminal.say("Note", of_completions(plan.run.method.completions()));
    }
    let limits: Vec<String> = plan
        .run
        .method
        .limits
        .changed()
        .map(|(limit, value)| format!("{} {}", limit.name, limit.unit.show(&value)))
        .collect();
    if !limits.is_empty() {
        terminal.say("Limits", format!("{}; the others as usual", limits.join(", ")));
    }
}

/// What the forecast of memory takes of the completions of a prompt.
fn of_completions(count: Option<u64>) -> String {
    match count {
        Some(count) => format!("memory is for {count} completions of each prompt, as long as they may become"),
        None => "how many completions the method writes is not known: memory is for as many as may wait for their \
                 backward pass"
            .to_owned(),
    }
}
