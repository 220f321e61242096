//! The worker's side: reads its job, does the run, tells all of it, and ends when the parent does.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_foundation::explain::Exit;
use tunebox_sandbox::Compiling;

use super::fault::{WorkerError, WorkerFault};
use super::protocol::{Heard, Job, Order, Said, Told, hear, say};
use crate::error::Error;
use crate::observer::{Event, Observer};
use crate::plan::plan;
use crate::run::{Outcome, run};

/// Does the run that comes in on `input` and tells it on `output`. `stop` ends it as a person would, and so does an
/// order of the parent; `orphaned` is called when the parent is gone, and is expected to end the process.
///
/// Gives the exit code of a process that did this; the parent goes by what it was told, not by that.
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    compiling: Compiling,
    stop: &Arc<AtomicBool>,
    orphaned: fn(),
) -> Option<Exit> {
    let mut input = BufReader::new(input);
    let last = match say(&mut output, &Said::hello()) {
        Ok(()) => match hear::<Job>(&mut input) {
            Heard::Document(job) if job.is_ours() => {
                listen(input, Arc::clone(stop), orphaned);
                carry_out(job, compiling, &mut output, stop, orphaned)
            }
            Heard::Document(_) => Err(lost("the parent is another version of tunebox")),
            Heard::End | Heard::Cut => Err(lost("no job came")),
            Heard::Garbled(why) => Err(lost(&why)),
        },
        Err(error) => Err(lost(&error.to_string())),
    };
    let (said, exit) = match last {
        Ok(outcome) => {
            let exit = outcome.exit();
            (Said::Ended(Box::new(outcome)), exit)
        }
        Err(error) => (Said::failed(&error), Some(tunebox_foundation::explain::Explain::exit(&error))),
    };
    if say(&mut output, &said).is_err() {
        orphaned();
    }
    exit
}

fn lost(why: &str) -> Error {
    WorkerError::new(WorkerFault::Garbled(why.to_owned())).into()
}

fn carry_out(
    job: Job,
    compiling: Compiling,
    output: &mut impl Write,
    stop: &AtomicBool,
    orphaned: fn(),
) -> Result<Outcome, Error> {
    let mut settings = job.settings;
    settings.compiling = compiling;
    let plan = plan(settings)?;
    run(plan, &mut Teller { output, orphaned }, stop)
}

/// Hears what follows the job, until the pipe ends; it ends with the parent.
fn listen(mut input: BufReader<impl Read + Send + 'static>, stop: Arc<AtomicBool>, orphaned: fn()) {
    std::thread::spawn(move || {
        loop {
            match hear::<Order>(&mut input) {
                Heard::Document(Order::Stop) => stop.store(true, Ordering::SeqCst),
                Heard::End | Heard::Cut | Heard::Garbled(_) => return orphaned(),
            }
        }
    });
}

/// Passes every event on.
struct Teller<'a, W> {
    output: &'a mut W,
    orphaned: fn(),
}

impl<W: Write> Observer for Teller<'_, W> {
    fn event(&mut self, event: Event<'_>) {
        let said = Said::Event(Box::new(Told::from(event)));
        match say(self.output, &said) {
            Ok(()) => {}
            // Too long to be told; the run itself can do without.
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {}
            Err(_) => (self.orphaned)(),
        }
    }
}
