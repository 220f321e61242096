//! The parent's side: starts the worker, passes on what it tells, and says what ended it.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use tunebox_sandbox::child::{LastWords, Program, ending};

use super::fault::{WorkerError, WorkerFault};
use super::protocol::{Heard, Job, Order, Said, Told, hear, say};
use crate::checkpoint;
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::observer::Observer;
use crate::plan;
use crate::run::{Outcome, run};

/// How often a person's wish to stop is looked at while the worker says nothing.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a worker may take to end once it has said all.
const GOODBYE: Duration = Duration::from_secs(5);

/// Lines that may wait between the reader of the pipe and the watcher.
const WAITING: usize = 64;

/// Carries a run out: here if all of it is built in or no `worker` is given, else by that program.
///
/// # Errors
/// Whatever ends the run.
pub fn carry_out(
    settings: RunSettings,
    worker: Option<&Program>,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    match worker.filter(|_| !settings.is_all_built_in()) {
        Some(program) => supervise(settings, program, observer, stop),
        None => run(plan::plan(settings)?, observer, stop),
    }
}

/// Has `program` do the run as a worker, with what `run` gives: events go to `observer`, and `stop` has the step at
/// hand finished and saved.
///
/// # Errors
/// What the worker reports of the run, and [`WorkerError`] when it dies or cannot be understood.
fn supervise(
    mut settings: RunSettings,
    program: &Program,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    // The worker gets no token of a hub: what must be fetched is fetched here.
    if plan::fetch(&settings)? {
        settings.offline = true;
    }
    let mut worker = Worker::start(program)?;
    let mut progress = Progress::default();
    let ended = worker.converse(Job::new(settings), observer, stop, &mut progress);
    let fault = match ended {
        Ok(outcome) => {
            let _ = worker.end(GOODBYE);
            return Ok(outcome);
        }
        Err(Silence::Reported(fault)) => {
            let _ = worker.end(GOODBYE);
            fault
        }
        Err(Silence::Garbled(why)) => {
            let _ = worker.end(Duration::ZERO);
            WorkerFault::Garbled(why)
        }
        Err(Silence::Gone) => worker.death(),
    };
    Err(progress.error(fault).into())
}

/// Why a worker says nothing more.
enum Silence {
    Reported(WorkerFault),
    Garbled(String),
    Gone,
}

/// A worker that runs; dropping it ends it.
struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    heard: Receiver<Heard<Said>>,
    words: Option<LastWords>,
}

