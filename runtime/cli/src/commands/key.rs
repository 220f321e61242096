//! `tunebox key`: a pair of keys to sign packages with.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_package::signature::SecretKey;

use super::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The file of the secret key; the public key is written beside it, as `FILE.pub`. Neither may exist
    file: PathBuf,
}

impl Key {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        let password = new_password(terminal)?;
        let public = SecretKey::generate(&self.file, password.as_deref())?;
        let beside = format!("{}.pub", self.file.display());
        terminal
            .say("Made", format!("{}, which stays with you, and {beside}, which others may have", self.file.display()));
        terminal.say("Key", public.to_string());
        if password.is_none() {
            terminal.say("Warning", "no password protects it: whoever reads the file can sign as you");
        }
        terminal.next(format!("tunebox pack --sign {}", self.file.display()));
        if terminal.json {
            let key = public.to_string();
            terminal.object(json!({ "event": "key", "path": self.file, "public": beside, "key": key, "protected": password.is_some() }));
        }
        Ok(Ending::Done)
    }
}

/// The password of a new key, typed twice; none where a person wants none or nobody can be asked.
fn new_password(terminal: Terminal) -> Result<Option<String>, Failure> {
    let typed = terminal.password("password of the key, empty for none").filter(|typed| !typed.is_empty());
    if typed.is_some() && terminal.password("the same again") != typed {
        return Err(Failure::usage("the two passwords are not the same", "type the same password twice"));
    }
    Ok(typed)
}
