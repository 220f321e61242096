use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::json;
use tunebox_foundation::explain::Explain as _;

use super::*;

fn explained(stdout: &str, stderr: &str) -> Error {
    explained_in(Path::new("calm"), Path::new("calm"), stdout, stderr)
}

fn explained_in(folder: &Path, root: &Path, stdout: &str, stderr: &str) -> Error {
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
    assert_eq!(error.to_string(), "no `lose` [E0425]");
    assert_eq!(error.location().unwrap(), "src/lib.rs:4:9");
    let output = error.explanation().output.unwrap();
    assert!(output.starts_with(" --> src/lib.rs:4:9\n  |\n4 |         lose\n"), "{output}");
    assert!(output.ends_with("\n\n2 errors"), "{output}");
    assert!(output.contains("\n\nerror: no type\n --> src/other.rs:4:9\n"), "{output}");
    assert!(output.contains("help: `loss`") && !output.contains("aborting"), "{output}");
    assert_eq!(error.hint().unwrap(), "`rustc --explain E0425`: what such an error means");
}

#[test]
fn errors_are_counted_and_those_beyond_a_few_only_counted() {
    let many = |count: usize| {
        let lines: Vec<String> = (0..count).map(|index| error(&format!("no {index}"), None, "a").to_string()).collect();
        explained(&lines.join("\n"), "").explanation().output.unwrap()
    };
    assert!(many(1).ends_with("a:1:1"), "{}", many(1));
    assert!(
        many(MAX_SHOWN_ERRORS).ends_with("a:1:1\n\n5 errors") && many(MAX_SHOWN_ERRORS).contains("no 4"),
        "{}",
        many(MAX_SHOWN_ERRORS)
    );
    assert!(many(9).ends_with("\n\n… and 4 more: 9 errors") && !many(9).contains("no 5"), "{}", many(9));
}

#[test]
fn the_code_stands_behind_the_first_line_of_what_the_compiler_says() {
    assert_eq!(headline("one thing\nand another", Some("E0599")), "one thing [E0599]\nand another");
    assert_eq!(headline("one thing", None), "one thing");
}

#[test]
fn a_file_is_named_from_the_folder_on_wherever_its_workspace_begins() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("methods/calm");
    std::fs::create_dir_all(&folder).unwrap();
    let told = error("no `lose`", None, "methods/calm/src/lib.rs").to_string();
    let error = explained_in(&folder, root.path(), &told, "");
    assert_eq!(error.location().unwrap(), "src/lib.rs:4:9");
    let output = error.explanation().output.unwrap();
    assert!(output.contains("--> src/lib.rs:4:9") && output.contains("::: src/lib.rs:1:1"), "{output}");
}

#[test]
fn a_file_of_the_sdk_is_named_where_it_lies() {
    let root = tempfile::tempdir().unwrap();
    let (folder, sdk) = (root.path().join("methods/calm"), root.path().join(".tunebox/sdk/rust/src"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&sdk).unwrap();
    std::fs::write(sdk.join("run.rs"), "").unwrap();
    let told = error("no `Reported`", Some("E0277"), "sdk/rust/src/run.rs").to_string();
    for (folder, named) in
        [(root.path(), ".tunebox/sdk/rust/src/run.rs"), (folder.as_path(), "../../.tunebox/sdk/rust/src/run.rs")]
    {
        let error = explained_in(folder, root.path(), &told, "");
        assert_eq!(error.location().unwrap(), format!("{named}:4:9"));
        let output = error.explanation().output.unwrap();
        assert!(
            output.contains(&format!("--> {named}:4:9")) && output.contains(&format!("::: {named}:1:1")),
            "{output}"
        );
    }
    let elsewhere = explained_in(root.path(), root.path(), &told.replace("run.rs", "away.rs"), "");
    assert_eq!(elsewhere.location().unwrap(), "sdk/rust/src/away.rs:4:9", "what lies nowhere here keeps its name");
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
    assert_eq!(error.to_string(), "no WebAssembly target for this Rust");
    assert_eq!(error.hint().unwrap(), "`tunebox doctor --fix`");
}

#[test]
fn a_missing_network_is_an_error_of_the_dependency() {
    let network =
        "error: failed to download `wit-bindgen v0.61.1`\n\nCaused by:\n  [6] Could not resolve host: nowhere";
    let error = explained("", network);
    assert!(error.why().unwrap().contains("Could not resolve host"));
    assert_eq!(error.to_string(), "the dependency `wit-bindgen` cannot be fetched");
    assert!(error.hint().unwrap().contains("leave `--offline` out"));
}

#[test]
fn a_dependency_that_is_not_on_this_machine_is_named() {
    let missing = "error: no matching package named `left-pad` found\nlocation searched: crates.io index\nAs a reminder, \
                   you're using offline mode (--offline) which can sometimes cause surprising resolution failures";
    assert_eq!(explained("", missing).to_string(), "the dependency `left-pad` cannot be fetched");
    let got = "error: failed to get `left-pad` as a dependency of package `calm v0.1.0 (/calm)`";
    assert_eq!(explained("", got).to_string(), "the dependency `left-pad` cannot be fetched");
    let other = "error: failed to download from `https://somewhere/config.json`";
    assert_eq!(explained("", other).to_string(), "a dependency of the method cannot be fetched");
}

#[test]
fn a_folder_inside_a_foreign_workspace_is_told_what_to_add() {
    let words = "error: current package believes it's in a workspace when it's not:";
    assert!(explained("", words).hint().unwrap().contains("[workspace]"));
}
