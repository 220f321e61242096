//! Starts a new method with the source of a built-in one, under another name and outside of the repository.

use toml::{Table, Value};
use tunebox_foundation::explain::Explanation;

use super::{DESCRIPTION, SDK, replace_readme};
use crate::builtin::{self, Builtin};
use crate::sources::{self, Files};
use crate::{Error, read_manifest};
use tunebox_foundation::nearest::nearest;

/// The README of a new verifier.
const VERIFIER: &str = include_str!("verifier.md");

/// The data shapes whose records the SDK's bench can make up, and whose methods need nothing else.
const SELF_CONTAINED: [&str; 3] = ["supervised", "preference", "unpaired"];

/// Replaces source, README, description and dependencies of a template's `files` by those of the built-in method or
/// verifier `like`, under the new name. Adds `tests/bench.rs` if [`bench_test`] gives one, and removes `Cargo.lock` if
/// there are dependencies beside the SDK. Errors: no such built-in.
pub(super) fn rewrite(files: &mut Files, name: &str, like: &str) -> Result<(), Error> {
    let original = find_builtin(like)?;
    let manifest: Table = original.source_text("Cargo.toml").parse().unwrap_or_default();
    replace_readme(files, &readme_text(original, name));
    files.retain(|path, _| !path.starts_with("src/"));
    let own = original.source.iter().filter(|(path, _)| path.starts_with("src/"));
    files.extend(own.map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())));

    let others = dependency_lines(&manifest);
    if !others.is_empty() {
        // The template's names the SDK alone. The first build makes one that fits.
        files.remove("Cargo.lock");
    }
    if let Some(cargo) = files.get_mut("Cargo.toml") {
        let package = manifest.get("package");
        let described = package.and_then(|package| package.get("description")?.as_str()).unwrap_or(DESCRIPTION);
        let described = described.replace('\\', "\\\\").replace('"', "\\\"");
        *cargo = String::from_utf8_lossy(cargo)
            .replace(DESCRIPTION, &described)
            .replace(SDK, &format!("{SDK}{others}"))
            .into_bytes();
    }
    files.extend(bench_test(original, name).map(|text| ("tests/bench.rs".to_owned(), text.into_bytes())));
    Ok(())
}

/// Returns the built-in method or verifier `like`. Errors: there is none; the hint has the nearest name, or lists all
/// of them.
fn find_builtin(like: &str) -> Result<&'static Builtin, Error> {
    if let Some(found) = builtin::find(like).or_else(|| builtin::find_verifier(like)) {
        return Ok(found);
    }
    let names = |list: &[Builtin]| list.iter().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ");
    let all = builtin::verifiers().iter().chain(builtin::list());
    let hint = match nearest(like, all.map(|builtin| builtin.name)) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("methods: {}; verifiers: {}", names(builtin::list()), names(builtin::verifiers())),
    };
    Err(Explanation::new("new", format!("there is no built-in method or verifier `{like}`")).with_hint(hint).into())
}

/// Returns the lines of `Cargo.toml` for the dependencies in `manifest` beside the SDK, at the versions of the
/// repository's workspace. Leaves out those that the workspace does not declare.
fn dependency_lines(manifest: &Table) -> String {
    let all = manifest.get("dependencies").and_then(Value::as_table).into_iter().flatten();
    let others = all.filter(|(name, _)| *name != sources::CRATE);
    others.filter_map(|(name, _)| Some(format!("{name} = {}\n", sources::dependency(name)?))).collect()
}

/// Returns the README of the new method without the part about its folder: the built-in's README under the new name,
/// or, since verifiers have none, a text that shows how to try a verifier.
fn readme_text(original: &Builtin, name: &str) -> String {
    // The line by which a run file names a method.
    let used = |name: &str| format!("use = \"{name}\"");
    let began = format!("It began as a copy of the built-in `{}`.", original.name);
    match original.source_text("README.md").split_once('\n') {
        Some((_, rest)) => format!("# {name}\n\n{began}\n{}\n", rest.replace(&used(original.name), &used(name))),
        None => format!("# {name}\n\n{began}\n\n{}\n", VERIFIER.replace("NAME", name)),
    }
}

/// Returns the source of a test that runs three steps of the method on the SDK's bench. `None` for verifiers, for
/// methods of a data shape outside of [`SELF_CONTAINED`], and for a source without `method! {`.
fn bench_test(original: &Builtin, name: &str) -> Option<String> {
    let shape = read_manifest(builtin::find(original.name)?.bytes).ok()?.shape;
    let (_, declared) = original.source_text("src/lib.rs").split_once("method! {")?;
    let method = declared.split(',').next().map(str::trim).filter(|_| SELF_CONTAINED.contains(&shape.as_str()))?;
    let library = name.replace('-', "_");
    Some(format!(
        "//! The method on a bench: a host with a tiny model and made-up records. No run, no files.\n\n\
         use {library}::{method};\n\
         use tunebox::bench::{{Bench, Error}};\n\n\
         #[test]\n\
         fn three_steps_report_finite_numbers() -> Result<(), Error> {{\n\
         \x20   let mut run = Bench::<{method}>::new().start()?;\n\
         \x20   for _ in 0..3 {{\n\
         \x20       let report = run.step()?;\n\
         \x20       assert!(report.metrics.values().all(|value| value.is_finite()), \"{{report:?}}\");\n\
         \x20   }}\n\
         \x20   Ok(())\n\
         }}\n"
    ))
}
