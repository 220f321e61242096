//! The compiler's warnings about source that compiles.

use std::path::Path;

use serde_json::Value;

use super::{PathTranslator, error_code, error_location, headline};
use crate::build::messages::{is_of_package, parse_messages, text_field};

/// A warning of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The compiler's message, with the code in brackets if it has one.
    pub message: String,
    /// The location as `file:line:column`, from the method's folder; `None` if the compiler gives none.
    pub place: Option<String>,
    /// The whole warning as the compiler renders it.
    pub output: String,
}

/// Returns the compiler's warnings about the package in `folder` from cargo's `output`; cargo repeats them if
/// nothing was compiled again. Warnings about other crates, such as the SDK, are left out. Paths are translated from
/// the workspace's `root` to `folder`. Empty if the folder has no `Cargo.toml`.
pub(crate) fn warnings(folder: &Path, root: &Path, output: &[u8]) -> Vec<Warning> {
    let Ok(manifest) = folder.join("Cargo.toml").canonicalize() else { return Vec::new() };
    let places = PathTranslator::new(folder, root);
    let own = parse_messages(output).filter(|message| is_of_package(message, &manifest));
    own.filter_map(|message| warning(message.get("message")?, &places)).collect()
}

/// Turns a compiler message into a [`Warning`]. `None` if it has another level, or only counts the warnings before it
/// (`1 warning emitted`).
fn warning(message: &Value, places: &PathTranslator) -> Option<Warning> {
    let first = text_field(message, "message")?;
    let place = error_location(message, places);
    let counts = place.is_none() && first.ends_with(" emitted");
    if counts || text_field(message, "level") != Some("warning") {
        return None;
    }
    let output = places.translate_text(text_field(message, "rendered").unwrap_or(first));
    Some(Warning { message: headline(first, error_code(message)), place, output })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_warnings_of_the_folder_alone_are_told_as_the_compiler_shows_them() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("Cargo.toml"), "").unwrap();
            folder
        };
        let (calm, other) = (folder("calm"), folder("other"));
        let told = |folder: &Path, level: &str, message: &str, spans: Value| {
            let rendered = format!("{level}: {message}\n --> calm/src/lib.rs:4:9\n\n");
            json!({ "reason": "compiler-message", "manifest_path": folder.join("Cargo.toml"), "message": {
                "level": level, "message": message, "spans": spans, "rendered": rendered,
                "code": { "code": "unused_must_use" },
            }})
        };
        let here = json!([{ "is_primary": true, "file_name": "calm/src/lib.rs", "line_start": 4, "column_start": 9 }]);
        let all = [
            told(&calm, "warning", "unused `Result`", here.clone()),
            told(&other, "warning", "of somebody else", here.clone()),
            told(&calm, "note", "by the way", here),
            told(&calm, "warning", "1 warning emitted", json!([])),
        ];
        let all = all.map(|message| message.to_string()).join("\n");
        let wanted = Warning {
            message: "unused `Result` [unused_must_use]".to_owned(),
            place: Some("src/lib.rs:4:9".to_owned()),
            output: "warning: unused `Result`\n --> src/lib.rs:4:9".to_owned(),
        };
        assert_eq!(warnings(&calm, root.path(), all.as_bytes()), [wanted]);
    }
}
