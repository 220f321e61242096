//! The worker process: reads its job, executes the run, and sends every event to the parent.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_sandbox::Compiling;

use super::confinement::{confine_plan, confine_steps};
use super::protocol::{Input, Job, Message, Order, Version, read, write};
use crate::error::Error;
use crate::observer::{Event, Observer};
use crate::plan::plan;
use crate::run::run;

/// Executes the run whose job arrives on `input`, and writes events and outcome to `output`. `stop`, or an order of the
/// parent, ends the run after the present step. The operating system confines this process first. Calls `orphaned` when
/// the parent is gone; it is expected to end the process.
///
/// Returns the exit code of the process. The parent goes by the messages, not by the exit code.
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    compiling: Compiling,
    stop: &Arc<AtomicBool>,
    orphaned: fn(),
) -> Option<Exit> {
    let mut input = BufReader::new(input);
    let job = match write(&mut output, &Message::Hello(Version::this())) {
        Ok(()) => match read::<Job>(&mut input) {
            Input::Document(job) if job.parent == Version::this() => Ok(job),
            Input::Document(_) => Err("the parent is another version of tunebox".into()),
            Input::End | Input::Cut => Err("no job came".into()),
            Input::Invalid(why) => Err(why),
        },
        Err(error) => Err(error.to_string()),
    };
    let result = job.map_err(|why| unreadable(&why)).and_then(|job| {
        let mut settings = job.settings;
        settings.compiling = compiling;
        confine_plan(&settings).map_err(|error| unconfined(&error))?;
        listen(input, Arc::clone(stop), orphaned);
        let plan = plan(settings)?;
        confine_steps(&plan.run).map_err(|error| unconfined(&error))?;
        run(plan, &mut Sender { output: &mut output, orphaned }, stop)
    });
    let (message, exit) = match result {
        Ok(outcome) => {
            let exit = outcome.exit();
            (Message::Ended(Box::new(outcome)), exit)
        }
        Err(error) => (Message::Failed(Box::new(error.explanation()), error.exit()), Some(error.exit())),
    };
    if write(&mut output, &message).is_err() {
        orphaned();
    }
    exit
}

/// The error about a job that did not arrive or cannot be read. `why` is the cause.
fn unreadable(why: &str) -> Error {
    let problem = Explanation::new("worker", "the worker cannot be understood before the first step").with_why(why);
    let problem = problem.with_kept("nothing had been saved yet").with_hint("the same command again");
    Error::Explained(Box::new(problem), Exit::Sandbox)
}

/// The error about a system that does not confine this process.
fn unconfined(error: &std::io::Error) -> Error {
    let problem = Explanation::new("worker", "the worker cannot be confined").with_why(error.to_string());
    let problem = problem.with_hint("`--in-process` does without, for methods that you trust");
    Error::Explained(Box::new(problem), Exit::Sandbox)
}

/// Starts a thread that sets `stop` for every stop order on `input`, and calls `orphaned` at the end of the pipe, which
/// means that the parent is gone.
fn listen(mut input: BufReader<impl Read + Send + 'static>, stop: Arc<AtomicBool>, orphaned: fn()) {
    std::thread::spawn(move || {
        while let Input::Document(Order::Stop) = read(&mut input) {
            stop.store(true, Ordering::SeqCst);
        }
        orphaned();
    });
}

/// Sends every event to the parent.
struct Sender<'a, W> {
    output: &'a mut W,
    orphaned: fn(),
}

impl<W: Write> Observer for Sender<'_, W> {
    /// Sends an event to the parent. Drops an event that is too long; calls `orphaned` if the pipe is closed.
    fn event(&mut self, event: &Event) {
        match write(self.output, &Message::Event(Box::new(event.clone()))) {
            Ok(()) => {}
            // An event that is too long is dropped; the run does not need it.
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {}
            Err(_) => (self.orphaned)(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_job_reports_it() {
        let mut output = Vec::new();
        let stop = Arc::new(AtomicBool::new(false));
        let exit = serve(std::io::empty(), &mut output, Compiling::default(), &stop, || ());
        assert_eq!(exit, Some(Exit::Sandbox));
        assert!(String::from_utf8(output).unwrap().contains("no job came"));
    }
}
