//! Building a method folder, shared by `build`, `test`, `dev` and `pack`.

use std::path::Path;

use serde_json::json;
use tunebox_foundation::paths::{parent, simplify};
use tunebox_foundation::printable::printable;
use tunebox_package::build::python::{PROJECT, check_types, is_python};
use tunebox_package::build::{Event, Options, Warning, approval, build, expect_method};
use tunebox_package::{Built, sources};
use tunebox_training::plan::no_effect_warning;

use crate::terminal::progress::crate_counter;
use crate::terminal::{Failure, Terminal, escape};
use tunebox_foundation::format::pluralize;

/// The last paragraph of the long help of the commands that build.
pub(crate) const BUILD_WARNING: &str = "Building runs code of the folder on this machine, outside of the sandbox: \
    build scripts, procedural macros and tests in Rust; the modules, and the tools in `.venv`, in Python. Build only \
    source that you would run. A package needs no build: its component runs only in the sandbox.";

/// Maximum number of compiler warnings that are shown.
const MAX_WARNINGS: usize = 5;

/// The project files of method folders, one for each language.
const PROJECT_FILES: [&str; 2] = ["Cargo.toml", PROJECT];

/// Builds the component of a method folder, or wraps a core module if `folder` is a file. Shows the crates being
/// compiled and whether another build is waited for, but not the compiler's warnings, which it returns. Refuses a run
/// file, and a folder without a method. Before it builds a folder, does what [`check_source`] does.
pub(crate) fn build_method(terminal: Terminal, folder: &Path, options: &Options) -> Result<Built, Failure> {
    refuse_run_file(folder)?;
    if !folder.is_file() {
        check_source(terminal, folder)?;
    }
    terminal.status("Building", simplify(folder).display());
    let mut crates = None;
    let mut report = |event: Event<'_>| match event {
        Event::Compiled(name) => {
            let crates = crates.get_or_insert_with(|| crate_counter(terminal));
            crates.inc(1);
            crates.set_message(escape(name));
        }
        Event::Waiting(lock) => {
            terminal.status("Waiting", format!("for another build, which holds `{}`", lock.display()));
        }
        Event::TypesNotChecked(reason) => show_unchecked_types(terminal, reason),
    };
    Ok(build(folder, options, &mut report)?)
}

/// Shows in one line why the types of a method in Python were not checked.
fn show_unchecked_types(terminal: Terminal, reason: &str) {
    terminal.note(format!("types are not checked: {}", escape(reason)));
}

/// Checks the types of a method folder in Python and shows what was found as warnings, or why nothing was checked. Does
/// nothing for another language, and for a folder that was not built here: `mypy` may run code that its configuration
/// names.
pub(crate) fn show_types(terminal: Terminal, folder: &Path) {
    if !is_python(folder) || !approval::is_recorded(folder) {
        return;
    }
    match check_types(folder) {
        Ok(warnings) => show_compiler_warnings(terminal, &warnings),
        Err(reason) => show_unchecked_types(terminal, &reason),
    }
}

/// Shows the first five compiler warnings and their number. With `--json` emits every warning as a `warning` event.
pub(crate) fn show_compiler_warnings(terminal: Terminal, warnings: &[Warning]) {
    for Warning { message, place, output } in warnings {
        let (what, place, output) = (escape(message), place.as_deref().map(escape), escape(output));
        terminal.event(json!({ "event": "warning", "area": "build", "what": what, "place": place, "output": output }));
    }
    for warning in warnings.iter().take(MAX_WARNINGS) {
        terminal.message(format!("{}\n", warning.output));
    }
    if !warnings.is_empty() {
        let rest = if warnings.len() > MAX_WARNINGS { "; `cargo check` or `mypy src` shows the others" } else { "" };
        terminal.status("Compiled", format!("with {}{rest}", pluralize(warnings.len() as u64, "warning")));
    }
}

/// Warns about a method that compiles but does not work: code that prints (only the first place is shown), metrics that
/// the manifest does not list, and imports without any interface that can change the model or write results.
pub(crate) fn show_source_warnings(terminal: Terminal, folder: &Path, built: &Built) {
    if let Some(place) = sources::prints(folder).first() {
        let place = printable(place, 200);
        terminal.warn(format!("{place} prints, which a component cannot; `log(\"…\")` writes to the run's log"));
    }
    for (place, name) in sources::undeclared(folder, &built.manifest.metrics) {
        let (place, name) = (printable(&place, 200), printable(&name, 64));
        terminal
            .warn(format!("{place} reports `{name}`, which `metrics` of `method!` does not list: a run ends there"));
    }
    if built.manifest.world.is_method()
        && let Some(text) = no_effect_warning(&built.imports)
    {
        terminal.warn(text);
    }
}

/// Fails if the folder holds no method. The first time for each folder that `tunebox new` did not create here, shows a
/// note that building runs code of the folder, and remembers the folder.
pub(crate) fn check_source(terminal: Terminal, folder: &Path) -> Result<(), Failure> {
    refuse_run_file(folder)?;
    expect_method(folder)?;
    // If the folder cannot be remembered, the note is repeated at each build.
    if approval::record(folder).unwrap_or(true) {
        terminal.note("building runs code of this folder on this machine, outside of the sandbox");
    }
    Ok(())
}

/// Fails if `path` is an existing file that ends in `.toml`, where a method folder is expected. The hint says what to
/// give in its place.
fn refuse_run_file(path: &Path) -> Result<(), Failure> {
    if !path.is_file() || path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(());
    }
    let path = simplify(path);
    let folder = parent(&path);
    let is_manifest = PROJECT_FILES.iter().any(|name| path.ends_with(name));
    let is_method = expect_method(folder).is_ok();
    let (file, folder) = (path.display(), folder.display());
    let hint = if is_manifest {
        format!("give its folder, `{folder}`")
    } else if is_method {
        format!(
            "give its folder, `{folder}`; a run file is for `tunebox train {file}` or `tunebox dev {folder} {file}`"
        )
    } else {
        format!("a run file is for `tunebox train {file}`, or follows a folder: `tunebox dev FOLDER {file}`")
    };
    Err(Failure::usage(format!("`{file}` is a file; expected the folder of a method"), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_instead_of_its_folder_is_refused_with_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().display();
        for name in PROJECT_FILES {
            let path = place.path().join(name);
            std::fs::write(&path, "").unwrap();
            let hint = refuse_run_file(&path).unwrap_err().explanation.hint.unwrap();
            assert_eq!(hint, format!("give its folder, `{folder}`"));
        }
    }
}