impl Worker {
    fn start(program: &Program) -> Result<Self, Error> {
        let failed = |why: String| Error::from(WorkerError::new(WorkerFault::NotStarted(why)));
        let mut child = program.start().map_err(|error| failed(error.to_string()))?;
        let (orders, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(output), Some(errors)) = (output, errors) else { return Err(failed("it has no streams".into())) };
        let (send, heard) = sync_channel(WAITING);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let said = hear::<Said>(&mut output);
                let last = !matches!(said, Heard::Document(_));
                if send.send(said).is_err() || last {
                    return;
                }
            }
        });
        Ok(Self { child, orders, heard, words: Some(LastWords::of(errors)) })
    }

    /// Gives the job, and listens until the run is over.
    fn converse(
        &mut self,
        job: Job,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> Result<Outcome, Silence> {
        // A worker that is gone does not take it; what it said, or its end, tells why.
        self.tell(&job);
        let (mut greeted, mut stopped) = (false, false);
        loop {
            if stop.load(Ordering::SeqCst) && !std::mem::replace(&mut stopped, true) {
                self.tell(&Order::Stop);
            }
            let said = match self.heard.recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Timeout) => continue,
                // A line that breaks off is what a death in the middle of it leaves.
                Err(RecvTimeoutError::Disconnected) | Ok(Heard::End | Heard::Cut) => return Err(Silence::Gone),
                Ok(Heard::Garbled(why)) => return Err(Silence::Garbled(why)),
                Ok(Heard::Document(said)) => said,
            };
            match said {
                said if !greeted => {
                    if !said.is_our_hello() {
                        return Err(Silence::Garbled("it is another version of tunebox".into()));
                    }
                    greeted = true;
                }
                Said::Event(told) => {
                    progress.note(&told);
                    observer.event(told.event());
                }
                Said::Ended(outcome) => return Ok(*outcome),
                Said::Failed(explanation, exit) => {
                    return Err(Silence::Reported(WorkerFault::Reported(explanation, exit)));
                }
                Said::Hello { .. } => return Err(Silence::Garbled("it begins anew".into())),
            }
        }
    }

    fn tell(&mut self, document: &impl serde::Serialize) {
        // A pipe that does not take it is closed, so that nobody waits for the rest.
        if self.orders.as_mut().is_some_and(|orders| say(orders, document).is_err()) {
            self.orders = None;
        }
    }

    /// Waits for its end, and ends it after `patience`.
    fn end(&mut self, patience: Duration) -> std::io::Result<ExitStatus> {
        // Its input stays open meanwhile: the end of that would mean that the parent is gone.
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// How it ended although it had not said all.
    fn death(&mut self) -> WorkerFault {
        let how = match self.end(GOODBYE) {
            Ok(status) => ending(status),
            Err(error) => format!("is lost: {error}"),
        };
        WorkerFault::Died { how, words: self.words.take().and_then(LastWords::line) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How far the run was, by what it told.
#[derive(Default)]
struct Progress {
    method: Option<String>,
    folder: Option<PathBuf>,
    done: u64,
    total: u64,
}

impl Progress {
    fn note(&mut self, told: &Told) {
        match told {
            Told::Planned { summary, folder, resumed } => {
                self.method = Some(summary.method.clone());
                self.folder = Some(folder.clone());
                (self.done, self.total) = (resumed.unwrap_or(0), summary.steps);
            }
            Told::Step(step) => self.done = step.step,
            _ => {}
        }
    }

    /// The fault with all that is known of the run; what is kept is read from the disk, not taken from what was said.
    fn error(self, fault: WorkerFault) -> WorkerError {
        let kept = self.folder.as_ref().and_then(|folder| checkpoint::last_whole(folder));
        let moment = match &self.folder {
            None => "before the first step".to_owned(),
            Some(_) if self.done >= self.total => "after the last step".to_owned(),
            Some(_) => format!("in step {}", self.done + 1),
        };
        WorkerError { fault, method: self.method, moment, folder: self.folder, kept }
    }
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::{Exit, Explain, Explanation};

    use super::*;
    use crate::observer::Event;

    struct Deaf;

    impl Observer for Deaf {
        fn event(&mut self, _: Event<'_>) {}
    }

    /// What becomes of a run whose worker is a shell script.
    fn supervised(script: &str) -> (Explanation, Exit) {
        let overrides = ["model.path=.", "data.path=data.jsonl", "method.use=./stranger.wasm"].map(str::to_owned);
        let settings = RunSettings::from_overrides(&overrides).unwrap();
        let program = Program::at("/bin/sh").with("-c").with(script);
        let error = carry_out(settings, Some(&program), &mut Deaf, &AtomicBool::new(false)).unwrap_err();
        (error.explanation(), error.exit())
    }

    fn line(said: &Said) -> String {
        serde_json::to_string(said).unwrap()
    }

    #[test]
    fn a_worker_that_dies_is_told_with_its_signal_its_last_words_and_no_checkpoint() {
        let hello = line(&Said::hello());
        let (told, exit) = supervised(&format!("echo '{hello}'; echo 'it could not' >&2; kill -ABRT $$"));

        assert_eq!(told.what, "the worker aborted (signal 6, SIGABRT) before the first step");
        assert_eq!(told.why.unwrap(), "its last words: it could not");
        assert_eq!((told.kept.unwrap().as_str(), exit), ("nothing had been saved yet", Exit::Sandbox));
        assert!(supervised("exit 0").0.what.contains("ended before it was done"));
        assert!(supervised("exit 101").0.what.contains("panicked"));
    }

    #[test]
    fn a_worker_that_breaks_off_in_a_line_died_and_is_not_garbled() {
        let hello = line(&Said::hello());
        let (told, _) = supervised(&format!("echo '{hello}'; printf '{{\"event\":{{\"lo'; kill -KILL $$"));

        assert_eq!(told.what, "the worker was killed (signal 9, SIGKILL) before the first step");
    }

    #[test]
    fn what_is_no_report_is_told_and_ends_the_worker() {
        let hello = line(&Said::hello());
        let other = hello.replace("\"version\":", "\"version\":9");
        for (script, why) in [
            ("echo nonsense; sleep 60".to_owned(), "a line is not what it should be"),
            (format!("echo '{hello}'; echo '{{}}'; sleep 60"), "a line is not what it should be"),
            (format!("echo '{hello}'; echo '{hello}'; sleep 60"), "it begins anew"),
            (format!("echo '{other}'; sleep 60"), "it is another version of tunebox"),
            ("exec cat /dev/zero".to_owned(), "a line is too long"),
        ] {
            let begun = Instant::now();
            let (told, exit) = supervised(&script);
            assert!(told.why.as_ref().unwrap().starts_with(why), "{script}: {told:?}");
            assert_eq!(
                (told.what.as_str(), exit),
                ("the worker cannot be understood before the first step", Exit::Sandbox)
            );
            assert!(begun.elapsed() < Duration::from_secs(30), "{script} is waited for");
        }
    }

    #[test]
    fn what_a_worker_reports_is_told_as_if_it_had_happened_here() {
        let report =
            Explanation::new("data", "the line is not JSON").with_location("data.jsonl:7:15").with_why("it is not");
        let failed = line(&Said::Failed(Box::new(report.clone()), Exit::Usage));
        let (told, exit) = supervised(&format!("echo '{}'; echo '{failed}'", line(&Said::hello())));

        assert_eq!((told, exit), (report, Exit::Usage));
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_what_to_do() {
        let settings =
            RunSettings::from_overrides(&["model.path=.".into(), "data.path=d".into(), "method.use=./s".into()]);
        let program = Program::at("/nowhere/tunebox");
        let error = carry_out(settings.unwrap(), Some(&program), &mut Deaf, &AtomicBool::new(false)).unwrap_err();

        assert_eq!(error.to_string(), "the worker cannot be started");
        assert!(error.hint().unwrap().contains("--in-process"));
    }
}
