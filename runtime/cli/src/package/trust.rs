//! `--yes` and `--locked`: whether the signer of a package, and what a run file asks for, is accepted.

use std::path::Path;

use clap::Args;
use serde_json::json;
use tunebox_package::home::home;
use tunebox_package::trust::{Admitted, Mode, Question, Trust};
use tunebox_package::{Artifact, Reference};
use tunebox_training::RunSettings;
use tunebox_training::configuration::Requests;
use tunebox_training::plan::{admit_packages, admit_run_file};

use super::describe::import_names;
use crate::terminal::{Failure, Terminal};

/// Options that decide whether an unknown signer and the permissions of a run file are accepted.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct TrustOptions {
    /// Accept without asking the unknown signer of a package, unless there is a warning about it, and the permissions,
    /// raised limits and paths that a run file asks for
    #[arg(long, conflicts_with = "locked")]
    yes: bool,
    /// Accept only built-in methods and packages listed in `tunebox.lock`, from signers known on this machine or to
    /// `TUNEBOX_PUBLISHERS`, and never ask. Applies to packages from paths too
    #[arg(long)]
    locked: bool,
}

impl TrustOptions {
    /// Checks a downloaded package against the trusted publishers and the lock file of the present folder, as
    /// [`Trust::admit`] does. `source` is where it came from. Asks about an unknown signer unless `--yes` or `--locked`
    /// decides. Saves nothing until the returned [`Trust`] is committed. Fails at the first check that the package does
    /// not pass.
    pub(crate) fn admit(
        self,
        terminal: Terminal,
        artifact: &Artifact,
        source: &str,
    ) -> Result<(Trust, Admitted), Failure> {
        let mut trust = Trust::open(&home()?, Path::new("."))?;
        let mut ask = |question: &Question| self.confirm_signer(terminal, question);
        let mode = if self.locked { Mode::Locked } else { Mode::Ask(&mut ask) };
        let admitted = trust.admit(artifact, source, mode)?;
        Ok((trust, admitted))
    }

    /// Makes the options of a command that has `--yes` (`yes`) and no `--locked`.
    pub(crate) fn with_yes(yes: bool) -> Self {
        Self { yes, locked: false }
    }

    /// Asks whether to accept what the run file permits beyond the defaults, and saves the answer yes. Does not ask if
    /// there is nothing to accept, if it was accepted before, or if the file is in a folder whose code the user has
    /// built. With `--yes`, shows what is accepted in place of asking. `components` is whether methods and verifiers
    /// that the file names by a path would run. Fails if the answer is no, if no question can be asked, and with
    /// `--locked`.
    pub(crate) fn check_run_file(
        self,
        terminal: Terminal,
        settings: &RunSettings,
        components: bool,
    ) -> Result<(), Failure> {
        let mut ask = |requests: &Requests| {
            let (file, clauses) = (requests.file.display(), requests.clauses.join("; it "));
            if self.yes {
                terminal.note(format!("`{file}` is accepted: it {clauses}"));
                terminal.event(json!({ "event": "accepted", "file": requests.file, "requests": requests.clauses }));
                return true;
            }
            !self.locked
                && terminal.confirm(&format!("`{file}` asks for more than the defaults: it {clauses}. Accept?"))
        };
        Ok(admit_run_file(settings, components, &mut ask)?)
    }

    /// Asks about the permissions of the run file and the unknown signers of the packages from the store that a run
    /// uses, and saves what was accepted. With `--locked`, accepts only packages that are built in or in the lock, also
    /// those from paths, and never asks. Skips references that cannot be resolved: the plan reports them later. Fails
    /// if something is not accepted.
    pub(crate) fn check_run(self, terminal: Terminal, settings: &RunSettings) -> Result<(), Failure> {
        self.check_run_file(terminal, settings, true)?;
        let mut ask = |question: &Question| self.confirm_signer(terminal, question);
        // The plan reports references that are not found, with their location in the run file.
        let found: Vec<Reference> = settings.references().into_iter().flatten().collect();
        Ok(admit_packages(&found, settings.project(), if self.locked { None } else { Some(&mut ask) })?)
    }

    /// Checks one package against the present folder's lock. Of a package from the store, asks about an unknown signer,
    /// and saves what was accepted in that lock; without `--locked`, other packages pass unchecked. With `--locked`,
    /// accepts only a package that is built in or in that lock, and asks and saves nothing. Fails if the package is not
    /// accepted.
    pub(crate) fn check_package(self, terminal: Terminal, package: &Reference) -> Result<(), Failure> {
        let mut ask = |question: &Question| self.confirm_signer(terminal, question);
        let found = std::slice::from_ref(package);
        Ok(admit_packages(found, Path::new("."), if self.locked { None } else { Some(&mut ask) })?)
    }

    /// Decides the question whether to accept a signer, or the replacement of an unsigned pin. With `--yes`: true
    /// unless there are doubts. Else shows package, key, imports and doubts and asks on the terminal; false if no
    /// question can be asked.
    fn confirm_signer(self, terminal: Terminal, question: &Question) -> bool {
        if self.yes {
            return question.doubts.is_empty();
        }
        if !terminal.can_ask() {
            return false;
        }
        let statement = &question.statement;
        let age = if question.is_new { "new" } else { "known" };
        let (title, source) = (statement.title(), &question.source);
        terminal.message(format!("`{title}` from {source} is signed by a key that is {age} here:"));
        terminal.message(format!("  {}", question.signer));
        terminal.message(format!("  imports: {}", import_names(&statement.imports)));
        if !question.known_for.is_empty() {
            terminal.message(format!("  the key is known for {}", question.known_for.join(", ")));
        }
        // The doubts are part of the question, which is shown with `--quiet` as well.
        let doubts = question.doubts.join("; ");
        let doubts = if doubts.is_empty() { doubts } else { format!("Warning: {doubts}. ") };
        let action = if question.is_new {
            format!("Accept this key for `{}`?", question.prefix)
        } else {
            format!("Replace the unsigned pin of `{}` by this package?", statement.name)
        };
        terminal.confirm(&format!("{doubts}{action}"))
    }
}

#[cfg(test)]
mod tests {
    use tunebox_package::builtin;
    use tunebox_package::signature::Signer;
    use tunebox_package::statement::Statement;

    use super::*;

    #[test]
    fn yes_accepts_a_new_signer_unless_there_is_a_doubt() {
        let question = |doubts: &[&str]| Question {
            statement: Statement::of(builtin::find("lora").unwrap().bytes).unwrap(),
            source: "registry.example/me/lora:0.1.0".into(),
            signer: Signer::parse("RWSdQ23T+UJdvT+5ktNwKbzrSz6j3nGpFnD/DsOHGLitrH9NrdZe6azt").unwrap(),
            prefix: "registry.example/me".into(),
            is_new: true,
            known_for: Vec::new(),
            doubts: doubts.iter().map(|doubt| (*doubt).to_owned()).collect(),
        };
        let terminal = Terminal { json: false, quiet: true, verbose: false };
        let yes = TrustOptions { yes: true, locked: false };
        assert!(yes.confirm_signer(terminal, &question(&[])));
        assert!(!yes.confirm_signer(terminal, &question(&["the name is another publisher's"])));
    }
}
