//! The error behind a cargo that did not succeed: read from its answer, and put into our words but for the compiler's.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::BuildError;
use super::messages::{list, messages, text};

/// How many of the compiler's errors are shown.
const SHOWN: usize = 5;

/// What cargo says when it cannot get at a registry, or was told not to.
const OFFLINE: [&str; 6] = [
    "failed to download",
    "failed to get `",
    "Could not resolve host",
    "Could not connect",
    "download of ",
    "you're using offline mode",
];

/// What cargo's answer for a folder comes to. The compiler names files from the workspace's `root` on; a person is told
/// of them from the folder on.
pub(super) fn explain(folder: &Path, root: &Path, output: &Output) -> BuildError {
    let words = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<Value> = messages(&output.stdout).filter_map(of_compiler).collect();
    let has = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
    match errors.first().and_then(|first| text(first, "message")) {
        Some(message) if is_missing_library(message) => BuildError::NoTarget,
        Some(message) => refused(message, &errors, &inside(folder, root)),
        None if is_missing_library(&words) => BuildError::NoTarget,
        None if has(&["because --locked was passed", "lock file needs to be updated"]) => {
            BuildError::Lock { folder: folder.to_owned() }
        }
        None if has(&["believes it's in a workspace"]) => BuildError::Workspace { folder: folder.to_owned() },
        None if has(&OFFLINE) => BuildError::Fetch { problem: last_words(&words) },
        None => BuildError::Other { folder: folder.to_owned(), problem: last_words(&words) },
    }
}

/// The compiler's message in one of cargo's, if it is an error. The last one, which counts the others, is none.
fn of_compiler(mut told: Value) -> Option<Value> {
    let message = told.get_mut("message")?.take();
    let counts = text(&message, "message")?.starts_with("aborting due to");
    (text(&message, "level") == Some("error") && !counts).then_some(message)
}

/// A compiler that has no standard library for the target says it in one of these ways.
fn is_missing_library(text: &str) -> bool {
    let library =
        ["`core`", "`std`", "`alloc`"].iter().any(|name| text.contains(&format!("can't find crate for {name}")));
    library || text.contains("target may not be installed")
}

/// The errors as the compiler shows them, the first of them under its message.
fn refused(message: &str, errors: &[Value], inside: &str) -> BuildError {
    let shown = || errors.iter().take(SHOWN);
    let mut output: Vec<String> =
        shown().map(|error| from_folder(text(error, "rendered").unwrap_or(""), inside)).collect();
    if let Some(first) = output.first_mut() {
        *first = first.lines().skip(message.lines().count()).collect::<Vec<_>>().join("\n");
    }
    match errors.len().saturating_sub(SHOWN) {
        0 => {}
        1 => output.push("… and 1 more error".to_owned()),
        more => output.push(format!("… and {more} more errors")),
    }
    output.retain(|part| !part.is_empty());

    let mut codes: Vec<String> =
        shown().filter_map(|error| text(error.get("code")?, "code")).map(str::to_owned).collect();
    codes.sort();
    codes.dedup();
    let place = errors.first().and_then(|first| place(first, inside));
    BuildError::Compiler { message: message.to_owned(), place, output: output.join("\n\n"), codes }
}

/// The file, line and column of an error.
fn place(error: &Value, inside: &str) -> Option<String> {
    let span = list(error, "spans").find(|span| span.get("is_primary") == Some(&Value::Bool(true)))?;
    let number = |key: &str| span.get(key).and_then(Value::as_u64).unwrap_or(0);
    let file = text(span, "file_name")?;
    let file = file.strip_prefix(inside).unwrap_or(file);
    Some(format!("{file}:{}:{}", number("line_start"), number("column_start")))
}

/// What the compiler shows, with the places in it named from the folder on.
fn from_folder(rendered: &str, inside: &str) -> String {
    let rendered = rendered.trim_end();
    match inside {
        "" => rendered.to_owned(),
        _ => rendered.replace(&format!("--> {inside}"), "--> ").replace(&format!("::: {inside}"), "::: "),
    }
}

/// The way from the root of a workspace to a folder in it, with a slash at its end; nothing for the root itself.
fn inside(folder: &Path, root: &Path) -> String {
    let (Ok(folder), Ok(root)) = (folder.canonicalize(), root.canonicalize()) else { return String::new() };
    match folder.strip_prefix(&root) {
        Ok(way) if !way.as_os_str().is_empty() => format!("{}/", way.display()),
        _ => String::new(),
    }
}

/// The last error of a program's words, in one line.
fn last_words(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let start = lines.iter().position(|line| line.starts_with("error")).unwrap_or(lines.len().saturating_sub(1));
    let tail: Vec<&str> = lines[start..].iter().filter(|line| **line != "Caused by:").take(4).copied().collect();
    tail.join(": ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
