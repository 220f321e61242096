//! What a run file permits beyond the defaults, so that a user who did not write it can be asked about it.

use std::path::{Component, Path, PathBuf};

use tunebox_foundation::paths::resolve;
use tunebox_package::Reference;
use tunebox_package::build::approval;
use tunebox_sandbox::NOT_COUNTED;

use super::{Grant, RunSettings};
use crate::error::Error;

/// What a run file permits beyond the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// The run file as the user named it; empty if the settings come from the command line alone.
    pub file: PathBuf,
    /// A clause for each permission that the run file gives and no `--set` does: grants, raised limits, components
    /// given by a path, and a folder of runs outside the current folder.
    pub clauses: Vec<String>,
    /// Text that identifies the method, the verifiers, the environment, with the contents of those at a path, and every
    /// such permission of the run, those of `--set` included. Once the user has accepted a key, the run need not be
    /// asked about again. Empty for a run within the defaults.
    pub key: String,
}

impl RunSettings {
    /// Returns a clause for each permission beyond the defaults that the run file gives and `--set` does not: grants,
    /// raised limits, components given by a path, and a folder of runs outside of the current one; and the key of all
    /// of them, by which an accepted run is known again. Methods and verifiers that are given by a path have a clause
    /// only with `components`; the key always counts them. Without a run file, there are no clauses.
    #[must_use]
    pub fn requests(&self, components: bool) -> Requests {
        let references = self.references();
        let names: Vec<String> = references.iter().zip(self.written_components()).map(identity).collect();
        // Without a run file, the command line has given all of it.
        let is_own = |key: &str| self.file_path.is_some() && !self.is_override(key);
        let clauses = self.permissions(&is_own, components, &names);
        let all = self.permissions(&|_| true, true, &names);
        let contents = || references.iter().zip(&names).map(identity_with_contents).collect::<Vec<_>>().join("\n");
        let key = if all.is_empty() { String::new() } else { format!("{}\n{}", contents(), all.join("\n")) };
        Requests { file: self.file_path.clone().unwrap_or_default(), clauses, key }
    }

    /// The values of `method.use`, of the `use` of each verifier that is no reward model, and of `environment.use`.
    fn written_components(&self) -> impl Iterator<Item = &String> {
        let verifiers = self.verifier_numbers(false).map(|number| &self.file.verifier[number].r#use);
        let environment = self.file.environment.iter().map(|environment| &environment.r#use);
        std::iter::once(&self.file.method.r#use).chain(verifiers).chain(environment)
    }

    /// Returns a clause for each permission whose dotted key satisfies `counts`, such as ``raises `handles` from 16,384
    /// to 20,000``, in this order: grants; raised limits; with `components`, each component given by a path; a folder
    /// of runs outside the current folder, if the run file names it, whatever `counts` says. `names` are the identities
    /// of the method, the verifiers and the environment, from [`identity`].
    fn permissions(&self, counts: &dyn Fn(&str) -> bool, components: bool, names: &[String]) -> Vec<String> {
        let mut clauses = Vec::new();
        let granted: Vec<&str> = self.file.method.grants.iter().copied().map(Grant::interface).collect();
        if !granted.is_empty() && counts("method.grants") {
            clauses.push(format!("grants {} to `{}`", granted.join(", "), names[0]));
        }
        clauses.extend(self.raised_limits(counts));
        for ((found, key), name) in self.references().iter().zip(self.component_keys()).zip(names) {
            if components && matches!(found, Ok(Reference::File(_) | Reference::Folder(_))) && counts(&key) {
                clauses.push(format!("runs `{name}`"));
            }
        }
        if self.has_outside_run_folder() {
            clauses.push(format!("writes into `{}`", resolve(Path::new(&self.file.run.folder)).display()));
        }
        clauses
    }

    /// Returns a clause for each limit above its default whose dotted key (`limits.` and its name) satisfies `counts`:
    /// ``raises `NAME` from DEFAULT to VALUE``, or ``sets `NAME` to VALUE`` if the default is [`NOT_COUNTED`]. Both
    /// values are shown in the limit's unit.
    fn raised_limits(&self, counts: &dyn Fn(&str) -> bool) -> Vec<String> {
        let raised = self.file.limits.changed().filter(|(limit, value, usual)| {
            value.as_f64() > usual.as_f64() && counts(&format!("limits.{}", limit.name))
        });
        let clause = |(limit, value, usual): (&tunebox_sandbox::Limit, serde_json::Number, serde_json::Number)| {
            let (value, usual) = (limit.unit.show(&value), limit.unit.show(&usual));
            match usual.as_str() {
                NOT_COUNTED => format!("sets `{}` to {value}", limit.name),
                _ => format!("raises `{}` from {usual} to {value}", limit.name),
            }
        };
        raised.map(clause).collect()
    }

    /// Whether the run file, and no `--set`, sets `run.folder` to a folder that is neither the current one nor inside
    /// it, or to a path with a `..` after a folder that does not exist, which could lead anywhere. False for the parent
    /// of the folder that the run file is in: a run's own `run.toml` names the folder that holds the run.
    fn has_outside_run_folder(&self) -> bool {
        if self.file_path.is_none() || !self.is_given("run.folder") || self.is_override("run.folder") {
            return false;
        }
        let folder = resolve(Path::new(&self.file.run.folder));
        let above = self.file_path.as_deref().map(resolve).and_then(|file| Some(file.parent()?.parent()?.to_owned()));
        let is_plain = !folder.components().any(|part| part == Component::ParentDir);
        let is_inside = is_plain && folder.starts_with(resolve(Path::new(".")));
        !is_inside && above.as_deref() != Some(folder.as_path())
    }
}

/// Names a component in a question to the user: a built-in one by its name, one of the store by name and version,
/// one at a path by the resolved path, and one that cannot be found as the run file writes it.
fn identity((found, written): (&Result<Reference, Error>, &String)) -> String {
    match found {
        Ok(Reference::Builtin(builtin)) => builtin.name.to_owned(),
        Ok(Reference::Stored(stored)) => format!("{}@{}", stored.name, stored.version),
        Ok(Reference::File(path) | Reference::Folder(path)) => resolve(path).display().to_string(),
        Err(_) => written.clone(),
    }
}

/// Names a component in the key of what was accepted: by its name in a question, and one at a path by the SHA-256 of
/// its bytes too, so that another component in its place is asked about again. Without the digest for one that this user
/// built here, which changes with every build, and for one that cannot be opened.
fn identity_with_contents((found, name): (&Result<Reference, Error>, &String)) -> String {
    let folder = match found {
        Ok(Reference::File(path)) => resolve(path).parent().map(Path::to_owned),
        Ok(Reference::Folder(path)) => Some(path.clone()),
        _ => return name.clone(),
    };
    let is_own = folder.is_some_and(|folder| approval::is_recorded(&folder));
    let package = found.as_ref().ok().filter(|_| !is_own).and_then(|found| found.open().ok());
    package.map_or_else(|| name.clone(), |package| format!("{name} {}", package.digest))
}

#[cfg(test)]
mod tests {
    use tunebox_package::builtin;

    use super::*;

    #[test]
    fn another_component_at_the_same_path_is_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("method.wasm");
        let key = |name: &str| {
            std::fs::write(&path, builtin::find(name).unwrap().bytes).unwrap();
            let settings =
                ["model.path=m".to_owned(), "data.path=d".to_owned(), format!("method.use={}", path.display())];
            RunSettings::from_overrides(&settings).unwrap().requests(true).key
        };
        assert!(key("lora") != key("dpo") && key("lora") == key("lora"));
    }
}
