use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::json;
use tunebox_compute::explain::Explain as _;

use super::*;

fn explained(stdout: &str, stderr: &str) -> BuildError {
    explained_in(Path::new("calm"), Path::new("calm"), stdout, stderr)
}

fn explained_in(folder: &Path, root: &Path, stdout: &str, stderr: &str) -> BuildError {
    let output = Output { status: ExitStatus::from_raw(101 << 8), stdout: stdout.into(), stderr: stderr.into() };
    explain(folder, root, &output)
}

/// An error as cargo tells of it, with what the compiler shows.
fn error(message: &str, code: Option<&str>, file: &str) -> Value {
    let code = code.map(|code| json!({ "code": code }));
    let rendered = format!(
        "error: {message}\n --> {file}:4:9\n  |\n4 |         lose\n  |         ^^^^ help: `loss`\n  |\n ::: {file}:1:1\n\n"
    );
    let span = json!({ "is_primary": true, "file_name": file, "line_start": 4, "column_start": 9 });
    json!({ "reason": "compiler-message", "message": {
        "level": "error", "message": message, "code": code, "spans": [span], "rendered": rendered,
    }})
}

#[test]
fn every_error_of_the_compiler_is_shown_as_it_shows_it() {
    let (first, second) = (error("no `lose`", Some("E0425"), "src/lib.rs"), error("no type", None, "src/other.rs"));
    let last = json!({ "message": { "level": "error", "message": "aborting due to 2 previous errors", "spans": [] } });
    let error = explained(&format!("{first}\n{second}\n{last}"), "error: could not compile");
    assert_eq!(error.to_string(), "no `lose`");
    assert_eq!(error.place().unwrap(), "src/lib.rs:4:9");
    let output = error.output().unwrap();
    assert!(output.starts_with(" --> src/lib.rs:4:9\n  |\n4 |         lose\n"), "{output}");
    assert!(output.contains("\n\nerror: no type\n --> src/other.rs:4:9\n"), "{output}");
    assert!(output.contains("help: `loss`") && !output.contains("aborting"), "{output}");
    assert_eq!(error.hint().unwrap(), "`rustc --explain E0425`: what such an error means");
}

#[test]
fn errors_beyond_a_few_are_counted() {
    let many = |count: usize| {
        let lines: Vec<String> = (0..count).map(|index| error(&format!("no {index}"), None, "a").to_string()).collect();
        explained(&lines.join("\n"), "").output().unwrap()
    };
    assert!(many(SHOWN).ends_with("a:1:1") && many(SHOWN).contains("no 4"), "{}", many(SHOWN));
    assert!(many(SHOWN + 1).ends_with("\n\n… and 1 more error"), "{}", many(SHOWN + 1));
    assert!(many(9).ends_with("… and 4 more errors") && !many(9).contains("no 5"), "{}", many(9));
}

#[test]
fn a_file_is_named_from_the_folder_on_wherever_its_workspace_begins() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("methods/calm");
    std::fs::create_dir_all(&folder).unwrap();
    let told = error("no `lose`", None, "methods/calm/src/lib.rs").to_string();
    let error = explained_in(&folder, root.path(), &told, "");
    assert_eq!(error.place().unwrap(), "src/lib.rs:4:9");
    let output = error.output().unwrap();
    assert!(output.contains("--> src/lib.rs:4:9") && output.contains("::: src/lib.rs:1:1"), "{output}");
}

#[test]
fn warnings_before_an_error_are_passed_over() {
    let warning = json!({ "message": { "level": "warning", "message": "unused", "spans": [] } });
    let error = json!({ "message": { "level": "error", "message": "real", "spans": [] } });
    assert_eq!(explained(&format!("{warning}\n{error}"), "").to_string(), "real");
}

#[test]
fn a_missing_standard_library_leads_to_the_doctor() {
    let message = json!({ "message": { "level": "error", "message": "can't find crate for `core`", "spans": [] } });
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
