use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

fn explained(stdout: &str, stderr: &str) -> BuildError {
    let output = Output { status: ExitStatus::from_raw(101 << 8), stdout: stdout.into(), stderr: stderr.into() };
    explain(Path::new("calm"), &output)
}

#[test]
fn an_error_of_the_compiler_keeps_its_line_and_its_carets() {
    let message = serde_json::json!({ "reason": "compiler-message", "message": {
        "level": "error", "message": "cannot find value `lose` in this scope", "children": [],
        "spans": [{ "is_primary": true, "file_name": "src/lib.rs", "line_start": 4, "line_end": 4, "column_start": 9,
            "column_end": 13, "label": "not found in this scope", "text": [{ "text": "        lose", "highlight_start": 9 }] }],
    }});
    let error = explained(&message.to_string(), "error: could not compile");
    assert_eq!(error.to_string(), "cannot find value `lose` in this scope");
    assert_eq!(error.place().unwrap(), "src/lib.rs:4:9");
    assert_eq!(error.snippet().unwrap().width, 4);
}

#[test]
fn warnings_before_an_error_are_passed_over() {
    let warning = serde_json::json!({ "message": { "level": "warning", "message": "unused", "spans": [] } });
    let error = serde_json::json!({ "message": { "level": "error", "message": "real", "spans": [] } });
    assert_eq!(explained(&format!("{warning}\n{error}"), "").to_string(), "real");
}

#[test]
fn a_missing_standard_library_leads_to_the_doctor() {
    let message =
        serde_json::json!({ "message": { "level": "error", "message": "can't find crate for `core`", "spans": [] } });
    let error = explained(&message.to_string(), "");
    assert!(matches!(error, BuildError::NoTarget));
    assert_eq!(error.hint().unwrap(), "`tunebox doctor --fix`");
}

#[test]
fn an_old_lock_file_is_told_from_a_missing_network() {
    let lock = "error: cannot update the lock file Cargo.lock because --locked was passed to prevent this";
    assert!(matches!(explained("", lock), BuildError::Lock { .. }));
    let network =
        "error: failed to download `wit-bindgen v0.61.1`\n\nCaused by:\n  [6] Could not resolve host: nowhere";
    let error = explained("", network);
    assert!(matches!(error, BuildError::Fetch { .. }));
    assert!(error.why().unwrap().contains("Could not resolve host"));
}

#[test]
fn a_folder_inside_a_foreign_workspace_is_told_what_to_add() {
    let words = "error: current package believes it's in a workspace when it's not:";
    assert!(explained("", words).hint().unwrap().contains("[workspace]"));
}
