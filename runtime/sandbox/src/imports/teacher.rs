//! Implements `wit/teacher.wit`: one function for each of the interface, in its order.

use tunebox_model::policy::View;

use crate::bindings::teacher::Host;
use crate::printable::printable;
use crate::refusal::{Refusal, ensure};
use crate::state::{Answer, HostContext, ViewEntry};

impl Host for HostContext<'_> {
    /// Counts the call and returns the names of the run's teachers, in alphabetical order.
    fn names(&mut self) -> wasmtime::Result<Vec<String>> {
        self.enter("teacher.names")?;
        Ok(self.train_state().policy.teachers().map(|(name, _)| name.to_owned()).collect())
    }

    /// Returns a handle of a view of a teacher's weights; `invalid-argument` if the run has no teacher of this name.
    fn open(&mut self, name: String) -> Answer<ViewEntry> {
        self.enter("teacher.open")?;
        let known: Vec<String> = self.train_state().policy.teachers().map(|(name, _)| name.to_owned()).collect();
        let missing = || {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("the run has no teacher `{}`; its `[[teacher]]` tables name {names}", printable(&name, 64))
        };
        ensure(known.contains(&name), || Refusal::argument(missing()))?;
        Ok(self.table.push(ViewEntry(View::Teacher(name)))?)
    }
}
