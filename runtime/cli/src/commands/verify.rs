//! `tunebox verify`: verifies a package's signature, or compares a finished run with its `run.lock` and replays it.

mod package;

use std::env::temp_dir;
use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_foundation::files::{FileError, temporary_folder};
use tunebox_foundation::format::{duration, pluralize};
use tunebox_package::Reference;
use tunebox_package::home::home;
use tunebox_training::plan::{fetch, open_package};
use tunebox_training::{
    Comparison, Event, Observer, Replay, RunSettings, UnconfirmedComponents, Verification, is_run, list_read_files,
    package_files, verify,
};

use crate::access::{Access, compile_run, computes_on_cpu};
use crate::arguments::Global;
use crate::package::trust::TrustOptions;
use crate::processes::{compile_settings, stop_on_interrupt, worker_program};
use crate::run::summary::chat_command;
use crate::terminal::progress::step_bar;
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Folder of a finished run; or a package: `NAME@VERSION` in the store, or a `.wasm` file
    #[arg(value_name = "RUN|PACKAGE")]
    subject: PathBuf,
    /// Run all steps again and compare every metric and every bit of the artifact. Methods and verifiers that the run
    /// file names by a path are compiled and run only if `--set` names them too
    #[arg(long, conflicts_with = "signer")]
    replay: bool,
    /// Set a key of the run file, for example `method.use=./calm.wasm` or `data.path=answers.jsonl`. Can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "signer")]
    set: Vec<String>,
    /// Public key that must have signed the package, or a file with it. Without it, exit code 1 if the package is
    /// unsigned, or if a file is signed by an unknown signer
    #[arg(long, value_name = "KEY")]
    signer: Option<String>,
    /// Replay inside this process instead of a worker process. Only for methods that you trust
    #[arg(long, requires = "replay")]
    in_process: bool,
    /// Accept the permissions and raised limits of the run without asking
    #[arg(long, conflicts_with = "signer")]
    yes: bool,
}

impl Verify {
    /// Returns the files that the verification of a package reads; creates the home folder (`TUNEBOX_HOME`) for it, and
    /// ignores a failure. For a run, returns what [`prepare_run`](Self::prepare_run) does.
    pub(super) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        let Some(package) = package::find_package(&self.subject)? else { return self.prepare_run(terminal, global) };
        // The child cannot create that folder. The check of the signer says if it cannot be used.
        let _ = home();
        let own = [PathBuf::from("tunebox.lock")].into_iter().chain(self.signer.iter().map(PathBuf::from));
        Ok(Some(Access::read_only(package_files(&package).into_iter().chain(own).collect())))
    }

    /// Prepares the comparison of a run. In the parent process: asks whether to accept what the run file requests,
    /// fetches the model, and compiles the components, or none of them if the run file alone names one by a path.
    /// Returns the files that the command reads and writes, to which the child process is confined. Returns `None`, for
    /// no confinement, where the replay runs in a worker, where the run computes on an accelerator, with `--signer`,
    /// and for a folder without a readable run.
    fn prepare_run(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        // A run file that cannot be read is reported by the comparison. What it names by a path does not run.
        let Ok(mut settings) = RunSettings::load(&self.subject.join("run.toml"), &self.set) else { return Ok(None) };
        if self.signer.is_some() || !is_run(&self.subject) {
            return Ok(None);
        }
        if !global.supervised {
            TrustOptions::with_yes(self.yes).check_run_file(terminal, &settings, false)?;
        }
        if (self.replay && !self.in_process) || !computes_on_cpu(&settings.file.train.device) {
            return Ok(None);
        }
        (settings.offline, settings.compiling) = (global.offline, compile_settings()?);
        let mut access = Access::default();
        if global.supervised {
            access.read = list_read_files(&settings);
            access.read.push(self.subject.clone());
        } else {
            fetch(&settings)?;
            let opens = |found: Reference| open_package(&found, settings.project()).is_ok();
            let is_whole = settings.references().into_iter().all(|found| found.is_ok_and(opens));
            if is_whole && UnconfirmedComponents::find(&self.subject, &settings).is_none() {
                access.code = Some(compile_run(terminal, &settings, true)?);
            }
        }
        if self.replay && global.supervised {
            access.write.push(temp_dir());
        } else if self.replay {
            access.scratch = Some(temporary_folder(&self.parent_folder()?, ".replay-")?);
        }
        Ok(Some(access))
    }

    /// Returns the absolute path of the folder that the run's folder lies in.
    fn parent_folder(&self) -> Result<PathBuf, Failure> {
        let run = std::path::absolute(&self.subject).map_err(FileError::at("used", &self.subject))?;
        Ok(run.parent().unwrap_or(&run).to_owned())
    }

    /// Verifies a package, or compares a run with its lock and replays it if nothing changed. Exit code 4 for a changed
    /// run or a replay that differs.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let subject = self.subject.display();
        if let Some(package) = package::find_package(&self.subject)? {
            if self.replay || !self.set.is_empty() {
                let what = format!("`{subject}` is a package; `--replay` and `--set` are for runs");
                return Err(Failure::usage(what, "leave them out, or name the folder of a run"));
            }
            return package::verify_package(terminal, &package, self.signer.as_deref());
        }
        if self.signer.is_some() {
            let what = format!("`{subject}` is not a package; `--signer` is for packages");
            return Err(Failure::usage(what, "leave it out, or name a package: `NAME@VERSION`, or a `.wasm` file"));
        }
        let verification = verify(&self.subject, &self.set, global.offline, compile_settings()?)?;
        let changed = show_comparison(terminal, &verification);
        if changed > 0 {
            return Ok(show_changes(terminal, &verification, changed));
        }
        if !self.replay {
            return Ok(self.suggest_next(terminal, &verification));
        }
        let stop = stop_on_interrupt(None)?;
        let worker = worker_program(self.in_process)?;
        let mut progress = ReplayProgress { terminal, bar: None };
        // The child has a temporary folder for that, beside the run.
        let above = if self.in_process { temp_dir() } else { self.parent_folder()? };
        let replay = verification.replay(&above, worker.as_ref(), &mut progress, &stop)?;
        drop(progress);
        Ok(match replay {
            Some(replay) => self.show_replay(terminal, &replay),
            None => ExitStatus::Code(Exit::Interrupted),
        })
    }

    /// Suggests the next command after a comparison without changes. Returns success, or the error's exit code if a
    /// method or verifier could not be read.
    fn suggest_next(&self, terminal: Terminal, verification: &Verification) -> ExitStatus {
        if let Some(error) = &verification.unread {
            let hint = error.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
            terminal.suggest(format!("{hint}`--set` gives its present path, as in `--set method.use=PATH`"));
            return ExitStatus::Code(error.exit());
        }
        terminal.suggest(match &verification.unnamed {
            _ if verification.was_revised() => chat_command(&self.subject),
            Some(unnamed) => unnamed.command(),
            None if self.set.is_empty() => {
                format!("tunebox verify {} --replay", quote(&self.subject.display().to_string()))
            }
            None => "the same command with `--replay`".to_owned(),
        });
        ExitStatus::Success
    }

    /// Shows the result of a replay. Returns exit code 4, after showing the first differing metric and the differing
    /// artifacts, if the replay differs from the run.
    fn show_replay(&self, terminal: Terminal, replay: &Replay) -> ExitStatus {
        terminal.event(json!({
            "event": "replayed", "same": replay.same(), "steps": replay.steps, "seconds": replay.seconds,
            "artifact": replay.artifact, "first-difference": replay.first_difference,
        }));
        terminal.status("Replayed", format!("{} in {}", pluralize(replay.steps, "step"), duration(replay.seconds)));
        if replay.same() {
            terminal.status("Same", "every metric of every step, and every bit of the artifact");
            terminal.suggest(chat_command(&self.subject));
            return ExitStatus::Success;
        }
        show_differences(terminal, replay.first_difference.as_slice());
        show_differences(terminal, &replay.artifact);
        terminal
            .suggest("look at the first difference: the inputs are the same, so the program or the machine differs");
        ExitStatus::Code(Exit::Trust)
    }
}

