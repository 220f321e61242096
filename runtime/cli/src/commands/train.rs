//! `tunebox train`: carries out one run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tunebox_foundation::environment;
use tunebox_foundation::files::{self, FileError};
use tunebox_foundation::format::{bytes, group_digits};
use tunebox_foundation::paths::{self, simplify};
use tunebox_ranks::{Launch, find_launch};
use tunebox_sandbox::{Limits, Profiler, Recorded};
use tunebox_training::{Connection, RunSettings, execute, execute_on_ranks, plan};

use crate::access::Access;
use crate::arguments::{Global, RUN_FILE, RunOptions};
use crate::processes::{compile_settings, stop_on_interrupt, worker_program};
use crate::run::display::RunDisplay;
use crate::run::plan::{find_rings, show_plan};
use crate::run::summary::{SampleReport, show_summary};
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// How long the ranks of a run wait for each other when they connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// Run file; or give `--model` and `--data`, or `--sample` [default: `run.toml`, if it exists]
    run: Option<PathBuf>,
    /// Method to train with: a built-in one, a method folder, a `.wasm` file, or `NAME[@VERSION]` of a package in the
    /// store. With `--help`, lists its settings [default: lora]
    #[arg(long)]
    method: Option<String>,
    /// Precision of the frozen base model: `nf4` or `q8_0`, quantized to 4 or 8 bits while loading [default: as in the
    /// model's files]
    #[arg(long)]
    precision: Option<String>,
    /// Check and plan the run without training
    #[arg(long)]
    dry_run: bool,
    /// Train inside this process instead of a worker process. Only for methods that you trust
    #[arg(long)]
    in_process: bool,
    /// Open the run's report in the browser, which shows the run as it goes on
    #[arg(long, conflicts_with_all = ["dry_run", "in_process"])]
    open: bool,
    /// File for a profile of the time spent in the method; open it at https://profiler.firefox.com
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    guest_profile: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
}

impl Train {
    /// Whether files of the model are read in this process: to plan, to train, or to compare the sample's answers.
    pub(super) fn is_in_process(&self) -> bool {
        self.trains_in_process() || self.dry_run || self.options.sample
    }

    /// Whether the steps run in this process, as a profile needs.
    fn trains_in_process(&self) -> bool {
        self.in_process || self.guest_profile.is_some()
    }

