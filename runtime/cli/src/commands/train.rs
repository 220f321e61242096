//! `tunebox train`: one run, which ends with an artifact.

mod profile;
mod sample;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::json;
use tunebox_compute::explain::Exit;
use tunebox_compute::precision::Base;
use tunebox_training::data::Shape;
use tunebox_training::{Outcome as Ended, Plan, RunSettings, base_precision, carry_out, plan};

use super::trust::Trusting;
use super::{Ending, Outcome, worker};
use crate::arguments::Global;
use crate::terminal::diagnostic::Failure;
use crate::terminal::{Terminal, bytes, duration, grouped};
use profile::GuestProfile;
use sample::Before;
pub(super) use watch::Watch;

/// A run, as the person described it.
#[derive(Debug, Args)]
pub(crate) struct Train {
    /// A run file; without one, `--model` and `--data` say what to train on what
    run: Option<PathBuf>,
    /// The tiny model and data that come with tunebox
    #[arg(long, conflicts_with = "run")]
    sample: bool,
    /// A built-in method, a method folder, a `.wasm` file, or a package in the store: `NAME` or `NAME@VERSION`
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
        let ending = self.report(terminal, ended?, before.as_ref())?;
        profiled.map(|()| ending)
    }

    /// The same for the method of a folder that its author works on: in this process, on the sample unless the run
    /// is named.
    pub(super) fn of_its_author(mut self, folder: &Path) -> Result<Self, Failure> {
        let unfit = [
            (self.method.is_some(), "`--method`", "the method is that of the folder: `tunebox dev FOLDER`"),
            (self.dry_run, "`--dry-run`", "`tunebox train --dry-run` plans without a step"),
            (self.guest_profile.is_some(), "`--guest-profile`", "`tunebox train --guest-profile` records one version"),
        ];
        if let Some((_, flag, hint)) = unfit.into_iter().find(|(given, ..)| *given) {
            return Err(Failure::usage(format!("`tunebox dev` has no {flag}"), hint));
        }
        self.sample |= self.run.is_none() && self.model.is_none() && self.data.is_none();
        self.method = Some(folder.display().to_string());
        self.in_process = true;
        Ok(self)
    }

    /// Whether nobody said what the run is called, but a sample perhaps.
    pub(super) fn leaves_name_open(&self) -> bool {
        self.name.is_none() && self.run.is_none() && !self.resume
    }

    /// The settings, with every signer decided about.
    pub(super) fn settled(&self, terminal: Terminal, offline: bool) -> Result<RunSettings, Failure> {
        let settings = self.settings(offline)?;
        self.trusting.settle(terminal, &settings)?;
        Ok(settings)
    }

    /// The run file, the sample, or the flags alone; flags and `--set` on top.
    pub(crate) fn settings(&self, offline: bool) -> Result<RunSettings, Failure> {
        let overrides = self.overrides();
        let mut settings = match (&self.run, self.sample) {
            (_, true) => RunSettings::sample(&overrides)?,
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

    /// Says how a run ended.
    pub(super) fn tell(&self, terminal: Terminal, ended: Ended) -> Outcome {
        self.report(terminal, ended, None)
    }

    fn report(&self, terminal: Terminal, ended: Ended, before: Option<&Before>) -> Outcome {
        let summary = ended.summary();
        let folder = summary.folder.display();
        if let Ended::Interrupted(_) = ended {
            let saved =
                summary.checkpoint.as_ref().map_or_else(|| folder.to_string(), |(_, path)| path.display().to_string());
            terminal.say("Stopped", format!("at step {} of {}, saved {saved}", summary.step, summary.total));
            terminal.next(format!("the same command with `--resume`{}", self.naming(&summary.name)));
            finished(terminal, &ended);
            return Ok(Ending::Exit(Exit::Interrupted));
        }
        let metric = |name: &str| summary.last.as_ref().and_then(|step| step.metric(name));
        let loss = metric("loss").map_or(String::new(), |loss| format!(", loss {loss:.3}"));
        let accuracy = metric("accuracy").map_or(String::new(), |value| format!(", accuracy {value:.2}"));
        terminal
            .say("Done", format!("{} steps in {}{loss}{accuracy}", grouped(summary.total), duration(summary.seconds)));
        let files: Vec<String> = summary
            .written
            .iter()
            .map(|file| {
                format!(
                    "{} {}",
                    file.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default(),
                    bytes(file.bytes)
                )
            })
            .collect();
        terminal.say("Wrote", format!("{folder}  {}", files.join(", ")));
        if let Some(before) = before {
            before.compare(terminal, &summary.folder)?;
        }
        // Directions alone are no model to talk to; they go on one.
        let alone = !summary.written.iter().any(|file| file.path.extension().is_some_and(|end| end == "json"));
        let quantised = alone && base_precision(&summary.folder)? == Some(Base::Nf4);
        let precision = if quantised { " --base-precision nf4" } else { "" };
        terminal.next(match alone {
            true => format!("tunebox chat MODEL --steer {folder}/vectors.safetensors{precision}"),
            false => format!("tunebox chat {folder}"),
        });
        finished(terminal, &ended);
        Ok(Ending::Done)
    }

    /// How the resuming command must name a run that got its name by itself.
    fn naming(&self, name: &str) -> String {
        if self.name.is_some() || self.run.is_some() { String::new() } else { format!(" and `--name {name}`") }
    }
}

fn finished(terminal: Terminal, ended: &Ended) {
    let summary = ended.summary();
    if terminal.json {
        terminal.object(json!({
            "event": if matches!(ended, Ended::Finished(_)) { "finished" } else { "stopped" },
            "name": summary.name, "folder": summary.folder, "step": summary.step, "total": summary.total,
            "seconds": summary.seconds, "tokens": summary.tokens,
            "checkpoint": summary.checkpoint.as_ref().map(|(_, path)| path),
        }));
    }
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
