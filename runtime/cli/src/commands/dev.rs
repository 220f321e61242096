//! `tunebox dev`: trains with the method of a folder, and reloads it whenever its source changes.
//!
//! The folder is polled a few times a second. The digest of its few small files says exactly what a build would read;
//! file system events differ by system, editor and mount, and would only say when to look.
//!
//! The run is in this process: the source belongs to the user, see `Observer`.

mod session;
mod watcher;

use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tunebox_foundation::explain::Exit;
use tunebox_training::RunSettings;
use tunebox_training::configuration::ENDLESS;

use crate::arguments::{Global, RunOptions};
use crate::package::build::BUILD_WARNING;
use crate::processes::{compile_settings, stop_on_interrupt};
use crate::run::summary::show_summary;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use session::Session;

#[derive(Debug, Args)]
#[command(after_long_help = BUILD_WARNING)]
pub(crate) struct Dev {
    /// Method folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Run file [default: `run.toml` of the folder, else the sample]. Trains until Ctrl-C, or for the steps or epochs
    /// given by a flag or `--set`
    run: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
}

impl Dev {
    /// Trains, and after each run waits for a change of the source or of the run file to start a new one, until Ctrl-C:
    /// exit code 130. An error of a run is shown, and the command waits for a change. It ends with the error only after
    /// Ctrl-C, and for an error of exit code 2 before any run has begun.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let stop = stop_on_interrupt(None)?;
        let mut session = Session::open(terminal, self.folder.clone(), self.run_file(), global.offline)?;
        // Whether a run has had a step; then errors no longer end the command, and runs get new names.
        let mut has_trained = false;
        while session.wait_for_run(&stop) {
            let result = self.train_once(terminal, global.offline, has_trained, &mut session, &stop);
            let has_begun = session.has_begun();
            has_trained |= has_begun;
            match result {
                Ok(ExitStatus::Success) => {}
                Ok(interrupted) => return Ok(interrupted),
                // The source was saved during its build; the next build has begun already.
                Err(_) if !has_begun && session.is_stale() => continue,
                // No change of the source can fix wrong options.
                Err(failure) if failure.exit == Exit::Usage && !has_trained => return Err(failure),
                Err(failure) if stop.load(Ordering::SeqCst) => return Err(failure),
                Err(failure) => session.show_failure(&failure),
            }
            let or = if self.run_file().is_some() { " or of the run file" } else { "" };
            session.show_waiting(&format!("for a change of the source{or} to start a new run; Ctrl-C ends"));
        }
        Ok(ExitStatus::Code(Exit::Interrupted))
    }

    /// Carries out one run and shows its outcome; each new build of the method replaces it during the run.
    /// `has_trained` is whether an earlier run had a step: then `--resume` is ignored and a taken run name is dropped.
    fn train_once(
        &self,
        terminal: Terminal,
        offline: bool,
        has_trained: bool,
        session: &mut Session,
        stop: &AtomicBool,
    ) -> CommandResult {
        session.remember_run_file();
        let mut settings = self.read_settings(session.is_learning())?;
        settings.offline = offline;
        settings.resume = self.options.resume && !has_trained;
        let exists = |name: &String| Path::new(&settings.file.run.folder).join(name).exists();
        if has_trained && settings.file.run.name.as_ref().is_some_and(exists) {
            settings.file.run.name = None;
        }
        self.options.trust.check_run(terminal, &settings)?;
        let summary = session.train(settings, stop)?;
        show_summary(terminal, &summary, None)
    }

    /// Returns the path of the run file: the argument, else `run.toml` of the method folder, which need not exist.
    /// `None` with `--sample` and no argument.
    fn run_file(&self) -> Option<PathBuf> {
        self.run.clone().or_else(|| (!self.options.sample).then(|| self.folder.join("run.toml")))
    }

    /// Reads the settings of a run from the run file that was given, else from an existing `run.toml` of the folder,
    /// else from `--model` and `--data` if one is given, else from the sample; with the folder as method and the
    /// options on top. A run name in the file is dropped. If `is_learning` (the method trains), the run is endless
    /// unless the options give steps or epochs; else the steps of the file stay. Epochs of the options remove the steps
    /// of the file.
    fn read_settings(&self, is_learning: bool) -> Result<RunSettings, Failure> {
        let overrides = self.options.overrides(Some(self.method_folder().display().to_string()), None)?;
        let file = self.run_file().filter(|path| self.run.is_some() || path.is_file());
        let mut settings = match file {
            Some(path) => RunSettings::load(&path, &overrides)?,
            None if self.options.model.is_some() || self.options.has_data() => RunSettings::from_overrides(&overrides)?,
            None => RunSettings::sample(&overrides)?,
        };
        settings.authoring = true;
        settings.compiling = compile_settings()?;
        settings.compiling.code.source_lines = true;
        if !settings.is_override("run.name") {
            settings.file.run.name = None;
        }
        let (steps, epochs) = (settings.is_override("train.steps"), settings.is_override("train.epochs"));
        if !steps && (epochs || is_learning) {
            // Steps take precedence over epochs, so those of the run file are removed.
            settings.file.train.steps = (!epochs).then_some(ENDLESS);
        }
        Ok(settings)
    }

    /// Returns the method folder as a path that cannot be mistaken for the name of a built-in method: `dpo` becomes
    /// `./dpo`. A path that begins with `.`, `..` or `/` stays as it is.
    fn method_folder(&self) -> PathBuf {
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
    struct CommandLine {
        #[command(flatten)]
        dev: Dev,
    }

    fn dev(words: &[&str]) -> Dev {
        CommandLine::parse_from([&["tunebox"], words].concat()).dev
    }

    const RUN_FILE: &str = "[run]\nname = \"mine\"\n[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \".\"\n\
        [train]\nsteps = 60\nbatch = 3\n";

    #[test]
    fn the_run_file_of_the_folder_is_used_and_trains_endlessly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("run.toml"), RUN_FILE).unwrap();
        let file = |words: &[&str], learns| dev(&[&[path], words].concat()).read_settings(learns).unwrap().file;

        let own = file(&[], true);
        assert_eq!((own.train.batch, own.train.steps, own.run.name), (3, Some(ENDLESS), None));
        assert_eq!(own.method.r#use, path);
        assert_eq!(file(&[], false).train.steps, Some(60), "without learning the steps of the run file stay");
        assert_eq!(file(&["--set", "train.steps=7"], true).train.steps, Some(7));
        let passes = file(&["--set", "train.epochs=2"], true).train;
        assert_eq!((passes.epochs, passes.steps), (Some(2), None));
        assert_eq!(file(&["--name", "long"], true).run.name.as_deref(), Some("long"));
    }

    #[test]
    fn a_folder_is_never_taken_for_a_built_in_method() {
        assert_eq!(dev(&["dpo"]).method_folder(), Path::new("./dpo"));
        assert_eq!(dev(&[]).method_folder(), Path::new("."));
    }
}