    /// Asks whether to accept what the run file requests and who signed the packages. Before a dry run and a run in
    /// this process, also fetches the model and compiles the components, and returns the files that the run reaches.
    /// `None` for a run in a worker, on an accelerator or with a profile. Fails if a launcher started several ranks and
    /// the options read files of the model in this process.
    pub(super) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        if !global.supervised && find_own_launch()?.is_some() && self.is_in_process() {
            return Err(Failure::usage(
                "several ranks train in worker processes, from a run file or a model and data",
                "leave out `--in-process`, `--guest-profile`, `--dry-run` and `--sample`, or start one process",
            ));
        }
        let settings = self.read_settings(global.offline)?;
        if !global.supervised {
            self.options.trust.check_run(terminal, &settings)?;
        }
        if self.guest_profile.is_some() || !(self.in_process || self.dry_run) {
            return Ok(None);
        }
        let write = vec![PathBuf::from(&settings.file.run.folder)];
        let access = Access::prepare_run(terminal, &settings, global)?;
        Ok(access.map(|mut access| {
            access.read.extend(self.run_file().map(Path::to_owned));
            Access { write, ..access }
        }))
    }

    /// Under a launcher, carries out this rank's share of the run, see [`run_on_rank`](Self::run_on_rank). Else checks
    /// the signers and what the run file asks for, unless [`prepare`](Self::prepare) did, then plans (`--dry-run`) or
    /// carries out the run, in a worker unless `--in-process` or `--guest-profile` is given. Writes the profile of a
    /// failed run too.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        match find_own_launch()?.filter(|_| !global.supervised) {
            Some(launch) => self.run_on_rank(&launch, terminal, global),
            None => self.run_alone(terminal, global),
        }
    }

    /// Carries out the share of this process in a run that a launcher started on several ranks. Rank 0 alone writes to
    /// the terminal and fails with the exit code of the rank that failed; another rank does so only if rank 0 is lost.
    fn run_on_rank(self, launch: &Launch, terminal: Terminal, global: &Global) -> CommandResult {
        let transport = tunebox_ranks::connect(launch, CONNECT_TIMEOUT)?;
        let mut connection = Connection::open(transport, CONNECT_TIMEOUT)?;
        let is_first = connection.rank() == 0;
        // Until the settings of the run are known.
        connection.set_timeout(Duration::from_secs_f64(Limits::default().rank_seconds));
        let connection = Arc::new(Mutex::new(connection));
        let quiet = Terminal { quiet: true, json: false, ..terminal };
        let terminal = if is_first { terminal } else { quiet };
        let result = self.execute_on_rank(terminal, global, &connection);
        let Some(connection) = Arc::into_inner(connection) else { return result };
        let mut connection = connection.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = connection.finish(result, |failure| ((*failure.explanation).clone(), failure.exit));
        let code = result.as_ref().map_or_else(|failure| failure.exit as i32, |_| 0);
        // Shown before the ranks are ended, which may end this process.
        let result = result.or_else(|mut failure| {
            let exit = connection.other_exit().unwrap_or(failure.exit);
            if !is_first && !connection.has_lost_first() {
                // The launcher goes by the exit code of rank 0.
                return Ok(ExitStatus::Success);
            }
            if !is_first {
                failure.explanation.kept =
                    Some("the last checkpoint, in the folder of the run on the host of rank 0".into());
            }
            failure.show(terminal);
            Ok(ExitStatus::Code(exit))
        });
        connection.close(code);
        result
    }

    /// Reads the settings, carries out the run over the connection to the other ranks, in a worker, and shows the
    /// traffic between the ranks and the summary.
    fn execute_on_rank(
        &self,
        terminal: Terminal,
        global: &Global,
        connection: &Arc<Mutex<Connection>>,
    ) -> CommandResult {
        let settings = self.read_settings(global.offline)?;
        self.options.trust.check_run(terminal, &settings)?;
        // A launcher that ends the run after a signal leaves no time for more.
        let stop = stop_on_interrupt(Some((
            terminal,
            "stopping after this step; if the launcher ends the run before that, `--resume` continues from the last checkpoint",
        )))?;
        let mut display = self.display(terminal, &settings);
        let worker = worker_program(false)?;
        let summary = execute_on_ranks(settings, worker.as_ref(), &mut display, &stop, connection);
        display.clear();
        let summary = summary?;
        let traffic = connection.lock().unwrap_or_else(PoisonError::into_inner).traffic();
        let sent = bytes(traffic.bytes);
        terminal.status(
            "Ranks",
            format!(
                "rank 0 sent {sent} to every other rank; all exchanges took {:.1} s, waiting included",
                traffic.seconds
            ),
        );
        terminal.event(json!({ "event": "ranks", "bytes": traffic.bytes, "seconds": traffic.seconds }));
        show_summary(terminal, &summary, None)
    }

    /// Carries out the run without other ranks, in a worker or in this process, and shows its summary; with `--dry-run`
    /// only shows the plan. With `--sample`, first shows what the method's `run.toml` asks for, and at the end how the
    /// answers changed. Writes a profile, also of a failed run.
    fn run_alone(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut settings = self.read_settings(global.offline)?;
        if !self.is_in_process() {
            self.options.trust.check_run(terminal, &settings)?;
        }
        if self.dry_run {
            show_plan(terminal, &plan(settings)?);
            terminal.suggest("the same command without `--dry-run`");
            return Ok(ExitStatus::Success);
        }
        if self.options.sample {
            show_requests(terminal, &settings);
        }
        let sample = self.options.sample.then(|| SampleReport::new(&settings));
        let stop = stop_on_interrupt(None)?;
        let mut display = self.display(terminal, &settings);
        let worker = worker_program(self.trains_in_process())?;
        let profile = self.guest_profile.as_deref();
        let profile = profile.map(|path| GuestProfile::start(path, &mut settings, self.in_process)).transpose()?;
        let summary = execute(settings, worker.as_ref(), &mut display, &stop);
        display.clear();
        // The profile of a failed run is written as well; the run's error goes first.
        let profiled = profile.map_or(Ok(()), |profile| profile.write(terminal));
        let status = show_summary(terminal, &summary?, sample.as_ref())?;
        profiled.map(|()| status)
    }

    /// Creates the display of the run, which opens its report with `--open`.
    fn display(&self, terminal: Terminal, settings: &RunSettings) -> RunDisplay {
        let mut display = RunDisplay::new(terminal);
        display.rings = find_rings(settings, self.guest_profile.is_some());
        display.open = self.open.then(|| simplify(Path::new(&settings.file.run.folder)));
        display
    }

    /// The run file: the argument, else [`RUN_FILE`] of the current folder if it exists and neither `--sample` nor both
    /// `--model` and `--data` are given.
    fn run_file(&self) -> Option<&Path> {
        let options = &self.options;
        let needs_none = options.sample || (options.model.is_some() && options.data.is_some());
        let usual = Path::new(RUN_FILE);
        self.run.as_deref().or_else(|| Some(usual).filter(|file| !needs_none && file.is_file()))
    }

    /// Reads the settings from the run file, from the sample (`--sample`), or from `--model` and `--data` alone; the
    /// other options override them. Fails if there is none of these, or if the run file is a folder.
    fn read_settings(&self, offline: bool) -> Result<RunSettings, Failure> {
        let options = &self.options;
        let run = self.run_file();
        let is_bare = run.is_none() && !options.sample;
        let method = self.method.clone().or_else(|| is_bare.then(|| "lora".to_owned()));
        let overrides = options.overrides(method, self.precision.clone())?;
        let mut settings = match run {
            Some(path) if path.is_dir() => return Err(folder_failure(path)),
            Some(path) => RunSettings::load(path, &overrides)?,
            None if options.sample => RunSettings::sample(&overrides)?,
            None if options.model.is_none() || !options.has_data() => {
                let what = format!("there is nothing to train: no run file is given, and `{RUN_FILE}` does not exist");
                let hint = match options.resume {
                    true => format!(
                        "`tunebox train runs/{}/{RUN_FILE} --resume` resumes a run",
                        options.name.as_deref().unwrap_or("NAME")
                    ),
                    false => "`tunebox init` writes one, `tunebox train --sample` trains the bundled sample; or give \
                              `--model` and `--data`"
                        .to_owned(),
                };
                return Err(Failure::usage(what, hint));
            }
            None => RunSettings::from_overrides(&overrides)?,
        };
        settings.resume = options.resume;
        settings.offline = offline;
        settings.compiling = compile_settings()?;
        Ok(settings)
    }
}

