//! `tunebox chat`: a conversation; `/compare` shows the answers with and without the adapter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tunebox_model::chat::Message;
use tunebox_model::generate::Sampling;
use tunebox_training::sample::is_sample;

use crate::access::Access;
use crate::arguments::{Global, SamplingOptions};
use crate::generation::{complete, encode_chat, sampling_parameters};
use crate::model::{LoadedModel, ModelOptions};
use crate::processes::stop_on_interrupt;
use crate::steering::SteeringOptions;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    model: ModelOptions,
    /// System message before the conversation
    #[arg(long)]
    system: Option<String>,
    #[command(flatten)]
    steering: SteeringOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
}

const CHAT_HELP: &str = "/compare   answer the last question again, with and without the adapter\n\
                    /new       start a new conversation\n\
                    /exit      quit (or Ctrl-D)\n\
                    Ctrl-C     stop an answer";

/// Shown with a model that was trained on the sample.
const SINGLE_QUESTIONS_NOTE: &str =
    "The sample has single questions only; type `/new` before the next question, or the answer may be poor.";

/// A model and the messages exchanged with it.
struct Conversation {
    loaded: LoadedModel,
    /// Whether the model differs from its base, by an adapter or by steering.
    is_changed: bool,
    sampling: Sampling,
    /// The messages that a conversation starts with.
    opening: Vec<Message>,
    messages: Vec<Message>,
    /// Set by Ctrl-C, which stops the answer that is being generated.
    stop: Arc<AtomicBool>,
}

impl Chat {
    /// Fetches the model and returns the files that the command reads, marked as a command that edits lines of a
    /// terminal. `None` if it computes on an accelerator.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        let access = self.steering.add_files(self.model.prepare(global)?);
        Ok(access.map(|access| Access { edits_lines: true, ..access }))
    }

    /// Loads the model and reads lines from the terminal until `/exit`, Ctrl-D, or Ctrl-C twice in a row at the prompt.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut loaded = self.model.load(terminal, global)?;
        let is_steered = self.steering.add_vectors(terminal, &mut loaded)?;
        let opening: Vec<Message> = self.system.iter().map(|system| Message::new("system", system)).collect();
        let mut conversation = Conversation {
            is_changed: loaded.has_adapter || is_steered,
            loaded,
            sampling: sampling_parameters(&self.sampling),
            messages: opening.clone(),
            opening,
            stop: stop_on_interrupt(None)?,
        };
        let unreadable = |error: ReadlineError| {
            Failure::usage(format!("the terminal cannot be read: {error}"), "`tunebox generate` needs no terminal")
        };
        let mut editor = DefaultEditor::new().map_err(unreadable)?;
        terminal.message("Type a message, or `/help` for the commands.");
        if self.model.existing_folder().is_some_and(is_sample) {
            terminal.message(SINGLE_QUESTIONS_NOTE);
        }
        let mut is_leaving = false;
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    is_leaving = false;
                    let _ = editor.add_history_entry(&line);
                    if !conversation.handle_line(terminal, line.trim())? {
                        return Ok(ExitStatus::Success);
                    }
                }
                // Ctrl-C may have been meant for an answer that has just ended.
                Err(ReadlineError::Interrupted) if !is_leaving => {
                    is_leaving = true;
                    terminal.message("`/exit`, Ctrl-D or another Ctrl-C quits.");
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(ExitStatus::Success),
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
}

impl Conversation {
    /// Handles one line of input: runs it as a command if it begins with `/`, ignores it if it is empty, else answers
    /// it as a question. An unknown command shows the help. Returns false for `/exit` and `/quit`.
    fn handle_line(&mut self, terminal: Terminal, line: &str) -> Result<bool, Failure> {
        match line {
            "" => {}
            "/exit" | "/quit" => return Ok(false),
            "/help" => terminal.message(CHAT_HELP),
            "/new" => self.messages.clone_from(&self.opening),
            "/compare" => self.compare(terminal)?,
            _ if line.starts_with('/') => terminal.message(format!("`{line}` is not a command\n{CHAT_HELP}")),
            question => self.answer(terminal, question)?,
        }
        Ok(true)
    }

    /// Adds a question to the conversation, prints the model's answer while it is generated, and adds the answer,
    /// without white space at its end, to the conversation. Ctrl-C stops the answer, which is added as far as it is.
    fn answer(&mut self, terminal: Terminal, question: &str) -> Result<(), Failure> {
        self.messages.push(Message::new("user", question));
        let policy = &self.loaded.policy;
        let prompt = encode_chat(policy, &self.messages)?;
        self.stop.store(false, Ordering::SeqCst);
        let (_, text) = complete(policy, &prompt, &self.sampling, &mut |piece| {
            terminal.print_model_text(piece);
            !self.stop.load(Ordering::SeqCst)
        })?;
        terminal.print("\n");
        self.messages.push(Message::new("assistant", text.trim_end()));
        Ok(())
    }

    /// Prints two new answers to the last question while they are generated, by the base model and by the adapted or
    /// steered one, each line behind `base` or `adapted`. Ctrl-C stops the comparison. The conversation stays as it is.
    /// If there is no question yet, or the model does not differ from its base, only shows a message that says so.
    fn compare(&self, terminal: Terminal) -> Result<(), Failure> {
        let Some(last) = self.messages.iter().rposition(|message| message.role == "user") else {
            terminal.message("there is no question to compare yet");
            return Ok(());
        };
        if !self.is_changed {
            terminal
                .message("there is nothing to compare; start `tunebox chat` with an adapter, a run or `--steer FILE`");
            return Ok(());
        }
        let prompt = encode_chat(&self.loaded.policy, &self.messages[..=last])?;
        self.stop.store(false, Ordering::SeqCst);
        for (name, policy) in [("base", &self.loaded.base_policy()?), ("adapted", &self.loaded.policy)] {
            let mut lines = LabeledLines::default();
            terminal.print(format!("{name:8} │ "));
            complete(policy, &prompt, &self.sampling, &mut |piece| {
                terminal.print_model_text(&lines.push(piece));
                !self.stop.load(Ordering::SeqCst)
            })?;
            terminal.print("\n");
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
        }
        Ok(())
    }
}

/// Text that comes in pieces and is shown with a margin on each line. Holds white space back until other text follows,
/// so that none is shown at the end.
#[derive(Debug, Default)]
struct LabeledLines {
    held: String,
}

impl LabeledLines {
    /// Adds a piece of text, and returns what is to be shown now, with a margin after each line end: all text so far
    /// that was not shown, but for white space at its end, which waits for further text.
    fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let shown: String = self.held.drain(..self.held.trim_end().len()).collect();
        shown.replace("\r\n", "\n").replace('\n', &format!("\n{:8} │ ", ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_an_answer_become_lines_with_a_margin_and_no_blanks_at_the_end() {
        let mut lines = LabeledLines::default();
        let shown: Vec<String> = ["One", " ", "two\n", "\n", "three", "\n \n"].map(|piece| lines.push(piece)).into();
        assert_eq!(shown, ["One", "", " two", "", "\n         │ \n         │ three", ""]);
    }
}
