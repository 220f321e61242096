//! `tunebox dev`: trains with the method of a folder, and takes every change of its source into the run.
//!
//! The folder is looked at a few times a second. Its digest is that of a few small files, and says exactly what a build
//! would see; events of a file system differ by system, editor and mount, and would only say that it is time to look.
//!
//! The run is in this process, by design: the source is its author's, see `Revisions`.

mod workshop;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tunebox_compute::explain::Exit;

use super::train::{Train, on_interrupt};
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use workshop::Workshop;

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// The method's folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    #[command(flatten)]
    train: Train,
}

impl Dev {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let train = self.train.of_its_author(&self.folder)?;
        let stop = on_interrupt()?;
        let mut workshop = Workshop::open(terminal, self.folder)?;
        let mut again = false;
        while workshop.wait(&stop).is_some() {
            match one_run(terminal, global, &train, again, &mut workshop, &stop) {
                Ok(Ending::Done) => {}
                Ok(interrupted) => return Ok(interrupted),
                // Saved while it was built: what is there now is being built already.
                Err(_) if workshop.is_behind() => continue,
                // A change of the source mends nothing of what the run was told.
                Err(failure) if failure.exit == Exit::Usage && !again => return Err(failure),
                Err(failure) if stop.load(Ordering::SeqCst) => return Err(failure),
                Err(failure) => workshop.show(&failure),
            }
            again = true;
            workshop.say("Waiting", "for a change of the source, for a new run; Ctrl-C ends");
        }
        Ok(Ending::Exit(Exit::Interrupted))
    }
}

/// One run, from its first step to its last, by as many versions of the method as there will be.
fn one_run(
    terminal: Terminal,
    global: &Global,
    train: &Train,
    again: bool,
    workshop: &mut Workshop,
    stop: &AtomicBool,
) -> Outcome {
    let mut settings = train.settled(terminal, global.offline)?;
    settings.resume &= !again;
    if train.leaves_name_open() || again {
        // The next free number: a sample's own name would be taken the second time.
        settings.file.run.name = None;
    }
    let ended = workshop.train(settings, stop)?;
    train.tell(terminal, ended)
}
