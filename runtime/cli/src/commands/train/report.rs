//! How a run ended: what it left, how it answers now, and what to type next.

use serde_json::json;
use tunebox_compute::precision::Base;
use tunebox_foundation::explain::Exit;
use tunebox_training::plan::ENDLESS;
use tunebox_training::{Outcome as Ended, Summary, base_precision, newest_checkpoint};

use super::super::{Ending, Outcome};
use super::again::going_on;
use super::sample::Before;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::{bytes, counted, duration, number};

/// What is said of a run that left nothing to load.
const NOTHING_LEFT: &str =
    "no adapter was written: no step made an update; `minimise(&loss)?` in the method's `step` asks for one";

/// Says how a run ended.
pub(in crate::commands) fn tell(terminal: Terminal, ended: &Ended) -> Outcome {
    report(terminal, ended, None)
}

/// The same; of a run on the sample, with how the model answered before and answers now.
pub(super) fn report(terminal: Terminal, ended: &Ended, before: Option<&Before>) -> Outcome {
    let ending = match ended {
        Ended::Interrupted(summary) => stopped(terminal, summary),
        Ended::Finished(summary) => done(terminal, summary, before)?,
    };
    announce(terminal, ended);
    Ok(ending)
}

fn stopped(terminal: Terminal, summary: &Summary) -> Ending {
    let of = if summary.total == u64::from(ENDLESS) { String::new() } else { format!(" of {}", summary.total) };
    if let Some((_, saved)) = &summary.checkpoint {
        terminal.say("Stopped", format!("at step {}{of}, saved {}", summary.step, saved.display()));
        // What was saved may be no adapter; then there is nobody to talk to.
        let talk = newest_checkpoint(&summary.folder).ok().flatten().map(|_| summary.folder.display());
        let talk = talk.map_or(String::new(), |folder| format!("\ntunebox chat {folder}"));
        terminal.next(format!("{}{talk}", going_on(&summary.name)));
    } else {
        terminal.say("Stopped", "before a step was done: there is nothing to save");
    }
    Ending::Exit(Exit::Interrupted)
}

fn done(terminal: Terminal, summary: &Summary, before: Option<&Before>) -> Result<Ending, Failure> {
    let metric = |name: &str| summary.last.as_ref().and_then(|step| step.metric(name));
    let loss = metric("loss").map_or(String::new(), |loss| format!(", loss {}", number(loss, 3, 12)));
    let accuracy = metric("accuracy").map_or(String::new(), |value| format!(", accuracy {value:.2}"));
    let (steps, taken) = (counted(summary.total, "step"), duration(summary.seconds));
    terminal.say("Done", format!("{steps} in {taken}{loss}{accuracy}"));
    let name = |file: &tunebox_training::Written| {
        let name = file.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        format!("{name} {}", bytes(file.bytes))
    };
    let (folder, files) = (summary.folder.display(), summary.written.iter().map(name).collect::<Vec<_>>());
    terminal.say("Wrote", format!("{folder}  {}", files.join(", ")));
    if !left(summary, "safetensors") {
        terminal.say("Warning", NOTHING_LEFT);
        return Ok(Ending::Done);
    }
    if let Some(before) = before {
        before.compare(terminal, &summary.folder)?;
    }
    terminal.next(talk(summary)?);
    Ok(Ending::Done)
}

/// What lets a person talk to what a run left. Directions alone are no model; they go on one.
fn talk(summary: &Summary) -> Result<String, Failure> {
    let folder = summary.folder.display();
    if left(summary, "json") {
        return Ok(format!("tunebox chat {folder}"));
    }
    let quantised = base_precision(&summary.folder)? == Some(Base::Nf4);
    let precision = if quantised { " --base-precision nf4" } else { "" };
    Ok(format!("tunebox chat MODEL --steer {folder}/vectors.safetensors{precision}"))
}

/// Whether a run left a file whose name ends so.
fn left(summary: &Summary, extension: &str) -> bool {
    summary.written.iter().any(|file| file.path.extension().is_some_and(|found| found == extension))
}

/// The end of a run as an object.
fn announce(terminal: Terminal, ended: &Ended) {
    let summary = ended.summary();
    if terminal.json {
        // A run that did no step leaves no folder.
        let folder = Some(&summary.folder).filter(|folder| folder.exists());
        terminal.object(json!({
            "event": if matches!(ended, Ended::Finished(_)) { "finished" } else { "stopped" },
            "name": summary.name, "folder": folder, "step": summary.step, "total": summary.total,
            "seconds": summary.seconds, "tokens": summary.tokens,
            "checkpoint": summary.checkpoint.as_ref().map(|(_, path)| path),
        }));
    }
}
