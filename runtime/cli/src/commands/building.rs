//! What `build`, `test`, `dev` and `pack` have in common: they compile the source of a folder on this machine.

use std::path::Path;

use serde_json::json;
use tunebox_foundation::paths::simplify;
use tunebox_foundation::printable::printable;
use tunebox_package::build::python::PROJECT;
use tunebox_package::build::{Event, Options, Warning, approval, build_watched, expect_method};
use tunebox_package::{Built, sources};
use tunebox_training::plan::without_effect;

use crate::terminal::diagnostic::Failure;
use crate::terminal::progress::Crates;
use crate::terminal::{Terminal, shown};
use tunebox_foundation::format::counted;

/// What the long help of each of them ends with.
pub(super) const RUNS_SOURCE: &str = "Building runs code of the folder on this machine, outside of the sandbox: build \
    scripts, procedural macros and tests in Rust; the modules, and the tools in `.venv`, in Python. Build what you \
    would run. A package needs no build: its component runs in the sandbox alone.";

/// How many of the compiler's warnings are shown whole.
const SHOWN: usize = 5;

/// What says of a folder that it holds a method, each in its language.
const MANIFESTS: [&str; 2] = ["Cargo.toml", PROJECT];

/// Builds a folder or a module, and says so.
pub(super) fn built(terminal: Terminal, folder: &Path, options: &Options) -> Result<Built, Failure> {
    refuse_run_file(folder)?;
    if !folder.is_file() {
        note_source(terminal, folder)?;
    }
    terminal.say("Building", simplify(folder).display().to_string());
    let mut crates = Crates::new(terminal);
    let mut watch = |event: Event<'_>| match event {
        Event::Compiled(name) => crates.compiled(name),
        Event::Waiting(lock) => terminal.say("Waiting", format!("for another build, which holds `{}`", lock.display())),
    };
    Ok(build_watched(folder, options, &mut watch)?)
}

/// Shows what the compiler warned of, as it shows it, and how often.
pub(super) fn warn_of_compiler(terminal: Terminal, warnings: &[Warning]) {
    if terminal.json {
        for Warning { message, place, output } in warnings {
            let (what, place, output) = (shown(message), place.as_deref().map(shown), shown(output));
            terminal.object(json!({
                "event": "warning", "area": "build", "what": what, "place": place, "output": output,
            }));
        }
        return;
    }
    for warning in warnings.iter().take(SHOWN) {
        terminal.tell(format!("{}\n", warning.output));
    }
    if !warnings.is_empty() {
        let rest = if warnings.len() > SHOWN { "; `cargo check` shows the others" } else { "" };
        terminal.say("Compiled", format!("with {}{rest}", counted(warnings.len() as u64, "warning")));
    }
}

/// Warns of what compiles, and is hardly what its author means.
pub(super) fn warn(terminal: Terminal, folder: &Path, built: &Built) {
    if let Some(place) = sources::prints(folder).first() {
        let place = printable(place, 200);
        let text = format!("{place} prints, which a component cannot; `log(\"…\")` writes to the run's log");
        terminal.say("Warning", text);
    }
    for (place, name) in sources::undeclared(folder, &built.manifest.metrics) {
        let (place, name) = (printable(&place, 200), printable(&name, 64));
        let text = format!("{place} reports `{name}`, which `metrics` of `method!` does not list: a run ends there");
        terminal.say("Warning", text);
    }
    if built.manifest.world.is_method()
        && let Some(text) = without_effect(&built.imports)
    {
        terminal.say("Warning", text);
    }
}

/// Says what building means, once for a folder that was not begun here. Errors: it holds no method.
pub(super) fn note_source(terminal: Terminal, folder: &Path) -> Result<(), Failure> {
    refuse_run_file(folder)?;
    expect_method(folder)?;
    // Where nothing can be noted, it is said each time.
    if approval::record(folder).unwrap_or(true) {
        terminal.say("Note", "building runs code of this folder on this machine, outside of the sandbox");
    }
    Ok(())
}

/// Errors: a run file, or the folder's own manifest, in the place of a method's folder.
fn refuse_run_file(path: &Path) -> Result<(), Failure> {
    if !path.is_file() || path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(());
    }
    let shown = simplify(path);
    let folder = shown.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_manifest = MANIFESTS.iter().any(|name| shown.ends_with(name));
    let is_method = expect_method(folder).is_ok();
    let (file, folder) = (shown.display(), folder.display());
    let hint = if is_manifest {
        format!("give its folder, `{folder}`")
    } else if is_method {
        format!(
            "give its folder, `{folder}`; a run file is for `tunebox train {file}` or `tunebox dev {folder} {file}`"
        )
    } else {
        format!("a run file is for `tunebox train {file}`, or follows a folder: `tunebox dev FOLDER {file}`")
    };
    Err(Failure::usage(format!("`{file}` is a file, the folder of a method is wanted"), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_in_the_place_of_its_folder_is_answered_with_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().display();
        for name in MANIFESTS {
            let path = place.path().join(name);
            std::fs::write(&path, "").unwrap();
            let hint = refuse_run_file(&path).unwrap_err().explanation.hint.unwrap();
            assert_eq!(hint, format!("give its folder, `{folder}`"));
        }
    }
}
