//! Questions to the user: confirmations and passwords. Without a terminal nothing is asked.

use std::io::{IsTerminal, Write};

use super::{Terminal, escape};

impl Terminal {
    /// Whether stdin and stderr are terminals and `--json` is off, so that questions can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        !self.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks a yes-or-no question on stderr and reads the answer from stdin. True only for `y` and `yes` in any case.
    /// Returns false without asking if nothing can be asked.
    pub(crate) fn confirm(&self, question: &str) -> bool {
        if !self.can_ask() {
            return false;
        }
        let _ = write!(anstream::stderr(), "{} [y/N] ", escape(question));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
    }

    /// Asks for a password without echo. Returns `None` if nothing can be asked or reading fails.
    pub(crate) fn ask_password(&self, prompt: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        rpassword::prompt_password(format!("{}: ", escape(prompt))).ok()
    }
}
