//! What the commands that use packages of strangers share: the flags, the question, and what is said of a signer.

use std::path::Path;

use clap::Args;
use tunebox_package::home::{existing, home};
use tunebox_package::trust::{Admitted, Mode, Publisher, Question, Trust};
use tunebox_package::{Artifact, Package, Reference};
use tunebox_sandbox::interface_of;
use tunebox_training::RunSettings;
use tunebox_training::plan::{settle, settle_one};

use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// How it is decided whether a signer may be trusted.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Trusting {
    /// Accept the signer of a package who was never seen before, without a question, unless something speaks against it
    #[arg(long, conflicts_with = "locked")]
    yes: bool,
    /// Take only what is built in or what `tunebox.lock` lists, paths included, from signers who are known here or to
    /// `TUNEBOX_PUBLISHERS`, and never ask
    #[arg(long)]
    locked: bool,
}

impl Trusting {
    /// Holds a package against what this user and this project know. The decision is written down by what is given back,
    /// with what was found.
    pub(super) fn admit(
        self,
        terminal: Terminal,
        artifact: &Artifact,
        source: &str,
        project: &Path,
    ) -> Result<(Trust, Admitted), Failure> {
        let mut trust = Trust::open(&home()?, project)?;
        let mut ask = |question: &Question| self.accepts(terminal, question);
        let mode = if self.locked { Mode::Locked } else { Mode::Ask(&mut ask) };
        let admitted = trust.admit(artifact, source, mode)?;
        Ok((trust, admitted))
    }

    /// Decides about every package from the store that a run names.
    pub(super) fn settle(self, terminal: Terminal, settings: &RunSettings) -> Result<(), Failure> {
        let mut ask = |question: &Question| self.accepts(terminal, question);
        Ok(settle(settings, if self.locked { None } else { Some(&mut ask) })?)
    }

    /// The same for what a person named on the command line.
    pub(super) fn settle_one(self, terminal: Terminal, found: &Reference) -> Result<(), Failure> {
        let mut ask = |question: &Question| self.accepts(terminal, question);
        Ok(settle_one(found, if self.locked { None } else { Some(&mut ask) })?)
    }

    fn accepts(self, terminal: Terminal, question: &Question) -> bool {
        if self.yes {
            return question.doubts.is_empty();
        }
        if !terminal.answers() {
            return false;
        }
        let statement = &question.statement;
        let age = if question.is_new { "new" } else { "known" };
        terminal.tell(format!(
            "`{}` from {} is signed by a key that is {age} here:",
            statement.title(),
            question.source
        ));
        terminal.tell(format!("  {}", question.signer));
        terminal.tell(format!("  it asks for {}", interfaces(&statement.imports)));
        if !question.known_for.is_empty() {
            terminal.tell(format!("  the key is known for {}", question.known_for.join(", ")));
        }
        // With the question itself, which is seen even where little else is said.
        let doubts = question.doubts.join("; ");
        let but = if doubts.is_empty() { doubts } else { format!("But {doubts}. ") };
        let asked = if question.is_new {
            format!("Accept this key for `{}`?", question.prefix)
        } else {
            format!("Take this one for `{}`?", statement.name)
        };
        terminal.confirm(&format!("{but}{asked}"))
    }
}

/// What is known here of the signer of a package.
pub(super) fn publisher(package: &Package) -> Result<Option<Publisher>, Failure> {
    let (Some(home), Some(signer)) = (existing()?, &package.signer) else { return Ok(None) };
    let trust = Trust::open(&home, Path::new("."))?;
    let known = trust.publishers().map(|(_, publisher)| publisher).filter(|publisher| publisher.key == signer.key);
    // A key may be known for several names: since when it is, the earliest of them says.
    Ok(known.min_by_key(|publisher| publisher.first_seen.clone().unwrap_or_default()).cloned())
}

/// Who signed a package, in words.
pub(super) fn signed(package: &Package, publisher: Option<&Publisher>) -> String {
    match (&package.signer, publisher) {
        (None, _) => "no".to_owned(),
        (Some(signer), None) => format!("by {signer}, who is not known here"),
        (Some(signer), Some(publisher)) => {
            let seen = publisher.first_seen.as_ref().map_or_else(String::new, |day| format!(", first seen {day}"));
            let source = publisher.source.as_ref().map_or_else(String::new, |source| format!(" on {source}"));
            format!("by {signer}, known for {}{seen}{source}", publisher.prefix)
        }
    }
}

/// The interfaces that a package asks for, by their short names.
pub(super) fn interfaces(imports: &[String]) -> String {
    let short = |import: &String| {
        let name = interface_of(import).unwrap_or(import);
        (name != "types").then(|| tunebox_foundation::printable::printable(name, 64))
    };
    let names: Vec<String> = imports.iter().filter_map(short).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use tunebox_package::builtin;
    use tunebox_package::signature::Signer;
    use tunebox_package::statement::Statement;

    use super::*;

    #[test]
    fn yes_accepts_a_new_signer_unless_something_speaks_against_it() {
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
        let yes = Trusting { yes: true, locked: false };
        assert!(yes.accepts(terminal, &question(&[])));
        assert!(!yes.accepts(terminal, &question(&["the name is another publisher's"])));
    }
}
