//! `tunebox key`: creates a key pair to sign packages with.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::paths::resolve;
use tunebox_package::signature::SecretKey;

use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// File for the secret key; the public key goes to `FILE.pub`. Neither may exist. On a terminal, asks for a
    /// password
    file: PathBuf,
}

impl Key {
    /// Asks for a password and creates both key files. Warns if the secret key has no password or is in a git work
    /// tree.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let password = ask_new_password(terminal)?;
        let public = SecretKey::generate(&self.file, password.as_deref())?;
        let public_file = format!("{}.pub", self.file.display());
        let file = self.file.display();
        terminal.status("Created", format!("{file}, which you keep secret, and {public_file}, which you can publish"));
        let key = public.to_string();
        terminal.status("Key", &key);
        if password.is_none() {
            terminal.warn("the key has no password: every reader of the file can sign as you");
        }
        if is_in_git_tree(&self.file) {
            let what = format!("`{file}` is in a git work tree, which may publish it");
            terminal.warn(format!("{what}: move it elsewhere, or add it to `.gitignore`"));
        }
        terminal.suggest(format!("tunebox pack --sign {file}"));
        terminal.event(json!({
            "event": "key", "path": self.file, "public": public_file, "key": key, "protected": password.is_some(),
        }));
        Ok(ExitStatus::Success)
    }
}

/// Whether a file is in a git work tree. Does not ask git whether the file is ignored: the tree may be untrusted, and
/// its configuration can name programs that git runs.
fn is_in_git_tree(file: &Path) -> bool {
    resolve(file).ancestors().skip(1).any(|above| above.join(".git").exists())
}

/// Asks twice for the password of a new key. Returns `None` for an empty password or without a terminal. Fails if the
/// two differ.
fn ask_new_password(terminal: Terminal) -> Result<Option<String>, Failure> {
    let typed = terminal.ask_password("password of the key, empty for none").filter(|typed| !typed.is_empty());
    if typed.is_some() && terminal.ask_password("repeat the password") != typed {
        return Err(Failure::usage("the two passwords differ", "type the same password twice"));
    }
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_git_work_tree_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (key, below) = (folder.path().join("me.key"), folder.path().join("below"));
        std::fs::create_dir(&below).unwrap();
        assert!(!is_in_git_tree(&key), "no work tree");
        // In a linked work tree `.git` is a file.
        std::fs::write(folder.path().join(".git"), "gitdir: elsewhere\n").unwrap();
        assert!(is_in_git_tree(&key) && is_in_git_tree(&below.join("me.key")));
        std::fs::remove_file(folder.path().join(".git")).unwrap();
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        assert!(is_in_git_tree(&key) && is_in_git_tree(&below.join("me.key")));
    }
}