/// Finds out how a launcher started this process as one of several ranks; `None` if none did.
fn find_own_launch() -> Result<Option<Launch>, Failure> {
    Ok(find_launch(|name| environment::variable(name)?.into_string().ok())?)
}

/// Shows what the `run.toml` of the method's folder asks for in a run on the sample: grants, raised limits and a folder
/// for runs outside of this one, but not what `--set` asks for. Shows nothing if there is none.
fn show_requests(terminal: Terminal, settings: &RunSettings) {
    let requests = settings.requests(false);
    if !requests.clauses.is_empty() {
        terminal.status("Limits", format!("{} {}", requests.file.display(), requests.clauses.join("; ")));
    }
}

/// Creates the failure for a folder given instead of a run file. Its hint is the command for the run file or the method
/// in that folder.
fn folder_failure(folder: &Path) -> Failure {
    let path = paths::simplify(folder);
    let holds = |name: &str| folder.join(name).is_file();
    let hint = if holds("run.toml") {
        format!("`tunebox train {}`", path.join("run.toml").display())
    } else if holds("Cargo.toml") || holds("pyproject.toml") {
        format!("`tunebox train --sample --method {}` trains with the method in it", path.display())
    } else {
        "give a run file, or `--model` and `--data`".to_owned()
    };
    Failure::usage(format!("`{}` is a folder; expected a run file", path.display()), hint)
}

/// The viewer of profiles. It reads the file in the browser and uploads nothing.
const VIEWER_URL: &str = "https://profiler.firefox.com";

/// The profile of `--guest-profile FILE`: the time spent in the method, for the Firefox Profiler.
#[derive(Debug)]
struct GuestProfile {
    path: PathBuf,
    profiler: Profiler,
}

impl GuestProfile {
    /// Adds a profiler to the settings of a run, and has the debug sections of the method read. Fails if the method
    /// would run in a worker process, or if `path` is a folder or is not in an existing folder.
    fn start(path: &Path, settings: &mut RunSettings, in_process: bool) -> Result<Self, Failure> {
        if !in_process && !settings.is_all_built_in() {
            return Err(Failure::usage(
                "a method that is not built in runs in a worker process, which records no profile",
                "if you trust the method, add `--in-process`",
            ));
        }
        if path.is_dir() || !paths::parent(path).is_dir() {
            let problem = format!("`{}` cannot be the file of a profile", path.display());
            return Err(Failure::usage(problem, "name a file in an existing folder"));
        }
        let profiler = Profiler::default();
        settings.profiler = Some(profiler.clone());
        settings.compiling.code.source_lines = true;
        Ok(Self { path: path.to_owned(), profiler })
    }

    /// Writes the recorded samples and host calls as JSON for the Firefox Profiler to the file, atomically in place of
    /// an existing one, shows their numbers and that of dropped ones, and emits a `profile` event. Does nothing if
    /// nothing was recorded: an existing file stays.
    fn write(&self, terminal: Terminal) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let recorded = self.profiler.write(&mut bytes).map_err(FileError::at("used", &self.path))?;
        if recorded == Recorded::default() {
            return Ok(());
        }
        files::write(&self.path, &bytes)?;
        let (samples, calls) = (group_digits(recorded.samples as u64), group_digits(recorded.calls as u64));
        let mut text = format!("{}  {samples} samples, {calls} calls to the host", self.path.display());
        if recorded.left_out > 0 {
            text += &format!("; {} more were dropped", group_digits(recorded.left_out as u64));
        }
        terminal.status("Profile", format!("{text}\nopen it at {VIEWER_URL}"));
        terminal.event(json!({
            "event": "profile", "path": self.path, "samples": recorded.samples, "calls": recorded.calls,
            "left-out": recorded.left_out,
        }));
        Ok(())
    }
}
