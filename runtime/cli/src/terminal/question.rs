//! What only a person can answer: yes or no, and passwords. Where nobody can be asked, there is no answer.

use std::io::{IsTerminal, Write};

use super::{Terminal, shown};

impl Terminal {
    /// Whether somebody can be asked.
    pub(crate) fn answers(&self) -> bool {
        !self.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks for a yes; anything else, and a terminal where nobody sits, is a no.
    pub(crate) fn confirm(&self, question: &str) -> bool {
        if !self.answers() {
            return false;
        }
        let _ = write!(anstream::stderr(), "{} [y/N] ", shown(question));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
    }

    /// Asks for a password, which is not shown; none where nobody can be asked.
    pub(crate) fn password(&self, prompt: &str) -> Option<String> {
        if !self.answers() {
            return None;
        }
        rpassword::prompt_password(format!("{}: ", shown(prompt))).ok()
    }
}
