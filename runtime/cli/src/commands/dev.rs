//! `tunebox dev`: trains with the method of a folder, and takes every change of its source into the run.
//!
//! The folder is looked at a few times a second. Its digest is that of a few small files, and says exactly what a build
//! would see; events of a file system differ by system, editor and mount, and would only say that it is time to look.
//!
//! The run is in this process, by design: the source is its author's, see `Revisions`.

mod looking;
mod workshop;

use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tunebox_foundation::explain::Exit;
use tunebox_training::RunSettings;
use tunebox_training::plan::ENDLESS;

use super::building::RUNS_SOURCE;
use super::train::{on_interrupt, tell};
use super::trust::Trusting;
use super::{Ending, Outcome, worker};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use workshop::Workshop;

/// What is trained with the method of a folder.
#[derive(Debug, Args)]
#[command(after_long_help = RUNS_SOURCE)]
pub(crate) struct Dev {
    /// The method's folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// A run file; without one, the folder's own `run.toml`, else the sample. It goes on until Ctrl-C, or for the steps or
    /// epochs given with `--set`
    run: Option<PathBuf>,
    /// The tiny model and data that come with tunebox, whatever the folder's `run.toml` says: those of the first built-in
    /// method that learns from such records, as `train --sample` takes them; `--data` names others
    #[arg(long, conflicts_with = "run")]
    sample: bool,
    /// A model: folder, `.gguf` file, or hub name
    #[arg(long)]
    model: Option<String>,
    /// A JSONL file
    #[arg(long)]
    data: Option<String>,
    /// Sets a key of the run file, as in `train.rate=1e-4`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The name of the run's folder; else the next free number
    #[arg(long)]
    name: Option<String>,
    /// `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long)]
    device: Option<String>,
    /// Go on with a run that was stopped, by the method as it is now
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    trusting: Trusting,
}

impl Dev {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let stop = on_interrupt()?;
        let mut workshop = Workshop::open(terminal, self.folder.clone(), self.run_file(), global.offline)?;
        let mut again = false;
        while workshop.next_run(&stop) {
            let ended = self.one_run(terminal, global.offline, again, &mut workshop, &stop);
            let begun = workshop.has_begun();
            again |= begun;
            match ended {
                Ok(Ending::Done) => {}
                Ok(interrupted) => return Ok(interrupted),
                // Saved while it was built: what is there now is being built already.
                Err(_) if !begun && workshop.is_behind() => continue,
                // A change of the source mends nothing of what the run was told.
                Err(failure) if failure.exit == Exit::Usage && !again => return Err(failure),
                Err(failure) if stop.load(Ordering::SeqCst) => return Err(failure),
                Err(failure) => workshop.show(&failure),
            }
            let or = if self.run_file().is_some() { " or of the run file" } else { "" };
            workshop.waiting(&format!("for a change of the source{or}, for a new run; Ctrl-C ends"));
        }
        Ok(Ending::Exit(Exit::Interrupted))
    }

    /// One run, from its first step to its last, by as many versions of the method as there will be.
    fn one_run(
        &self,
        terminal: Terminal,
        offline: bool,
        again: bool,
        workshop: &mut Workshop,
        stop: &AtomicBool,
    ) -> Outcome {
        workshop.take_run_file();
        let mut settings = self.settings(workshop.learns())?;
        settings.offline = offline;
        settings.resume = self.resume && !again;
        let taken = |name: &String| Path::new(&settings.file.run.folder).join(name).exists();
        if again && settings.file.run.name.as_ref().is_some_and(taken) {
            settings.file.run.name = None;
        }
        self.trusting.settle(terminal, &settings)?;
        let ended = workshop.train(settings, stop)?;
        tell(terminal, &ended)
    }

    /// Where the run file is, if there is one: the one that was named, or the folder's own.
    fn run_file(&self) -> Option<PathBuf> {
        self.run.clone().or_else(|| (!self.sample).then(|| self.folder.join("run.toml")))
    }

    /// The run file with the method of the folder, flags and `--set` on top. A method that learns does so until somebody
    /// stops it, unless they said for how long; one that does not has its work at the end.
    fn settings(&self, learns: bool) -> Result<RunSettings, Failure> {
        let overrides = self.overrides();
        let file = self.run_file().filter(|path| self.run.is_some() || path.is_file());
        let mut settings = match file {
            Some(path) => RunSettings::load(&path, &overrides)?,
            None if self.model.is_some() || self.data.is_some() => RunSettings::from_overrides(&overrides)?,
            None => RunSettings::sample(&overrides)?,
        };
        settings.authoring = true;
        settings.compiling = worker::compiling_here();
        if !settings.is_override("run.name") {
            settings.file.run.name = None;
        }
        let (steps, epochs) = (settings.is_override("train.steps"), settings.is_override("train.epochs"));
        if !steps && (epochs || learns) {
            // Steps decide where both are given, and those of the run file are none that were asked for here.
            settings.file.train.steps = (!epochs).then_some(ENDLESS);
        }
        Ok(settings)
    }

    /// Flags are short forms of `--set`; an explicit `--set` comes last and so decides.
    fn overrides(&self) -> Vec<String> {
        let flags = [
            ("model.path", self.model.clone()),
            ("data.path", self.data.clone()),
            ("method.use", Some(self.method().display().to_string())),
            ("run.name", self.name.clone()),
            ("train.device", self.device.clone()),
        ];
        let quoted = flags
            .into_iter()
            .filter_map(|(key, value)| value.map(|value| format!("{key}={}", toml::Value::String(value))));
        quoted.chain(self.set.iter().cloned()).collect()
    }

    /// The folder, as nothing that is built in can be meant by it.
    fn method(&self) -> PathBuf {
        match self.folder.components().next() {
            Some(Component::Normal(_)) => Path::new(".").join(&self.folder),
            _ => self.folder.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        dev: Dev,
    }

    fn dev(words: &[&str]) -> Dev {
        Line::parse_from([&["tunebox"], words].concat()).dev
    }

    const RUN_FILE: &str = "[run]\nname = \"mine\"\n[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \".\"\n\
        [train]\nsteps = 60\nbatch = 3\n";

    #[test]
    fn the_run_file_of_the_folder_is_taken_and_goes_on_until_somebody_stops_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("run.toml"), RUN_FILE).unwrap();
        let file = |words: &[&str], learns| dev(&[&[path], words].concat()).settings(learns).unwrap().file;

        let own = file(&[], true);
        assert_eq!((own.train.batch, own.train.steps, own.run.name), (3, Some(ENDLESS), None));
        assert_eq!(own.method.r#use, path);
        assert_eq!(file(&[], false).train.steps, Some(60), "a method that does not learn has its work at the end");
        assert_eq!(file(&["--set", "train.steps=7"], true).train.steps, Some(7));
        let passes = file(&["--set", "train.epochs=2"], true).train;
        assert_eq!((passes.epochs, passes.steps), (Some(2), None));
        assert_eq!(file(&["--name", "long"], true).run.name.as_deref(), Some("long"));
    }

    #[test]
    fn a_folder_is_never_taken_for_what_is_built_in() {
        assert_eq!(dev(&["dpo"]).method(), Path::new("./dpo"));
        assert_eq!(dev(&[]).method(), Path::new("."));
    }
}
