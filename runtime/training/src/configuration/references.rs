//! The method and the verifiers that a run file names.

use std::path::PathBuf;

use tunebox_package::Reference;

use super::RunSettings;
use crate::error::Error;

impl RunSettings {
    /// Whether the method and every verifier are built in. A name that cannot be found does not count as built in: a
    /// file may appear under it before the run starts.
    #[must_use]
    pub fn is_all_built_in(&self) -> bool {
        let is_builtin = |found: &Result<Reference, _>| matches!(found, Ok(Reference::Builtin(_)));
        self.references().iter().all(is_builtin)
    }

    /// Finds the method, then every verifier in the order of the run file. One that cannot be found is an error in the
    /// list.
    #[must_use]
    pub fn references(&self) -> Vec<Result<Reference, Error>> {
        let method = self.method_reference();
        let verifiers = self.file.verifier.iter().enumerate();
        let verifiers = verifiers.map(|(number, table)| self.verifier_reference(number, &table.r#use));
        std::iter::once(method).chain(verifiers).collect()
    }

    /// Finds the method by `method.use`: a built-in name, a package of the store, or a path.
    pub(crate) fn method_reference(&self) -> Result<Reference, Error> {
        let found = Reference::parse(&self.file.method.r#use, &self.base("method.use"));
        found.map_err(|error| self.with_location("method.use", error))
    }

    /// Finds verifier number `number` (from 0) of the run file; `name` is its `use` value.
    pub(crate) fn verifier_reference(&self, number: usize, name: &str) -> Result<Reference, Error> {
        let key = format!("verifier.{number}.use");
        Reference::verifier(name, &self.base(&key)).map_err(|error| self.with_location(&key, error))
    }

    /// Appends `@` and the found version to the name of every package of the store that the run file names without one,
    /// so that a version stored later changes nothing.
    pub(crate) fn pin_versions(&mut self) {
        let pin = |found: Result<Reference, Error>, written: &mut String| {
            if let Ok(Reference::Stored(stored)) = found
                && *written == stored.name
            {
                *written = format!("{}@{}", stored.name, stored.version);
            }
        };
        pin(self.method_reference(), &mut self.file.method.r#use);
        for number in 0..self.file.verifier.len() {
            let found = self.verifier_reference(number, &self.file.verifier[number].r#use);
            pin(found, &mut self.file.verifier[number].r#use);
        }
    }

    /// The folder that a relative path at a key starts at: the run file's, or the current one for a `--set`. Never
    /// empty.
    fn base(&self, key: &str) -> PathBuf {
        let base = self.path(key, "");
        if base.as_os_str().is_empty() { PathBuf::from(".") } else { base }
    }
}
