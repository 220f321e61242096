//! Texts about methods and packages that several commands show.

use std::fmt::Display;
use std::path::Path;

use tunebox_foundation::paths;
use tunebox_foundation::printable::printable;
use tunebox_package::home::existing;
use tunebox_package::provenance::Provenance;
use tunebox_package::settings::range;
use tunebox_package::trust::{Publisher, Trust};
use tunebox_package::{Manifest, Package, Reference, Setting, World, builtin};
use tunebox_sandbox::{Limits, interface_of};
use tunebox_training::configuration::Grant;
use tunebox_training::{RunSettings, is_run};

use crate::terminal::Failure;
use crate::terminal::shell::quote;

/// Joins the short names of imported interfaces by commas, leaving out `types`. Escapes unprintable characters and cuts
/// each name to about 64 bytes. Returns `nothing` if none is left.
pub(crate) fn import_names(imports: &[String]) -> String {
    let names = imports.iter().map(|import| interface_of(import).unwrap_or(import)).filter(|name| *name != "types");
    let names: Vec<String> = names.map(|name| printable(name, 64)).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Formats a title and one line for each setting of a method: name, effect, range and default.
pub(crate) fn describe_settings(title: &str, manifest: &Manifest) -> Vec<String> {
    let width = manifest.settings.iter().map(|setting| setting.name.len()).fold(11, usize::max);
    let row = |setting: &Setting| {
        let default = setting.default.as_ref().map_or("required".into(), |value| format!("default {value}"));
        format!("{:>width$}  {} ({}; {default})", setting.name, setting.doc, range(setting))
    };
    std::iter::once(title.to_owned()).chain(manifest.settings.iter().map(row)).collect()
}

/// Whether these imports, given by full name, include the interface with this short name.
pub(crate) fn has_import(imports: &[String], interface: &str) -> bool {
    imports.iter().any(|import| interface_of(import) == Some(interface))
}

/// Lists the interfaces among these imports that a run grants by name alone, in quotes and joined by commas. Empty if
/// there are none.
pub(crate) fn named_grants(imports: &[String]) -> String {
    let names = [Grant::Weights, Grant::Text].map(Grant::interface).into_iter();
    names.filter(|name| has_import(imports, name)).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Returns the command, quoted for a shell, that trains the sample with a method whose component has `size` bytes and
/// these imports. If the size is more than the default limit, as with an interpreter inside, the command also sets
/// `limits.component-bytes` to the next power of two and raises `limits.compile-seconds`. It grants what the method
/// imports and a run grants only by name, except to a built-in method, whose sample grants it.
pub(crate) fn train_command(method: impl Display, size: u64, imports: &[String]) -> String {
    let method = method.to_string();
    let mut command = format!("tunebox train --sample --method {}", quote(&method));
    let grants = named_grants(imports);
    if !grants.is_empty() && builtin::find(&method).is_none() {
        command += &format!(" --set 'method.grants=[{grants}]'");
    }
    if size <= Limits::default().component_bytes as u64 {
        return command;
    }
    let (bytes, seconds) = (size.next_power_of_two(), Limits::INTERPRETER_SECONDS);
    format!("{command} --set limits.component-bytes={bytes} --set limits.compile-seconds={seconds}")
}

/// Returns the suggestion how to use a package under `name`: the training command for a method, a run file entry for a
/// verifier or an environment.
pub(crate) fn usage_command(package: &Package, imports: &[String], name: &str) -> String {
    match package.manifest.world {
        World::Method => train_command(name, package.bytes.len() as u64, imports),
        World::Verifier => format!("a `[[verifier]]` of a run file with `use = \"{name}\"`"),
        World::Environment => format!("the `[environment]` of a run file with `use = \"{name}\"`"),
    }
}

/// Returns the command that trains the sample with a built method, as [`train_command`] does. It names the method
/// folder, or the component file if that was written elsewhere with `--out` (`is_elsewhere`) or wrapped from a core
/// module (`folder` is a file). Raises no limit if the `run.toml` of that folder sets limits that suffice, which are
/// used then.
pub(crate) fn train_built_command(
    folder: &Path,
    is_elsewhere: bool,
    component: &Path,
    size: u64,
    imports: &[String],
) -> String {
    let method = if is_elsewhere || folder.is_file() { component } else { folder };
    let written = Reference::path_argument(method);
    let limits = RunSettings::limits_of_method(&written, &[]);
    let has_own = limits.is_ok_and(|limits| limits.component_bytes as u64 >= size);
    // Within its own limits none has to be raised.
    train_command(written, if has_own { 0 } else { size }, imports)
}

/// Finds the trusted publisher whose key signed a package. Of several with this key, returns the one with the earliest
/// `first_seen` day; an entry that records no day counts as the earliest. `None` if the package is unsigned, the key is
/// unknown, or this user has no tunebox folder yet. Errors: a list of publishers or a `tunebox.lock` of the present
/// folder that cannot be read.
pub(crate) fn find_publisher(package: &Package) -> Result<Option<Publisher>, Failure> {
    let (Some(home), Some(signer)) = (existing()?, &package.signer) else { return Ok(None) };
    let trust = Trust::open(&home, Path::new("."))?;
    let known = trust.publishers().map(|(_, publisher)| publisher).filter(|publisher| publisher.key == signer.key);
    Ok(known.min_by_key(|publisher| publisher.first_seen.clone().unwrap_or_default()).cloned())
}

/// Describes who signed a package, `no` for an unsigned one, and the publisher that this user knows by that key, with
/// the day and the package of its first use.
pub(crate) fn signer_text(package: &Package, publisher: Option<&Publisher>) -> String {
    match (&package.signer, publisher) {
        (None, _) => "no".to_owned(),
        (Some(signer), None) => format!("by {signer}, unknown on this machine"),
        (Some(signer), Some(publisher)) => {
            let seen = publisher.first_seen.as_ref().map_or_else(String::new, |day| format!(", first seen {day}"));
            let source = publisher.source.as_ref().map_or_else(String::new, |source| format!(" on {source}"));
            format!("by {signer}, known for {}{seen}{source}", publisher.prefix)
        }
    }
}

/// Describes what a package states about how it was built, which is not verified: the toolchain, the digest of the
/// source and the number of dependencies.
pub(crate) fn provenance_text(provenance: &Provenance) -> String {
    let Provenance { source, toolchain, dependencies, .. } = provenance;
    format!("claimed by its author, not checked: {toolchain}; source sha256:{source}; {dependencies} dependencies")
}

/// Fails if `folder` is the folder of a run, with the commands that take runs as the hint. Otherwise does nothing.
pub(crate) fn expect_no_run(folder: &Path) -> Result<(), Failure> {
    if !is_run(folder) {
        return Ok(());
    }
    let folder = paths::simplify(folder);
    let (run, settings) = (folder.display(), folder.join("run.toml"));
    let settings = settings.display();
    Err(Failure::usage(
        format!("`{run}` is a run, not a method"),
        format!("`tunebox check {settings}` checks its settings, `tunebox verify {run}` its results"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_where_a_method_is_expected_is_refused_with_commands_for_runs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(expect_no_run(folder.path()).is_ok());
        std::fs::write(folder.path().join("run.lock"), "").unwrap();
        let run = folder.path().display();
        let hint = expect_no_run(&folder.path().join(".")).unwrap_err().explanation.hint.unwrap();
        assert_eq!(
            hint,
            format!("`tunebox check {run}/run.toml` checks its settings, `tunebox verify {run}` its results")
        );
    }

    #[test]
    fn a_large_component_is_trained_with_raised_limits() {
        assert_eq!(train_command("calm", 90 << 10, &[]), "tunebox train --sample --method calm");
        let raised = train_command("pete", 18 << 20, &[]);
        assert!(raised.contains("--set limits.component-bytes=33554432 --set limits.compile-seconds=120"), "{raised}");
    }

    #[test]
    fn a_command_with_a_path_that_a_shell_would_run_is_quoted() {
        assert_eq!(train_command("./a;$(id).wasm", 0, &[]), "tunebox train --sample --method './a;$(id).wasm'");
    }

    #[test]
    fn a_method_that_needs_a_grant_is_trained_with_it() {
        let imports = ["text", "tensor", "weights"].map(|name| format!("tunebox:method/{name}@0.2.0"));
        let granted = "tunebox train --sample --method ./calm --set 'method.grants=[\"weights\", \"text\"]'";
        assert_eq!(train_command("./calm", 90 << 10, &imports), granted);
        assert_eq!(train_command("abliterate", 90 << 10, &imports), "tunebox train --sample --method abliterate");
    }

    #[test]
    fn the_suggested_command_trains_what_was_built() {
        let place = tempfile::tempdir().unwrap();
        let (folder, component) = (place.path(), place.path().join("out/calm.wasm"));
        let method = |folder: &Path, is_elsewhere: bool| {
            let command = train_built_command(folder, is_elsewhere, &component, 90 << 10, &[]);
            command.strip_prefix("tunebox train --sample --method ").unwrap().to_owned()
        };
        assert_eq!(method(folder, false), folder.display().to_string());
        assert_eq!(method(folder, true), component.display().to_string());
        // The bare name of such a folder would mean the built-in method.
        assert_eq!(method(Path::new("lora"), false), "./lora");
    }
}
