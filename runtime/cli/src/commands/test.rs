//! `tunebox test`: the author's own tests, then component and native twin side by side.

mod native;
mod outcome;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::temporary_folder;
use tunebox_foundation::paths;
use tunebox_package::Reference;
use tunebox_package::build::python::is_python;
use tunebox_package::build::{Built, Options, expect_method};
use tunebox_package::toolchain;
use tunebox_sandbox::native::{Door, Knock, Twin};
use tunebox_training::{RunSettings, twin};

use super::build::{training, training_with};
use super::building::{RUNS_SOURCE, built, warn};
use super::{Outcome, worker};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use crate::terminal::progress::Bar;
use native::{Native, Running};
use tunebox_foundation::format::bytes;

/// How long the twin may take to come, once it was started.
const COMING: Duration = Duration::from_secs(60);

/// Bytes assumed of a component in Python that was not built yet.
const LARGE: u64 = 32 << 20;

/// How long a call of it may last: long enough for any test, short enough for one that hangs.
const CALL: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
#[command(after_long_help = RUNS_SOURCE)]
pub(crate) struct Test {
    /// The method's folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The component's file; `NAME.wasm` in the folder unless given
    #[arg(long)]
    out: Option<PathBuf>,
    /// Updates that component and native twin make side by side; 5 without it, or one pass over the data where the
    /// method does not learn
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: Option<u32>,
    /// Sets a key of the run, as in `method.beta=0.2`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Say how to start the twin under a debugger, and wait for it
    #[arg(long)]
    debug: bool,
}

impl Test {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        self.expect_rust()?;
        let toolchain = toolchain::find()?;
        let place = temporary_folder(&std::env::temp_dir(), "tunebox-test-")?;
        let output = self.out.clone();
        let (offline, folder) = (global.offline, self.folder.clone());
        let options = Options { toolchain: Some(toolchain.clone()), output, offline, ..Options::default() };
        let built = built(terminal, &folder, &options)?;
        terminal.say("Built", format!("{}, {}", built.path.display(), bytes(built.size)));
        warn(terminal, &folder, &built);
        let (quiet, verbose) = (terminal.quiet, terminal.verbose);
        let native = Native { toolchain, folder, offline, quiet, verbose };
        terminal.say("Testing", "what the author wrote");
        let executable = native.executable()?;
        if !native.own_tests()? {
            return Ok(outcome::failed(terminal, &built.manifest.name));
        }
        if !built.manifest.world.is_method() {
            return Ok(outcome::without_twin(terminal, &built.manifest.name));
        }
        let settings = self.settings(global, &built, place.path())?;
        let next = training(&self.folder, self.out.is_some(), &built.path, built.size);
        self.compare(terminal, &native, &executable, settings, &next)
    }

    /// Errors: no method there, or one in a language that has no tests here.
    fn expect_rust(&self) -> Result<(), Failure> {
        expect_method(&self.folder)?;
        if !is_python(&self.folder) {
            return Ok(());
        }
        let folder = paths::simplify(&self.folder);
        let run = paths::simplify(&folder.join("run.toml"));
        // Its run file has the limits that a component with an interpreter needs.
        let train = if run.is_file() {
            format!("tunebox train {}", run.display())
        } else {
            training_with(Reference::written(&folder), LARGE)
        };
        let folder = folder.display();
        let what = format!("the method in `{folder}` is in Python, and only one in Rust has a native twin to test");
        Err(Failure::usage(what, format!("`tunebox build {folder}; {train}` tries it")))
    }

    /// The run that both sides do.
    fn settings(&self, global: &Global, built: &Built, place: &Path) -> Result<RunSettings, Failure> {
        let mut settings = twin::sample(&built.path, &built.imports, self.steps, place, &self.set)?;
        settings.offline = global.offline;
        settings.compiling = worker::compiling()?;
        Ok(settings)
    }

    /// Both sides over the sample, and what came out.
    fn compare(
        &self,
        terminal: Terminal,
        native: &Native,
        executable: &Path,
        settings: RunSettings,
        next: &str,
    ) -> Outcome {
        let door = Door::open().map_err(|error| not_reached(&error))?;
        terminal.say("Comparing", "component and native twin on the sample");
        let mut process = if self.debug {
            outcome::debugger(terminal, &native.under_debugger(executable, &door)?);
            None
        } else {
            Some(native.start(executable, &door)?)
        };
        let twin = self.wait(&door, process.as_mut())?;
        let mut bar = None;
        let compared = twin::compare(settings, twin, &mut |step, total| {
            bar.get_or_insert_with(|| Bar::new(terminal, "steps", total)).at(step);
        });
        bar.iter().for_each(Bar::clear);
        outcome::show(terminal, compared?, next)
    }

    /// Waits until the twin has come.
    fn wait(&self, door: &Door, mut process: Option<&mut Running>) -> Result<Twin, Failure> {
        let (coming, call) = if self.debug { (None, None) } else { (Some(COMING), Some(CALL)) };
        let ended = || process.as_mut().is_some_and(|process| process.has_ended());
        let problem = match door.wait(coming, call, ended).map_err(|error| not_reached(&error))? {
            Knock::Here(twin) => return Ok(twin),
            Knock::Nobody => "it was started and did not come",
            Knock::Off => "its tests ended without it",
        };
        let explanation = Explanation::new("test", "the method has no native twin").with_why(problem).with_hint(
            "`method!` of this version's SDK adds it to the tests; look for `tunebox_twin` in `cargo test -- --list`",
        );
        Err(Failure { explanation: Box::new(explanation), exit: Exit::Usage })
    }
}

fn not_reached(error: &std::io::Error) -> Failure {
    let explanation = Explanation::new("test", "the native twin cannot be reached").with_why(error.to_string());
    Failure { explanation: Box::new(explanation), exit: Exit::Usage }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        test: Test,
    }

    #[test]
    fn a_method_in_python_is_answered_with_what_trains_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("pyproject.toml"), "").unwrap();
        let hint = || {
            let refused = Line::parse_from(["tunebox", path]).test.expect_rust().unwrap_err();
            refused.explanation.hint.unwrap()
        };
        let limits = "--set limits.component-bytes=33554432 --set limits.compile-seconds=120";
        assert_eq!(hint(), format!("`tunebox build {path}; tunebox train --sample --method {path} {limits}` tries it"));
        std::fs::write(folder.path().join("run.toml"), "").unwrap();
        assert_eq!(hint(), format!("`tunebox build {path}; tunebox train {path}/run.toml` tries it"));
    }
}
