//! `tunebox verify`: is a package what was signed; is a finished run what its lock says, and does it end in the same
//! bits again.

mod package;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_training::{Comparison, Event, Observer, Replay, Verification, verify};

use super::train::on_interrupt;
use super::{Ending, Outcome, worker};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use crate::terminal::progress::Bar;
use tunebox_foundation::format::{counted, duration};

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder of a finished run; or a package: `NAME@VERSION` in the store, or a `.wasm` file
    #[arg(value_name = "RUN|PACKAGE")]
    subject: PathBuf,
    /// Run it again from its first step, and compare every bit of what it leaves. A method or verifier that the run names by
    /// a path is only compiled and run if `--set` names it too
    #[arg(long, conflicts_with = "signer")]
    replay: bool,
    /// Sets a key of the run's file, as in `method.use=./calm.wasm` or `data.path=answers.jsonl`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "signer")]
    set: Vec<String>,
    /// Who must have signed the package: a public key, or the file of one. Exit code 1 without it where nobody has, or, of a
    /// file, somebody who is not known here
    #[arg(long, value_name = "KEY")]
    signer: Option<String>,
    /// Run a method or verifier that is not built in inside this process, without a worker between; for those you trust
    #[arg(long, requires = "replay")]
    in_process: bool,
}

impl Verify {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        if let Some(package) = package::named(&self.subject)? {
            if self.replay || !self.set.is_empty() {
                let what = format!("`{}` is a package, and only runs are replayed or set", self.subject.display());
                return Err(Failure::usage(what, "leave `--replay` and `--set` out, or name the folder of a run"));
            }
            return package::verify(terminal, &package, self.signer.as_deref());
        }
        if self.signer.is_some() {
            let what = format!("`{}` is no package, and nobody signs runs", self.subject.display());
            return Err(Failure::usage(
                what,
                "leave `--signer` out, or name a package: `NAME@VERSION`, or a `.wasm` file",
            ));
        }
        let verification = verify(&self.subject, &self.set, global.offline, worker::compiling()?)?;
        let changed = show(terminal, &verification);
        if changed > 0 {
            return Ok(tell_changed(terminal, &verification, changed));
        }
        if !self.replay {
            return Ok(self.tell_looked_at(terminal, &verification));
        }
        let stop = on_interrupt()?;
        let worker = if self.in_process { None } else { Some(worker::worker()?) };
        let mut progress = Progress { terminal, bar: None };
        let replay = verification.replay(worker.as_ref(), &mut progress, &stop)?;
        if let Some(bar) = progress.bar {
            bar.clear();
        }
        match replay {
            Some(replay) => Ok(self.tell(terminal, &replay)),
            None => Ok(Ending::Exit(Exit::Interrupted)),
        }
    }

    /// What a look alone ends with, where nothing changed.
    fn tell_looked_at(&self, terminal: Terminal, verification: &Verification) -> Ending {
        if let Some(error) = &verification.unread {
            let hint = error.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
            terminal.next(format!("{hint}`--set` says where it lies now, as in `--set method.use=PATH`"));
            return Ending::Exit(error.exit());
        }
        terminal.next(match &verification.unnamed {
            _ if verification.was_revised() => format!("tunebox chat {}", self.subject.display()),
            Some(unnamed) => unnamed.command(),
            None if self.set.is_empty() => format!("tunebox verify {} --replay", self.subject.display()),
            None => "the same command with `--replay`".to_owned(),
        });
        Ending::Done
    }

    fn tell(&self, terminal: Terminal, replay: &Replay) -> Ending {
        if terminal.json {
            terminal.object(json!({
                "event": "replayed", "same": replay.same(), "steps": replay.steps, "seconds": replay.seconds,
                "artifact": replay.artifact, "first-difference": replay.first_difference,
            }));
        }
        terminal.say("Replayed", format!("{} in {}", counted(replay.steps, "step"), duration(replay.seconds)));
        if replay.same() {
            terminal.say("Same", "every metric of every step, and every bit of the artifact");
            terminal.next(format!("tunebox chat {}", self.subject.display()));
            return Ending::Done;
        }
        differing(terminal, replay.first_difference.as_slice());
        differing(terminal, &replay.artifact);
        terminal.next("look at the first difference: what went in is the same, so the program or the machine is not");
        Ending::Exit(Exit::Trust)
    }
}

/// A bar: what a run says along the way was said when it was first run.
struct Progress {
    terminal: Terminal,
    bar: Option<Bar>,
}

impl Observer for Progress {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step(step) = event {
            self.bar.get_or_insert_with(|| Bar::new(self.terminal, "replay", step.total)).at(step.step);
        }
    }
}

/// Says what there is to do about a run of which something changed.
fn tell_changed(terminal: Terminal, verification: &Verification, changed: usize) -> Ending {
    terminal.say("Changed", format!("{changed} of what the run wrote down"));
    if let Some(folder) = verification.changed_method() {
        let folder = folder.display();
        terminal.say("Note", format!("`{folder}` was built anew since: a method under work changes"));
    }
    terminal.next("put these back, or `tunebox train` for a run with what there is now");
    Ending::Exit(Exit::Trust)
}

/// Says what was compared; returns how much of it changed. Surroundings may.
fn show(terminal: Terminal, verification: &Verification) -> usize {
    let Verification { name, artifact, inputs, surroundings, unread, unnamed, .. } = verification;
    let changed = artifact.iter().chain(inputs).filter(|one| !one.same()).count();
    if terminal.json {
        terminal.object(json!({
            "event": "verified", "name": name, "same": changed == 0 && unread.is_none(),
            "artifact": artifact, "inputs": inputs, "surroundings": surroundings,
            "unread": unread.as_ref().map(ToString::to_string),
            "unnamed": unnamed.as_ref().map(|unnamed| unnamed.paths.iter().map(|(_, path)| path).collect::<Vec<_>>()),
        }));
    }
    let files: Vec<&str> = artifact.iter().map(|one| one.what.as_str()).collect();
    let files = format!(": {}", files.join(", "));
    for (verb, list, names) in
        [("Artifact", artifact, files.as_str()), ("Inputs", inputs, ""), ("Around", surroundings, "")]
    {
        let same = list.iter().filter(|one| one.same()).count();
        terminal.say(verb, format!("{same} of {} as recorded{names}", list.len()));
        differing(terminal, list);
    }
    if let Some(error) = unread {
        let why = error.why().map(|why| format!(": {why}")).unwrap_or_default();
        terminal.say("Unread", format!("{error}{why}"));
    } else if let Some(unnamed) = unnamed {
        terminal.say("Note", format!("{unnamed}: it was read, and neither compiled nor run"));
    }
    changed
}

fn differing(terminal: Terminal, list: &[Comparison]) {
    for Comparison { what, recorded, found } in list.iter().filter(|one| !one.same()) {
        terminal.say("Differs", format!("{what}\nrecorded {recorded}\nfound    {found}"));
    }
}
