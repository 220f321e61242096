//! The method and the verifiers that a run file names.

use std::path::Path;

use tunebox_package::Reference;

use super::RunSettings;
use crate::error::Error;

impl RunSettings {
    /// Whether the method and every verifier are built in. A name that cannot be found does not count as built in: a
    /// file may appear under it before the run starts.
    #[must_use]
    pub fn is_all_built_in(&self) -> bool {
        self.references().iter().all(|found| matches!(found, Ok(Reference::Builtin(_))))
    }

    /// Finds the method, then every verifier in the order of the run file. One that cannot be found is an error in the
    /// list.
    #[must_use]
    pub fn references(&self) -> Vec<Result<Reference, Error>> {
        let verifiers = (0..self.file.verifier.len()).map(|number| self.verifier_reference(number));
        std::iter::once(self.method_reference()).chain(verifiers).collect()
    }

    /// Finds the method by `method.use`: a built-in name, a package of the store, or a path.
    pub(crate) fn method_reference(&self) -> Result<Reference, Error> {
        self.reference("method.use", &self.file.method.r#use, Reference::parse)
    }

    /// Finds verifier number `number` (from 0) of the run file by its `use`.
    pub(crate) fn verifier_reference(&self, number: usize) -> Result<Reference, Error> {
        self.reference(&format!("verifier.{number}.use"), &self.file.verifier[number].r#use, Reference::verifier)
    }

    /// Resolves the component `written` at a key by `find`, from the folder at which relative paths of the key start. A
    /// component that cannot be found is an error located at the key.
    fn reference(
        &self,
        key: &str,
        written: &str,
        find: fn(&str, &Path) -> Result<Reference, tunebox_package::Error>,
    ) -> Result<Reference, Error> {
        let base = self.path(key, "");
        let base = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
        find(written, base).map_err(|error| self.with_location(key, error))
    }

    /// Appends `@` and the found version to the name of every package of the store that the run file names without one,
    /// so that a version stored later changes nothing.
    pub(crate) fn pin_versions(&mut self) {
        for (found, written) in self.references().into_iter().zip(self.file.components_mut()) {
            if let Ok(Reference::Stored(stored)) = found
                && *written == stored.name
            {
                *written = format!("{}@{}", stored.name, stored.version);
            }
        }
    }
}
