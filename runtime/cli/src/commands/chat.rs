//! `tunebox chat`: a conversation; `/compare` shows base and adapted side by side.

use clap::Args;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tunebox_model::Policy;
use tunebox_model::chat::Message;
use tunebox_training::Sample;

use super::generate::{chat_prompt, write};
use super::steering::Steering;
use super::subject::{Loaded, Subject};
use super::{Ending, Outcome};
use crate::arguments::{Global, Writing};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

#[derive(Debug, Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    subject: Subject,
    /// What the model is told before the first message
    #[arg(long)]
    system: Option<String>,
    #[command(flatten)]
    steering: Steering,
    #[command(flatten)]
    writing: Writing,
}

const HELP: &str = "/compare   the last question again, base beside adapted\n\
                    /new       a new conversation\n\
                    /exit      the end (Ctrl-D likewise)";

/// What is said of a model that learned from the sample.
const SINGLE: &str = "The sample is single questions, a second one is new to the model: `/new` before the next.";

/// A conversation under way.
struct Talk {
    loaded: Loaded,
    /// Whether the model differs from its base.
    compares: bool,
    writing: Writing,
    opening: Vec<Message>,
    messages: Vec<Message>,
}

impl Chat {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let mut loaded = self.subject.load(terminal, global)?;
        self.steering.apply(terminal, &mut loaded.policy)?;
        let compares = loaded.adapted || self.steering.is_some();
        let single = self.subject.folder().is_some_and(Sample::is_in);
        let opening: Vec<Message> = self.system.iter().map(|system| Message::new("system", system)).collect();
        let mut talk = Talk { loaded, compares, writing: self.writing, messages: opening.clone(), opening };
        let mut editor = DefaultEditor::new().map_err(|error| {
            Failure::usage(format!("the terminal cannot be read: {error}"), "`tunebox generate` needs no terminal")
        })?;
        terminal.tell("Ask anything; `/help` lists the commands.");
        if single {
            terminal.tell(SINGLE);
        }
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    let _ = editor.add_history_entry(&line);
                    if !talk.turn(terminal, line.trim())? {
                        return Ok(Ending::Done);
                    }
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(Ending::Done),
                Err(error) => {
                    return Err(Failure::usage(
                        format!("the terminal cannot be read: {error}"),
                        "try `tunebox generate`",
                    ));
                }
            }
        }
    }
}

impl Talk {
    /// Answers a line; false where the person wants to leave.
    fn turn(&mut self, terminal: Terminal, line: &str) -> Result<bool, Failure> {
        match line {
            "" => {}
            "/exit" | "/quit" => return Ok(false),
            "/help" => terminal.tell(HELP),
            "/new" => self.messages.clone_from(&self.opening),
            "/compare" => self.compare(terminal)?,
            _ if line.starts_with('/') => terminal.tell(format!("`{line}` is not a command\n{HELP}")),
            question => self.answer(terminal, question)?,
        }
        Ok(true)
    }

    fn answer(&mut self, terminal: Terminal, question: &str) -> Result<(), Failure> {
        self.messages.push(Message::new("user", question));
        let prompt = chat_prompt(&self.loaded.policy, &self.messages)?;
        let answer = write(&self.loaded.policy, &prompt, &self.writing, &mut |piece| terminal.words(piece))?;
        terminal.raw("\n");
        self.messages.push(Message::new("assistant", answer.text.trim_end()));
        Ok(())
    }

    /// The last question once more, by the model without and with its adapter.
    fn compare(&self, terminal: Terminal) -> Result<(), Failure> {
        let Some(last) = self.messages.iter().rposition(|message| message.role == "user") else {
            terminal.tell("there is no question to compare yet");
            return Ok(());
        };
        if !self.compares {
            terminal.tell("there is nothing to compare with; start with `tunebox chat ADAPTER` or `--steer FILE`");
            return Ok(());
        }
        let prompt = chat_prompt(&self.loaded.policy, &self.messages[..=last])?;
        let base: Policy = self.loaded.base()?;
        for (name, policy) in [("base", &base), ("adapted", &self.loaded.policy)] {
            let answer = write(policy, &prompt, &self.writing, &mut |_| {})?;
            for (i, line) in answer.text.trim_end().lines().enumerate() {
                terminal.words(&format!("{:8} │ {line}\n", if i == 0 { name } else { "" }));
            }
        }
        Ok(())
    }
}
