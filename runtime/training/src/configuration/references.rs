//! What a run file names as method and as verifiers.

use std::path::PathBuf;

use tunebox_package::Reference;

use super::RunSettings;
use crate::error::Error;

impl RunSettings {
    /// Whether everything that runs in the sandbox is built in. A name that leads nowhere is not: what is
    /// found there a moment later would be a stranger's.
    #[must_use]
    pub fn is_all_built_in(&self) -> bool {
        let own = |found: &Result<Reference, _>| matches!(found, Ok(Reference::Builtin(_)));
        self.references().iter().all(own)
    }

    /// What the run file names as method and as verifiers, found or not.
    pub(crate) fn references(&self) -> Vec<Result<Reference, Error>> {
        let method = self.method_reference();
        let verifiers = self.file.verifier.iter().enumerate();
        let verifiers = verifiers.map(|(number, table)| self.verifier_reference(number, &table.r#use));
        std::iter::once(method).chain(verifiers).collect()
    }

    /// Where the method is.
    pub(crate) fn method_reference(&self) -> Result<Reference, Error> {
        let found = Reference::parse(&self.file.method.r#use, &self.base("method.use"));
        found.map_err(|error| self.named("method.use", error))
    }

    /// Where a verifier is that the run file calls so.
    pub(crate) fn verifier_reference(&self, number: usize, name: &str) -> Result<Reference, Error> {
        let key = format!("verifier.{number}.use");
        Reference::verifier(name, &self.base(&key)).map_err(|error| self.named(&key, error))
    }

    /// Writes the version behind every name of a package in the store, so that a later version there changes nothing.
    pub(crate) fn pin(&mut self) {
        let pinned = |found: Result<Reference, Error>, written: &mut String| {
            if let Ok(Reference::Stored(stored)) = found
                && *written == stored.name
            {
                *written = format!("{}@{}", stored.name, stored.version);
            }
        };
        pinned(self.method_reference(), &mut self.file.method.r#use);
        for number in 0..self.file.verifier.len() {
            let found = self.verifier_reference(number, &self.file.verifier[number].r#use);
            pinned(found, &mut self.file.verifier[number].r#use);
        }
    }

    /// Where the relative paths of a key begin.
    fn base(&self, key: &str) -> PathBuf {
        let base = self.path(key, "");
        if base.as_os_str().is_empty() { PathBuf::from(".") } else { base }
    }
}
