//! `tunebox key`: a pair of keys to sign packages with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::json;
use tunebox_compute::paths::whole;
use tunebox_package::signature::SecretKey;

use super::{Ending, Outcome};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The file of the secret key; the public key is written beside it, as `FILE.pub`. Neither may exist. At a terminal, a
    /// password is asked for that protects it
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
        if is_for_git(&self.file) {
            let what = format!("git does not ignore `{}`, and would publish it", self.file.display());
            terminal.say("Warning", format!("{what}: move it out of here, or write it into `.gitignore`"));
        }
        terminal.next(format!("tunebox pack --sign {}", self.file.display()));
        if terminal.json {
            let key = public.to_string();
            terminal.object(json!({ "event": "key", "path": self.file, "public": beside, "key": key, "protected": password.is_some() }));
        }
        Ok(Ending::Done)
    }
}

/// Whether a file lies in a work tree of git that does not ignore it. Where git cannot be asked, none does.
fn is_for_git(file: &Path) -> bool {
    let path = whole(file);
    let Some(folder) = path.parent() else { return false };
    if !folder.ancestors().any(|above| above.join(".git").exists()) {
        return false;
    }
    let mut git = git_in(folder);
    // The tree may be a stranger's, and its settings may name a program that is to watch it.
    git.args(["-c", "core.fsmonitor=false", "check-ignore", "--quiet", "--"]).arg(&path);
    !git.status().is_ok_and(|status| status.success())
}

/// Git in a folder, whatever tree this program itself is called from.
fn git_in(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    git
}

/// The password of a new key, typed twice; none where a person wants none or nobody can be asked.
fn new_password(terminal: Terminal) -> Result<Option<String>, Failure> {
    let typed = terminal.password("password of the key, empty for none").filter(|typed| !typed.is_empty());
    if typed.is_some() && terminal.password("the same again") != typed {
        return Err(Failure::usage("the two passwords are not the same", "type the same password twice"));
    }
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_git_would_publish_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (key, below) = (folder.path().join("me.key"), folder.path().join("below"));
        std::fs::create_dir(&below).unwrap();
        assert!(!is_for_git(&key), "no work tree");
        assert!(git_in(folder.path()).args(["init", "--quiet"]).status().unwrap().success());
        assert!(is_for_git(&key) && is_for_git(&below.join("me.key")));
        std::fs::write(folder.path().join(".gitignore"), "*.key\n").unwrap();
        assert!(!is_for_git(&key) && !is_for_git(&below.join("me.key")));
    }
}
