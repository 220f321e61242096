//! Rewrites a `Cargo.toml` of the repository so that it does not need the repository's workspace.
//!
//! Cargo would look for that workspace in the folders above the SDK, and find the method's own.

use toml::{Table, Value};

/// The tables of a `Cargo.toml` that matter only inside the repository.
const REPOSITORY_TABLES: [&str; 5] = ["lints", "dev-dependencies", "test", "bench", "example"];

/// Returns the text of a `Cargo.toml` without the workspace: what it inherits from the table `workspace` is filled in,
/// the tables of [`REPOSITORY_TABLES`] are removed, and build scripts and automatic targets are turned off. `folder` is
/// the path of the manifest's folder from the workspace's root, from which `path` entries are rewritten. What the
/// workspace does not declare stays as it is. A text that cannot be parsed counts as empty.
pub(super) fn standalone(text: &str, workspace: &Table, folder: &str) -> String {
    let mut manifest: Table = text.parse().unwrap_or_default();
    manifest.retain(|name, _| !REPOSITORY_TABLES.contains(&name));
    if let (Some(Value::Table(own)), Some(Value::Table(shared))) =
        (manifest.get_mut("package"), workspace.get("package"))
    {
        for (name, value) in own.iter_mut().filter(|(_, value)| value.get("workspace").is_some()) {
            if let Some(found) = shared.get(name.as_str()) {
                value.clone_from(found);
            }
        }
    }
    if let Some(Value::Table(package)) = manifest.get_mut("package") {
        // Files that are added beside these are not built.
        for automatic in ["build", "autobins", "autoexamples", "autotests", "autobenches"] {
            package.insert(automatic.to_owned(), Value::Boolean(false));
        }
    }
    let up = vec![".."; folder.split('/').count()].join("/");
    resolve_dependencies(&mut manifest, workspace, &up);
    for (_, platform) in manifest.get_mut("target").and_then(Value::as_table_mut).into_iter().flatten() {
        if let Value::Table(platform) = platform {
            platform.remove("dev-dependencies");
            resolve_dependencies(platform, workspace, &up);
        }
    }
    toml::to_string(&manifest).unwrap_or_default()
}

/// Fills in the inherited `dependencies` and `build-dependencies` of a table. `up` is the path to the workspace's root.
fn resolve_dependencies(table: &mut Table, workspace: &Table, up: &str) {
    for kind in ["dependencies", "build-dependencies"] {
        for (name, entry) in table.get_mut(kind).and_then(Value::as_table_mut).into_iter().flatten() {
            resolve_dependency(name, entry, workspace, up);
        }
    }
}

/// Replaces a dependency with `workspace = true` by the workspace's entry, with its own features and other keys added.
/// `up`, the path to the workspace's root, is put before a `path`. Does nothing to other dependencies, or if the
/// workspace does not declare this one.
pub(super) fn resolve_dependency(name: &str, entry: &mut Value, workspace: &Table, up: &str) {
    let Value::Table(own) = entry else { return };
    let Some(shared) = workspace.get("dependencies").and_then(|table| table.get(name)) else { return };
    if own.remove("workspace").is_none() {
        return;
    }
    let mut whole = match shared {
        Value::Table(table) => table.clone(),
        version => Table::from_iter([("version".to_owned(), version.clone())]),
    };
    if let Some(Value::String(path)) = whole.get_mut("path") {
        *path = format!("{up}/{path}");
    }
    if let Some(Value::Array(more)) = own.remove("features") {
        match whole.get_mut("features") {
            Some(Value::Array(features)) => features.extend(more),
            _ => {
                whole.insert("features".to_owned(), Value::Array(more));
            }
        }
    }
    whole.extend(std::mem::take(own));
    *entry = Value::Table(whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &str = "[package]\nversion = \"0.3.0\"\n[dependencies]\nquote = \"1\"\n\
        syn = { version = \"2\", features = [\"full\"] }\nother = { path = \"sdk/other\" }\n";

    #[test]
    fn what_a_workspace_gives_is_written_out() {
        let text = "[package]\nname = \"one\"\nversion.workspace = true\n[lints]\nworkspace = true\n[dependencies]\n\
            quote.workspace = true\nother.workspace = true\nown = \"7\"\n\
            [target.'cfg(unix)'.dependencies]\nsyn = { workspace = true, features = [\"visit\"], optional = true }\n";
        let manifest: Table = standalone(text, &SHARED.parse().unwrap(), "sdk/one").parse().unwrap();
        let wanted: Table = "[package]\nname = \"one\"\nversion = \"0.3.0\"\nbuild = false\nautobins = false\n\
            autoexamples = false\nautotests = false\nautobenches = false\n[dependencies]\nown = \"7\"\n\
            quote = { version = \"1\" }\nother = { path = \"../../sdk/other\" }\n[target.'cfg(unix)'.dependencies]\n\
            syn = { version = \"2\", features = [\"full\", \"visit\"], optional = true }\n"
            .parse()
            .unwrap();
        assert_eq!(manifest, wanted);
    }
}
