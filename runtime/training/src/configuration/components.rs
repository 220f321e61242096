//! The components that the settings of a run name: its method, verifiers and environment, and the reward models among
//! the verifiers.

use std::path::Path;

use tunebox_package::Reference;

use super::RunSettings;
use crate::error::Error;

impl RunSettings {
    /// Whether the method, every verifier but reward models and the environment are built in. A name that cannot be
    /// found does not count as built in: a file may appear under it before the run starts.
    #[must_use]
    pub fn is_all_built_in(&self) -> bool {
        self.references().iter().all(|found| matches!(found, Ok(Reference::Builtin(_))))
    }

    /// Finds the method, then every verifier but reward models in the order of the run file, then the environment,
    /// without opening them. One that cannot be found is an error in the list.
    #[must_use]
    pub fn references(&self) -> Vec<Result<Reference, Error>> {
        let verifiers = self.verifier_numbers(false).map(|number| self.verifier_reference(number));
        std::iter::once(self.method_reference()).chain(verifiers).chain(self.environment_reference()).collect()
    }

    /// The dotted keys of the components that [`references`](Self::references) finds, in the same order.
    pub(crate) fn component_keys(&self) -> Vec<String> {
        let verifiers = self.verifier_numbers(false).map(|number| format!("verifier.{number}.use"));
        let environment = self.file.environment.iter().map(|_| "environment.use".to_owned());
        std::iter::once("method.use".to_owned()).chain(verifiers).chain(environment).collect()
    }

    /// The reward models among the verifiers: the number of each verifier, from 0, and the path of the model's folder,
    /// resolved, or, if nothing is there, what is written, which may be a name on the hub.
    pub(crate) fn reward_models(&self) -> Vec<(usize, String)> {
        let name = |number: usize| {
            let written = self.file.verifier[number].reward_model().unwrap_or_default();
            let path = self.path(&format!("verifier.{number}.use"), written);
            (number, if path.exists() { path.to_string_lossy().into_owned() } else { written.to_owned() })
        };
        self.verifier_numbers(true).map(name).collect()
    }

    /// The numbers, from 0, of the verifiers that are reward models, or, if `are_models` is false, of the others.
    pub(crate) fn verifier_numbers(&self, are_models: bool) -> impl Iterator<Item = usize> {
        let numbered = self.file.verifier.iter().enumerate();
        numbered.filter(move |(_, table)| table.reward_model().is_some() == are_models).map(|(number, _)| number)
    }

    /// Finds the method by `method.use`: a built-in name, a package of the store, or a path.
    pub(crate) fn method_reference(&self) -> Result<Reference, Error> {
        self.reference("method.use", &self.file.method.r#use, Reference::parse)
    }

    /// Finds verifier number `number` (from 0) of the run file by its `use`.
    pub(crate) fn verifier_reference(&self, number: usize) -> Result<Reference, Error> {
        self.reference(&format!("verifier.{number}.use"), &self.file.verifier[number].r#use, Reference::verifier)
    }

    /// Finds the environment of the run file by its `use`; `None` if the run has none.
    pub(crate) fn environment_reference(&self) -> Option<Result<Reference, Error>> {
        let environment = self.file.environment.as_ref()?;
        Some(self.reference("environment.use", &environment.r#use, Reference::environment))
    }

    /// Resolves the component that the run file or a `--set` names as `written` at `key`, with the function `find`,
    /// which also gets the folder that paths at the key are relative to. A component that cannot be found is an error
    /// located at the key.
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
}
