//! The worker process: reads its job, executes the run, and sends every event to the parent.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_model::{RankGroup, watchdog};
use tunebox_sandbox::{CallEvent, CallObserver, Compiling, Function};

use super::confinement::{confine, confine_memory};
use super::protocol::{Input, Job, Message, Order, Version, read, read_bytes, write};
use crate::error::Error;
use crate::observer::{Event, Observer};
use crate::ranks::{Gathered, GatheringRanks, plan_on_ranks};
use crate::run::run;

/// Executes the run of the job that arrives on `input`, and writes its events and its result to `output`. After it has
/// read the job, has the operating system confine this process, unless the run may use a CUDA device. Setting `stop`,
/// or a stop order on `input`, ends the run after the present step. `compiling` says how code is compiled; its cache is
/// replaced by that of the job. Calls `orphaned`, which is expected to end the process, when the parent is gone, or
/// after reporting to it that the watchdog gave up on a file of the model.
///
/// Returns the exit code of the process: `None` for success, [`Exit::Interrupted`] for a run that was stopped, else
/// that of the error, which it has sent. The parent goes by the messages, not by the exit code.
pub fn serve(
    input: impl Read + Send + 'static,
    output: Arc<Mutex<impl Write + Send + 'static>>,
    compiling: Compiling,
    stop: &Arc<AtomicBool>,
    orphaned: fn(),
) -> Option<Exit> {
    let mut input = BufReader::new(input);
    let mut sender = Sender { output, orphaned };
    let job = match sender.send(&Message::Hello(Version::this())) {
        Ok(()) => match read::<Job>(&mut input) {
            Input::Document(job) if job.parent == Version::this() => Ok(job),
            Input::Document(_) => Err("the parent is another version of tunebox".into()),
            Input::End | Input::Cut => Err("no job came".into()),
            Input::Invalid(why) => Err(why),
        },
        Err(error) => Err(error.to_string()),
    };
    let result = job.map_err(|why| unreadable_job(&why)).and_then(|job| {
        let mut settings = job.settings;
        settings.compiling = Compiling { cache: job.code, ..compiling };
        let call_sender = sender.clone();
        settings.call_observer = Some(CallObserver(Arc::new(move |event| {
            call_sender.send_or_end(&match event {
                CallEvent::Begun(function, seconds) => Message::Call(Some((function == Function::Step, seconds))),
                CallEvent::Line(line) => Message::Line(line.to_owned()),
                CallEvent::Ended => Message::Call(None),
            });
        })));
        let limit = confine(&settings).map_err(|error| confinement_error(&error))?;
        watch_parsers(sender.clone()).map_err(|error| confinement_error(&error))?;
        let (gathered, answers) = channel();
        listen(input, Arc::clone(stop), gathered, orphaned);
        if let Some((rank, count)) = job.rank {
            let pipe = Mutex::new((sender.clone(), answers));
            let gather = move |purpose: &'static str, message| {
                gather_by_parent(&pipe.lock().unwrap_or_else(PoisonError::into_inner), purpose, message)
            };
            settings.ranks = RankGroup::new(Arc::new(GatheringRanks { rank, count, gather }));
        }
        let plan = plan_on_ranks(settings)?;
        drop(limit);
        confine_memory(&plan.run).map_err(|error| confinement_error(&error))?;
        run(plan, &mut sender, stop)
    });
    let (message, exit) = match result {
        Ok(summary) => {
            let exit = summary.interrupted.then_some(Exit::Interrupted);
            (Message::Ended(Box::new(summary)), exit)
        }
        Err(error) => (Message::Failed(Box::new(error.explanation()), error.exit()), Some(error.exit())),
    };
    sender.send_or_end(&message);
    exit
}

/// The error about a job that did not arrive or cannot be read. `why` is the cause.
fn unreadable_job(why: &str) -> Error {
    let problem = Explanation::new("worker", "the worker cannot be understood before the first step").with_why(why);
    let problem = problem.with_kept("nothing had been saved yet").with_hint("the same command again");
    Error::Explained(Box::new(problem), Exit::Sandbox)
}

/// The error about a system that does not confine this process.
fn confinement_error(error: &std::io::Error) -> Error {
    let problem = Explanation::new("worker", "the worker cannot be confined").with_why(error.to_string());
    let problem = problem.with_hint("`--in-process` does without, for methods that you trust");
    Error::Explained(Box::new(problem), Exit::Sandbox)
}

