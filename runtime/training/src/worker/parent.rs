//! The parent of a worker process: starts it, forwards its events, and reports how it ended.

mod progress;

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::paths::simplify;
use tunebox_sandbox::child::{Program, StderrTail, describe_exit, send_environment, wait_or_kill};

use super::protocol::{Input, Job, Message, Order, Version, read, read_bytes, write};
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::observer::{Event, Observer};
use crate::plan;
use crate::ranks::{Connection, lock};
use crate::report::settle_report;
use crate::run::{Summary, run};
use progress::Progress;

/// How often `stop` is checked while the worker sends nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a worker may take to exit after its last message.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How far beyond its time limit a call of the method may last before the worker is killed. Usually the worker ends
/// such a call itself, and says more about it.
const CALL_OVERRUN: Duration = Duration::from_secs(1);

/// The most documents that wait for the worker to read them: the job, the answer to its exchange, and a stop order.
const MAX_ORDERS: usize = 4;

/// The most messages that wait between the thread that reads the pipe and the observer.
const MAX_QUEUED: usize = 64;

/// Executes a run and sends its events to `observer`: in a process started from `worker`, or in this process if no
/// `worker` is given. Setting `stop` ends the run after the present step, with a checkpoint.
///
/// # Errors
/// A run that cannot be planned, and the error that ends it; with `worker` also a process that cannot be started, dies,
/// hangs in a call of the method, or sends an invalid message.
pub fn execute(
    settings: RunSettings,
    worker: Option<&Program>,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Summary, Error> {
    match worker {
        Some(program) => supervise(settings, program, observer, stop, None),
        None => run(plan::plan(settings)?, observer, stop),
    }
}

/// Executes the run in a worker process started from `program`. Forwards events to `observer`; `stop` ends the run
/// after the present step. Before it starts the process, it compiles the method and the verifiers, fetches models and
/// data of the hub, and creates the folder for runs if there is none. After the run has ended, waits up to 5 seconds for the
/// process to exit, then kills it, writes the last report of a run that failed, and removes a folder for runs that this
/// call created and that is empty. On several ranks exchanges the worker's messages over `connection`.
///
/// # Errors
/// Wrong settings, a model that cannot be fetched, a component that cannot be compiled, and a process that cannot be
/// started, all before the run; and those of [`Worker::run_job`].
pub(crate) fn supervise(
    mut settings: RunSettings,
    program: &Program,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    connection: Option<&Mutex<Connection>>,
) -> Result<Summary, Error> {
    // The worker may write no code, which other runs would trust, so it is compiled here.
    let code = plan::compile(settings.clone(), true)?;
    // The worker gets no token of a hub and no network, so models and data are fetched here.
    if plan::fetch(&settings)? {
        settings.offline = true;
    }
    if let Some(text) = &code.warning {
        observer.event(&Event::Warning { text: text.clone() });
    }
    // The worker may write to the folder of runs alone, which must exist for that.
    let runs = PathBuf::from(&settings.file.run.folder);
    let is_new = !runs.exists() && std::fs::create_dir_all(&runs).is_ok();
    let mut worker = Worker::start(program).map_err(|error| {
        let problem = Explanation::new("worker", "the worker cannot be started").with_why(error.to_string());
        let hint = "`--in-process` does without it, for methods that you trust";
        Error::Explained(Box::new(problem.with_hint(hint)), Exit::Sandbox)
    })?;
    let rank = connection.map(|connection| {
        let connection = lock(connection);
        (connection.rank(), connection.count())
    });
    let job = Job { parent: Version::this(), settings, rank, code: code.folder.clone() };
    let result = worker.run_job(&job, observer, stop, connection);
    let _ = wait_or_kill(&mut worker.child, EXIT_TIMEOUT);
    if let (Err(error), Some(folder)) = (&result, &worker.progress.folder) {
        // A worker that was killed left a report of a run that goes on.
        settle_report(&simplify(&runs), folder, error);
    }
    if is_new {
        // Removes it only if it is empty.
        let _ = std::fs::remove_dir(&runs);
    }
    result
}

/// A running worker. Dropping it kills it.
struct Worker {
    child: Child,
    /// Documents for the worker, which a thread writes, because the worker may not read them; `None` once it takes
    /// none.
    orders: Option<SyncSender<Vec<u8>>>,
    /// The worker's messages, each with the bytes that follow it.
    messages: Receiver<(Input<Message>, Vec<u8>)>,
    stderr: Option<StderrTail>,
    progress: Progress,
}

impl Worker {
    /// Starts the worker process, sends it the environment variables that name folders, and starts threads that read
    /// its messages, up to the first that is not a document, and its error output. Fails if the process cannot be
    /// started or has no pipes; ignores that the environment cannot be sent.
    fn start(program: &Program) -> io::Result<Self> {
        let mut child = program.start()?;
        let (mut orders, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // A worker that is gone cannot take them; its messages, or their end, tell why.
        let _ = orders.as_mut().map(send_environment);
        let (Some(output), Some(errors)) = (output, errors) else { return Err(io::Error::other("it has no streams")) };
        let (send, messages) = sync_channel(MAX_QUEUED);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let (message, bytes) = read_message(&mut output);
                let is_last = !matches!(message, Input::Document(_));
                if send.send((message, bytes)).is_err() || is_last {
                    return;
                }
            }
        });
        let stderr = Some(StderrTail::read(errors));
        let orders = orders.map(write_orders);
        Ok(Self { child, orders, messages, stderr, progress: Progress::default() })
    }

    /// Sends the job, checks that the first message is `Hello` of this version, and forwards events to `observer` until
    /// the worker reports the end of the run. Sends one stop order once `stop` is set.
    ///
    /// # Errors
    /// The failure that the worker reports; a line that is no message, or a message other than the first `Hello` of
    /// this version at its place; the end of the pipe before the run has ended; and a call of the method that lasts
    /// more than a second longer than it may. In all cases but the first the worker is killed, at the end of the pipe
    /// only after 5 seconds.
    fn run_job(
        &mut self,
        job: &Job,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
        connection: Option<&Mutex<Connection>>,
    ) -> Result<Summary, Error> {
        // A worker that is gone cannot take it; its messages, or their end, tell why.
        self.send(job);
        let (mut greeted, mut stopped, mut call, mut in_step) = (false, false, None, false);
        loop {
            if stop.load(Ordering::SeqCst) && !std::mem::replace(&mut stopped, true) {
                self.send(&Order::Stop);
            }
            let (message, bytes) = match self.messages.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => match call {
                    Some((end, seconds)) if Instant::now() > end => return Err(self.end_late_call(seconds)),
                    _ => continue,
                },
                // A worker that dies while it writes leaves a cut line.
                Err(RecvTimeoutError::Disconnected) | Ok((Input::End | Input::Cut, _)) => {
                    return Err(self.explain_death());
                }
                Ok((Input::Invalid(why), _)) => return Err(self.reject(why)),
                Ok((Input::Document(message), bytes)) => (message, bytes),
            };
            match message {
                message if !std::mem::replace(&mut greeted, true) => {
                    if !matches!(message, Message::Hello(version) if version == Version::this()) {
                        return Err(self.reject("it is another version of tunebox".into()));
                    }
                }
                Message::Event(event) => {
                    self.progress.update(&event);
                    observer.event(&event);
                }
                Message::Line(line) => observer.live_line(&line, in_step),
                Message::Call(begun) => {
                    let left = |seconds| Duration::try_from_secs_f64(seconds).ok()?.checked_add(CALL_OVERRUN);
                    let end = |seconds| Instant::now().checked_add(left(seconds)?);
                    in_step = begun.is_some_and(|(is_step, _)| is_step);
                    call = begun.and_then(|(_, seconds)| Some((end(seconds)?, seconds)));
                }
                Message::Gather(purpose, length) => match connection {
                    Some(connection) => self.gather(connection, &purpose, length.map(|_| bytes)),
                    None => return Err(self.reject("it asks for ranks that the run does not have".into())),
                },
                Message::Ended(summary) => return Ok(*summary),
                Message::Failed(explanation, exit) => return Err(Error::Explained(explanation, exit)),
                Message::Hello(_) => return Err(self.reject("it begins anew".into())),
            }
        }
    }

    /// Exchanges a message of the worker with the other ranks, and sends the worker the messages of all ranks, or why
    /// there are none.
    fn gather(&mut self, connection: &Mutex<Connection>, purpose: &str, message: Result<Vec<u8>, String>) {
        let gathered = lock(connection).gather(purpose, message);
        let messages = match gathered {
            Err(explanation) => return self.send(&Order::NotGathered(explanation)),
            Ok(messages) => messages,
        };
        let lengths = messages.iter().map(|message| message.len() as u64).collect();
        self.send_with(&Order::Gathered(lengths), &messages);
    }

    /// Kills a worker that sent a line that is no message, or a message of another version or at the wrong place, and
    /// returns the error about it. `why` says what is wrong.
    fn reject(&mut self, why: String) -> Error {
        let _ = wait_or_kill(&mut self.child, Duration::ZERO);
        self.progress.worker_error("cannot be understood", why)
    }

    /// Kills a worker whose call of the method lasts longer than its limit of `seconds`, and returns the error about
    /// it.
    fn end_late_call(&mut self, seconds: f64) -> Error {
        let _ = wait_or_kill(&mut self.child, Duration::ZERO);
        let why = format!(
            "a call of the method lasted longer than `limits.step-wall-seconds`, {seconds} s, and did not end by itself"
        );
        self.progress.worker_error("was ended", why)
    }

    /// Waits for a worker whose output ended, killing it after 5 seconds, and returns the error about its death. The
    /// cause is the last line of its error output; without one, a guess from how the process ended.
    fn explain_death(&mut self) -> Error {
        let how =
            wait_or_kill(&mut self.child, EXIT_TIMEOUT).map_or_else(|error| format!("is lost: {error}"), describe_exit);
        let why = match self.stderr.take().and_then(StderrTail::last_line) {
            Some(line) => format!("its last words: {line}"),
            None if how.contains("SIGKILL") => {
                "a user ended it, or the system did because memory ran out; this program and the run's files are whole"
                    .into()
            }
            None => "a run is carried out in a process of its own, so nothing else was harmed".into(),
        };
        self.progress.worker_error(&how, why)
    }

    /// Sends a document to the worker, as [`send_with`](Self::send_with) does.
    fn send(&mut self, document: &impl serde::Serialize) {
        self.send_with(document, &[]);
    }

    /// Sends a document to the worker and the bytes that follow it. If that fails, or the worker has not read several
    /// documents before, closes the pipe and reports nothing: the worker's messages, or their end, tell why.
    fn send_with(&mut self, document: &impl serde::Serialize, following: &[Vec<u8>]) {
        let mut bytes = Vec::new();
        let is_written = write(&mut bytes, document).is_ok();
        following.iter().for_each(|more| bytes.extend_from_slice(more));
        if !is_written || self.orders.as_ref().is_some_and(|orders| orders.try_send(bytes).is_err()) {
            self.orders = None;
        }
    }
}

