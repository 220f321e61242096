//! The report at the end of a run: what it wrote, how the model answers now, and what to type next.

use std::path::Path;

use serde_json::json;
use tunebox_compute::precision::Base;
use tunebox_foundation::explain::Exit;
use tunebox_training::configuration::ENDLESS;
use tunebox_training::{Outcome, Summary, base_precision, newest_checkpoint};

use super::sample::SampleReport;
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use tunebox_foundation::format::{bytes, counted, duration, number};

/// The warning after a run that wrote nothing to load.
const NO_ARTIFACT: &str =
    "no adapter was written: no step made an update; `minimise(&loss)?` in the method's `step` asks for one";

/// Reports how a run ended and emits a `finished` or `stopped` event. After a finished run with `sample`, also shows
/// the model's answers before and after. Exit code 130 if it was interrupted.
pub(crate) fn show_outcome(terminal: Terminal, outcome: &Outcome, sample: Option<&SampleReport>) -> CommandResult {
    let (name, status) = match outcome {
        Outcome::Interrupted(summary) => ("stopped", show_stopped(terminal, summary)),
        Outcome::Finished(summary) => ("finished", show_finished(terminal, summary, sample)?),
    };
    let summary = outcome.summary();
    // A run without a step leaves no folder.
    let folder = Some(&summary.folder).filter(|folder| folder.exists());
    terminal.event(json!({
        "event": name, "name": summary.name, "folder": folder, "step": summary.step, "total": summary.total,
        "seconds": summary.seconds, "tokens": summary.tokens,
        "checkpoint": summary.checkpoint.as_ref().map(|(_, path)| path),
    }));
    Ok(status)
}

/// Reports an interrupted run with its checkpoint, and suggests the commands that resume it and, if the checkpoint has
/// an adapter, chat with it. Returns exit code 130.
fn show_stopped(terminal: Terminal, summary: &Summary) -> ExitStatus {
    let of = if summary.total == u64::from(ENDLESS) { String::new() } else { format!(" of {}", summary.total) };
    if let Some((_, saved)) = &summary.checkpoint {
        terminal.status("Stopped", format!("at step {}{of}, saved {}", summary.step, saved.display()));
        // A checkpoint of a method that does not learn has no adapter to chat with.
        let has_adapter = newest_checkpoint(&summary.folder).ok().flatten().is_some();
        let chat = if has_adapter { format!("\n{}", chat_command(&summary.folder)) } else { String::new() };
        terminal.suggest(format!("{}{chat}", resume_command(&summary.name)));
    } else {
        terminal.status("Stopped", "before a step was done: there is nothing to save");
    }
    ExitStatus::Code(Exit::Interrupted)
}

/// Reports steps, time, last loss and accuracy, and the written files of a finished run. Warns and stops there if the
/// run wrote no weights; else shows the sample report if given, and suggests the next command.
fn show_finished(terminal: Terminal, summary: &Summary, sample: Option<&SampleReport>) -> CommandResult {
    let metric = |name: &str| summary.last.as_ref().and_then(|step| step.metric(name));
    let loss = metric("loss").map_or(String::new(), |loss| format!(", loss {}", number(loss, 3, 12)));
    let accuracy = metric("accuracy").map_or(String::new(), |value| format!(", accuracy {value:.2}"));
    let (steps, time) = (counted(summary.total, "step"), duration(summary.seconds));
    terminal.status("Done", format!("{steps} in {time}{loss}{accuracy}"));
    let files: Vec<String> = summary
        .written
        .iter()
        .map(|file| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name} {}", bytes(file.bytes))
        })
        .collect();
    terminal.status("Wrote", format!("{}  {}", summary.folder.display(), files.join(", ")));
    if !has_file(summary, "safetensors") {
        terminal.warn(NO_ARTIFACT);
        return Ok(ExitStatus::Success);
    }
    if let Some(sample) = sample {
        sample.show(terminal, &summary.folder)?;
    }
    terminal.suggest(next_command(summary)?);
    Ok(ExitStatus::Success)
}

/// The command that chats with the result of a run: its folder if it has an adapter or a model (a `.json` file), else
/// the steering vectors on a model that the user is to name.
fn next_command(summary: &Summary) -> Result<String, Failure> {
    if has_file(summary, "json") {
        return Ok(chat_command(&summary.folder));
    }
    let is_quantized = base_precision(&summary.folder)? == Some(Base::Nf4);
    let precision = if is_quantized { " --base-precision nf4" } else { "" };
    Ok(format!("tunebox chat MODEL --steer {}/vectors.safetensors{precision}", summary.folder.display()))
}

/// The command that chats with a model, an adapter or a run in a folder.
pub(crate) fn chat_command(folder: &Path) -> String {
    format!("tunebox chat {}", folder.display())
}

/// Whether a run wrote a file with this extension, given without the dot.
fn has_file(summary: &Summary, extension: &str) -> bool {
    summary.written.iter().any(|file| file.path.extension().is_some_and(|found| found == extension))
}

/// The command that resumes the run `name`: the one that was typed, with `--resume --name NAME`, quoted for a shell.
fn resume_command(name: &str) -> String {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    with_resume(&typed, name)
}

/// Returns a command line with its `--name` and `--resume` removed and `--resume --name NAME` added, before any `--`.
/// Each word is quoted for a shell; `typed` excludes the program's name.
fn with_resume(typed: &[String], name: &str) -> String {
    let mut words = vec!["tunebox"];
    let mut given = typed.iter().map(String::as_str);
    // Words after `--` are not flags.
    let rest: Vec<&str> = loop {
        match given.next() {
            None => break Vec::new(),
            Some("--") => break std::iter::once("--").chain(given).collect(),
            Some("--resume") => {}
            Some("--name") => {
                given.next();
            }
            Some(word) if word.starts_with("--name=") => {}
            Some(word) => words.push(word),
        }
    };
    words.extend(["--resume", "--name", name]);
    words.extend(rest);
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resume_command_is_the_typed_one_with_the_name_of_the_run() {
        for (given, wanted) in [
            ("dev calm", "tunebox dev calm --resume --name calm-1"),
            ("dev calm --name a", "tunebox dev calm --resume --name calm-1"),
            (
                "dev --name=a --resume calm --set train.rate=1e-4",
                "tunebox dev calm --set train.rate=1e-4 --resume --name calm-1",
            ),
            ("train --sample --method=dpo", "tunebox train --sample --method=dpo --resume --name calm-1"),
            ("-C work dev --json -- calm", "tunebox -C work dev --json --resume --name calm-1 -- calm"),
        ] {
            let typed: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(with_resume(&typed, "calm-1"), wanted);
        }
        let typed = ["dev", "my calm", "--set", "train.schedule=\"linear\""].map(str::to_owned);
        let wanted = "tunebox dev 'my calm' --set 'train.schedule=\"linear\"' --resume --name calm-1";
        assert_eq!(with_resume(&typed, "calm-1"), wanted);
    }
}
