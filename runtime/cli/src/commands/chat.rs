//! `tunebox chat`: a conversation; `/compare` shows the answers with and without the adapter.

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
                    /exit      quit (or Ctrl-D)";

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
}

impl Chat {
    /// Fetches the model and returns the files that the command reads, marked as a command that edits lines of a terminal.
    /// `None` if it computes on an accelerator.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        let access = self.steering.add_files(self.model.prepare(global)?);
        Ok(access.map(|access| Access { edits_lines: true, ..access }))
    }

    /// Loads the model and reads lines from the terminal until `/exit`, Ctrl-D or Ctrl-C.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut loaded = self.model.load(terminal, global)?;
        self.steering.add_vectors(terminal, &mut loaded.policy)?;
        let opening: Vec<Message> = self.system.iter().map(|system| Message::new("system", system)).collect();
        let mut conversation = Conversation {
            is_changed: loaded.has_adapter || self.steering.is_set(),
            loaded,
            sampling: sampling_parameters(&self.sampling),
            messages: opening.clone(),
            opening,
        };
        let unreadable = |error: ReadlineError| {
            Failure::usage(format!("the terminal cannot be read: {error}"), "`tunebox generate` needs no terminal")
        };
        let mut editor = DefaultEditor::new().map_err(unreadable)?;
        terminal.message("Type a message, or `/help` for the commands.");
        if self.model.existing_folder().is_some_and(is_sample) {
            terminal.message(SINGLE_QUESTIONS_NOTE);
        }
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    let _ = editor.add_history_entry(&line);
                    if !conversation.handle_line(terminal, line.trim())? {
                        return Ok(ExitStatus::Success);
                    }
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(ExitStatus::Success),
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
}

impl Conversation {
    /// Handles one line of input: runs it as a command if it begins with `/`, ignores it if it is empty, else answers it as
    /// a question. An unknown command shows the help. Returns false for `/exit` and `/quit`.
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
    /// without white space at its end, to the conversation.
    fn answer(&mut self, terminal: Terminal, question: &str) -> Result<(), Failure> {
        self.messages.push(Message::new("user", question));
        let policy = &self.loaded.policy;
        let prompt = encode_chat(policy, &self.messages)?;
        let (_, text) = complete(policy, &prompt, &self.sampling, &mut |piece| terminal.print_model_text(piece))?;
        terminal.print("\n");
        self.messages.push(Message::new("assistant", text.trim_end()));
        Ok(())
    }

    /// Prints two new answers to the last question, by the base model and by the adapted or steered one, each line behind
    /// `base` or `adapted`. The conversation stays as it is. If there is no question yet, or the model does not differ from
    /// its base, only shows a message that says so.
    fn compare(&self, terminal: Terminal) -> Result<(), Failure> {
        let Some(last) = self.messages.iter().rposition(|message| message.role == "user") else {
            terminal.message("there is no question to compare yet");
            return Ok(());
        };
        if !self.is_changed {
            terminal.message("there is nothing to compare; start `tunebox chat` with an adapter or `--steer FILE`");
            return Ok(());
        }
        let prompt = encode_chat(&self.loaded.policy, &self.messages[..=last])?;
        for (name, policy) in [("base", &self.loaded.base_policy()?), ("adapted", &self.loaded.policy)] {
            let (_, text) = complete(policy, &prompt, &self.sampling, &mut |_| {})?;
            for (i, line) in text.trim_end().lines().enumerate() {
                terminal.print_model_text(&format!("{:8} │ {line}\n", if i == 0 { name } else { "" }));
            }
        }
        Ok(())
    }
}