/// Shows only a bar: the other events of the run were shown when it was trained.
struct ReplayProgress {
    terminal: Terminal,
    bar: Option<ProgressBar>,
}

impl Observer for ReplayProgress {
    /// Creates the bar at the first step and moves it at every step. Ignores other events.
    fn event(&mut self, event: &Event) {
        if let Event::Step(step) = event {
            let bar = self.bar.get_or_insert_with(|| step_bar(self.terminal, "replay", Some(step.total)));
            bar.set_position(step.step);
        }
    }
}

/// Shows that `changed` of the recorded files and settings differ now, and what to do. Returns exit code 4.
fn show_changes(terminal: Terminal, verification: &Verification, changed: usize) -> ExitStatus {
    terminal.status("Changed", format!("{changed} of the recorded files and settings"));
    if let Some(folder) = verification.changed_method() {
        terminal.note(format!("the method in `{}` was built again since the run", folder.display()));
    }
    terminal.suggest("restore them, or `tunebox train` for a new run with the present ones");
    ExitStatus::Code(Exit::Trust)
}

/// Shows how many of the recorded artifacts, inputs and environment entries are unchanged, and each difference. Returns
/// the number of changed artifacts and inputs; a changed environment does not count.
fn show_comparison(terminal: Terminal, verification: &Verification) -> usize {
    let Verification { name, artifact, inputs, surroundings, unread, unnamed, .. } = verification;
    let changed = artifact.iter().chain(inputs).filter(|one| !one.is_same()).count();
    terminal.event(json!({
        "event": "verified", "name": name, "same": changed == 0 && unread.is_none(),
        "artifact": artifact, "inputs": inputs, "surroundings": surroundings,
        "unread": unread.as_ref().map(ToString::to_string),
        "unnamed": unnamed.as_ref().map(|unnamed| unnamed.paths.iter().map(|(_, path)| path).collect::<Vec<_>>()),
    }));
    let files: Vec<&str> = artifact.iter().map(|one| one.what.as_str()).collect();
    let files = format!(": {}", files.join(", "));
    for (label, list, names) in
        [("Artifact", artifact, files.as_str()), ("Inputs", inputs, ""), ("Environment", surroundings, "")]
    {
        let same = list.iter().filter(|one| one.is_same()).count();
        terminal.status(label, format!("{same} of {} unchanged{names}", list.len()));
        show_differences(terminal, list);
    }
    if let Some(error) = unread {
        let why = error.why().map(|why| format!(": {why}")).unwrap_or_default();
        terminal.status("Unread", format!("{error}{why}"));
    } else if let Some(unnamed) = unnamed {
        terminal.note(format!("{unnamed}: it was read, and neither compiled nor run"));
    }
    changed
}

/// Shows the recorded and the found value of each comparison that differs.
fn show_differences(terminal: Terminal, list: &[Comparison]) {
    for Comparison { what, recorded, found } in list.iter().filter(|one| !one.is_same()) {
        terminal.status("Differs", format!("{what}\nrecorded {recorded}\nfound    {found}"));
    }
}