/// Starts the watchdog: if parsing a file of the model takes far longer than the file's size explains, the watchdog
/// sends a failure with the exit code for wrong usage to the parent and calls `orphaned`, which ends the process.
fn watch_parsers(sender: Sender<impl Write + Send + 'static>) -> io::Result<()> {
    watchdog::start(move |explanation| {
        sender.send_or_end(&Message::Failed(Box::new(explanation), Exit::Usage));
        (sender.orphaned)();
    })
}

/// Starts a thread that sets `stop` for every stop order on `input`, sends the messages of other ranks to `gathered`,
/// and calls `orphaned` at the end of the pipe, which means that the parent is gone, or at the first line that is no
/// order.
fn listen(
    mut input: BufReader<impl Read + Send + 'static>,
    stop: Arc<AtomicBool>,
    gathered: std::sync::mpsc::Sender<Gathered>,
    orphaned: fn(),
) {
    std::thread::spawn(move || {
        loop {
            let answer = match read(&mut input) {
                Input::Document(Order::Stop) => {
                    stop.store(true, Ordering::SeqCst);
                    continue;
                }
                Input::Document(Order::NotGathered(explanation)) => Err(explanation),
                Input::Document(Order::Gathered(lengths)) => {
                    let messages = lengths.into_iter().map(|length| read_bytes(&mut input, length));
                    match messages.collect::<io::Result<_>>() {
                        Ok(messages) => Ok(messages),
                        Err(_) => break,
                    }
                }
                Input::End | Input::Cut | Input::Invalid(_) => break,
            };
            if gathered.send(answer).is_err() {
                break;
            }
        }
        orphaned();
    });
}

/// Has the parent exchange a message with the other ranks, and waits for the messages of all. `pipe` sends to the
/// parent and receives its answers. Calls `orphaned` if the pipe is broken. Fails if the ranks cannot exchange
/// messages, or the parent is gone.
fn gather_by_parent<W: Write>(
    (sender, answers): &(Sender<W>, Receiver<Gathered>),
    purpose: &str,
    message: Result<Vec<u8>, String>,
) -> Gathered {
    let announced = message.as_ref().map(|bytes| bytes.len() as u64).map_err(Clone::clone);
    sender.send_bytes_or_end(&Message::Gather(purpose.to_owned(), announced), &message.unwrap_or_default());
    let gone = |_| Err(Box::new(Explanation::new("worker", "the process that started this one is gone")));
    answers.recv().unwrap_or_else(gone)
}

/// Sends messages to the parent.
struct Sender<W> {
    output: Arc<Mutex<W>>,
    /// Called when the parent is gone; expected to end the process.
    orphaned: fn(),
}

impl<W> Clone for Sender<W> {
    /// Returns a sender to the same output.
    fn clone(&self) -> Self {
        Self { output: Arc::clone(&self.output), orphaned: self.orphaned }
    }
}

impl<W: Write> Sender<W> {
    /// Sends a message to the parent; see [`write`] for its errors.
    fn send(&self, message: &Message) -> io::Result<()> {
        write(&mut *self.output.lock().unwrap_or_else(PoisonError::into_inner), message)
    }

    /// Sends a message to the parent. Drops a message of 64 MiB or more; calls `orphaned` on any other error of the
    /// pipe.
    fn send_or_end(&self, message: &Message) {
        match self.send(message) {
            Ok(()) => {}
            // Only an event can be too long, and the run does not need it.
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
            Err(_) => (self.orphaned)(),
        }
    }

    /// Sends a message to the parent and the bytes that follow it. Calls `orphaned` on an error of the pipe.
    fn send_bytes_or_end(&self, message: &Message, bytes: &[u8]) {
        let output = &mut *self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if write(output, message).and_then(|()| output.write_all(bytes)).and_then(|()| output.flush()).is_err() {
            (self.orphaned)();
        }
    }
}

impl<W: Write> Observer for Sender<W> {
    /// Sends the event to the parent. Drops an event of 64 MiB or more; calls `orphaned` on any other error of the
    /// pipe.
    fn event(&mut self, event: &Event) {
        self.send_or_end(&Message::Event(Box::new(event.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_job_reports_it() {
        let output = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let exit = serve(std::io::empty(), Arc::clone(&output), Compiling::default(), &stop, || ());
        assert_eq!(exit, Some(Exit::Sandbox));
        assert!(String::from_utf8(output.lock().unwrap().clone()).unwrap().contains("no job came"));
    }
}