impl Drop for Worker {
    /// Kills the worker if it still runs.
    fn drop(&mut self) {
        let _ = wait_or_kill(&mut self.child, Duration::ZERO);
    }
}

/// Starts a thread that writes to the worker all bytes that the returned sender gets, until writing fails or the sender
/// is gone.
fn write_orders(mut orders: ChildStdin) -> SyncSender<Vec<u8>> {
    let (send, documents) = sync_channel::<Vec<u8>>(MAX_ORDERS);
    std::thread::spawn(move || {
        let mut write = |bytes: Vec<u8>| orders.write_all(&bytes).and_then(|()| orders.flush());
        documents.into_iter().try_for_each(&mut write)
    });
    send
}

/// Reads a message of the worker, and the bytes that follow a [`Message::Gather`]; no bytes after any other. `Cut` or
/// `Invalid` if these bytes do not arrive whole or are too many.
fn read_message(output: &mut impl BufRead) -> (Input<Message>, Vec<u8>) {
    let message = read::<Message>(output);
    let Input::Document(Message::Gather(_, Ok(length))) = &message else { return (message, Vec::new()) };
    match read_bytes(output, *length) {
        Ok(bytes) => (message, bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => (Input::Cut, Vec::new()),
        Err(error) => (Input::Invalid(error.to_string()), Vec::new()),
    }
}

#[cfg(test)]
mod tests;
