//! `tunebox key`: a pair of keys to sign packages with.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::paths::resolve;
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
        if is_under_git(&self.file) {
            let what = format!("`{}` lies in a work tree of git, which may publish it", self.file.display());
            terminal.say("Warning", format!("{what}: move it out of there, or see that `.gitignore` names it"));
        }
        terminal.next(format!("tunebox pack --sign {}", self.file.display()));
        if terminal.json {
            let key = public.to_string();
            terminal.object(json!({ "event": "key", "path": self.file, "public": beside, "key": key, "protected": password.is_some() }));
        }
        Ok(Ending::Done)
    }
}

/// Whether a file lies in a work tree of git. Git itself is not asked whether it ignores the file: the tree may be a
/// stranger's, and its settings name programs that git would run.
fn is_under_git(file: &Path) -> bool {
    resolve(file).ancestors().skip(1).any(|above| above.join(".git").exists())
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
    fn a_key_in_a_work_tree_of_git_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (key, below) = (folder.path().join("me.key"), folder.path().join("below"));
        std::fs::create_dir(&below).unwrap();
        assert!(!is_under_git(&key), "no work tree");
        // Of a second work tree it is a file.
        std::fs::write(folder.path().join(".git"), "gitdir: elsewhere\n").unwrap();
        assert!(is_under_git(&key) && is_under_git(&below.join("me.key")));
        std::fs::remove_file(folder.path().join(".git")).unwrap();
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        assert!(is_under_git(&key) && is_under_git(&below.join("me.key")));
    }
}
