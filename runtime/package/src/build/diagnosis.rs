//! Turns the output of a failed cargo into an error. Errors of the compiler are shown as it renders them, all others
//! are put into this program's words. Also collects the compiler's warnings of a cargo that succeeded.

mod warning;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tunebox_foundation::explain::Explanation;

use super::failure::{build_error, build_error_because, no_library};
use super::messages::{list_items, parse_messages, text_field};
use crate::Error;
use crate::sources::FOLDER;

pub use warning::Warning;
pub(super) use warning::warnings;

/// How many of the compiler's errors are shown.
const MAX_SHOWN_ERRORS: usize = 5;

/// What cargo writes before the name of a dependency that it cannot fetch.
const DEPENDENCY_MARKERS: [&str; 3] = ["failed to get `", "failed to download `", "no matching package named `"];

/// What the compiler writes before a location such as `src/lib.rs:4:9`, at the beginning of a line.
const LOCATION_MARKERS: [&str; 2] = ["--> ", "::: "];

/// Parts of what cargo writes if it cannot reach a registry, or may not because of `--offline`.
const OFFLINE_MARKERS: [&str; 7] = [
    "failed to download",
    "failed to get `",
    "no matching package named `",
    "Could not resolve host",
    "Could not connect",
    "download of ",
    "you're using offline mode",
];

/// Turns the output of a failed cargo into an error. Shows the compiler's errors if there are any. Else recognizes, by
/// cargo's words, a workspace that does not list this folder and a dependency that cannot be fetched
/// ([`OFFLINE_MARKERS`]); any other failure shows cargo's error on one line. A missing standard library of the target
/// has its own error, whether the compiler (in its first error) or cargo reports it. The compiler names files from the
/// workspace's `root`; the error names them from `folder`.
pub(super) fn explain(folder: &Path, root: &Path, output: &Output) -> Error {
    let words = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<Value> = parse_messages(&output.stdout).filter_map(take_compiler_error).collect();
    let has = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
    match errors.first().and_then(|first| text_field(first, "message")) {
        Some(message) if is_missing_library(message) => no_library(),
        Some(message) => compile_error(message, &errors, &PathTranslator::new(folder, root)),
        None if is_missing_library(&words) => no_library(),
        None if has(&["believes it's in a workspace"]) => {
            let hint = "add an empty `[workspace]` table to its `Cargo.toml`, or list it in that workspace";
            build_error(format!("the workspace around `{}` does not list it", folder.display()), hint)
        }
        None if has(&OFFLINE_MARKERS) => not_fetched(unfetched_dependency(&words), &error_in_output(&words)),
        None => {
            let shown = folder.display();
            let hint = format!("`cargo check` in `{shown}` shows all of it");
            build_error_because(format!("cargo cannot build `{shown}`"), error_in_output(&words), hint)
        }
    }
}

/// Takes the compiler's message out of a JSON message of cargo. `None` if it is not of level `error`, or only counts
/// the errors before it (`aborting due to …`).
fn take_compiler_error(mut cargo_message: Value) -> Option<Value> {
    let message = cargo_message.get_mut("message")?.take();
    let counts = text_field(&message, "message")?.starts_with("aborting due to");
    (text_field(&message, "level") == Some("error") && !counts).then_some(message)
}

/// Whether a message says that the compiler has no standard library for the target: it contains "can't find crate for"
/// with `core`, `std` or `alloc`, or "target may not be installed".
fn is_missing_library(text: &str) -> bool {
    let library =
        ["`core`", "`std`", "`alloc`"].iter().any(|name| text.contains(&format!("can't find crate for {name}")));
    library || text.contains("target may not be installed")
}

/// Makes the error for a dependency that cargo cannot get. `name` is the dependency, if known; `problem` is what cargo
/// says.
fn not_fetched(name: Option<String>, problem: &str) -> Error {
    let name = name.map_or("a dependency of the method".to_owned(), |name| format!("the dependency `{name}`"));
    let vendor = "or put the dependencies beside the method with `cargo vendor`";
    let hint = format!("connect once, and leave `--offline` out: a build fetches it from the network; {vendor}");
    build_error_because(format!("{name} cannot be fetched"), problem, hint)
}

/// Finds the name of the dependency that cargo cannot download in cargo's output: the text after one of
/// [`DEPENDENCY_MARKERS`], up to a backtick or a space. `None` if the output has none of these markers, or if the name
/// is empty or contains a slash, as a URL does.
fn unfetched_dependency(words: &str) -> Option<String> {
    let rest = DEPENDENCY_MARKERS.iter().find_map(|before| words.split_once(before)).map(|(_, rest)| rest)?;
    let name = rest.split(['`', ' ']).next()?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

/// Makes the error for source that does not compile. Its title is `message`, the first error's, with its code in
/// brackets; its location is the first error's. The output has up to five errors as the compiler renders them, the
/// first without the lines of `message`, and how many there are if more than one. The hint names `rustc --explain` for
/// the distinct codes of these errors; no hint without codes.
fn compile_error(message: &str, errors: &[Value], places: &PathTranslator) -> Error {
    let shown = || errors.iter().take(MAX_SHOWN_ERRORS);
    let mut output: Vec<String> =
        shown().map(|error| places.translate_text(text_field(error, "rendered").unwrap_or(""))).collect();
    if let Some(first) = output.first_mut() {
        *first = first.lines().skip(message.lines().count()).collect::<Vec<_>>().join("\n");
    }
    match (errors.len(), errors.len().saturating_sub(MAX_SHOWN_ERRORS)) {
        (1, _) => {}
        (all, 0) => output.push(format!("{all} errors")),
        (all, more) => output.push(format!("… and {more} more: {all} errors")),
    }
    output.retain(|part| !part.is_empty());

    let mut codes: Vec<String> = shown().filter_map(error_code).map(str::to_owned).collect();
    codes.sort();
    codes.dedup();
    let commands: Vec<String> = codes.iter().map(|code| format!("`rustc --explain {code}`")).collect();
    let hint = (!commands.is_empty()).then(|| format!("{}: what such an error means", commands.join(", ")));
    let what = headline(message, errors.first().and_then(error_code));
    let location = errors.first().and_then(|error| error_location(error, places));
    Explanation { location, output: Some(output.join("\n\n")), hint, ..Explanation::new("build", what) }.into()
}

/// Returns the code of a compiler message, such as `E0308`, or `None` if it has none.
fn error_code(error: &Value) -> Option<&str> {
    text_field(error.get("code")?, "code")
}

/// Adds a code in brackets to the first line of a message. Without a code the message stays as it is.
fn headline(message: &str, code: Option<&str>) -> String {
    let Some(code) = code else { return message.to_owned() };
    let (first, rest) = message.split_at(message.find('\n').unwrap_or(message.len()));
    format!("{first} [{code}]{rest}")
}

/// Returns the place of a compiler message as `file:line:column`, from the method's folder, with 0 for a missing
/// number. `None` if it has no primary span or that names no file.
fn error_location(error: &Value, places: &PathTranslator) -> Option<String> {
    let span = list_items(error, "spans").find(|span| span.get("is_primary") == Some(&Value::Bool(true)))?;
    let number = |key: &str| span.get(key).and_then(Value::as_u64).unwrap_or(0);
    let file = places.translate_path(text_field(span, "file_name")?);
    Some(format!("{file}:{}:{}", number("line_start"), number("column_start")))
}

/// Translates paths from the workspace's root, which the compiler names, into paths from the method's folder.
struct PathTranslator {
    /// The root of the workspace.
    root: PathBuf,
    /// The path from the root to the folder, with a slash at its end; empty if they are the same.
    down: String,
    /// The path from the folder to the root: `../` for each part of `down`.
    up: String,
}

impl PathTranslator {
    /// Computes the paths between a method's folder and the workspace's `root`. If the folder is not below the root, or
    /// one of them does not exist, paths are translated as if the two were one folder.
    fn new(folder: &Path, root: &Path) -> Self {
        let way = folder.canonicalize().ok().zip(root.canonicalize().ok());
        let way = way.and_then(|(folder, root)| folder.strip_prefix(root).map(Path::to_owned).ok()).unwrap_or_default();
        let down: String = way.iter().map(|part| format!("{}/", part.display())).collect();
        Self { root: root.to_owned(), down, up: "../".repeat(way.iter().count()) }
    }

    /// Translates a path from the workspace's root into one from the method's folder. A path below the folder loses the
    /// folder's part, even if there is no such file; another existing file gets `../` in front. The compiler names a
    /// file of the SDK by its path in the SDK's own repository: a file that exists only below `.tunebox` gets that
    /// folder in front. Any other path is returned unchanged.
    fn translate_path(&self, named: &str) -> String {
        let supplied = format!("{FOLDER}/{named}");
        match named.strip_prefix(&self.down) {
            Some(inside) if self.root.join(named).is_file() || !self.down.is_empty() => inside.to_owned(),
            _ if self.root.join(named).is_file() => format!("{}{named}", self.up),
            _ if self.root.join(&supplied).is_file() => format!("{}{supplied}", self.up),
            _ => named.to_owned(),
        }
    }

    /// Translates the paths in a rendered compiler message into paths from the method's folder, and removes white space
    /// at its end.
    fn translate_text(&self, rendered: &str) -> String {
        let lines =
            rendered.trim_end().lines().map(|line| self.translate_line(line).unwrap_or_else(|| line.to_owned()));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Translates the path in a line such as `--> src/lib.rs:4:9`. `None` if the line does not begin, after white
    /// space, with one of [`LOCATION_MARKERS`] and a path with line and column.
    fn translate_line(&self, line: &str) -> Option<String> {
        let begun = line.trim_start();
        let place = LOCATION_MARKERS.iter().find_map(|arrow| begun.strip_prefix(arrow))?;
        let file = place.rsplitn(3, ':').nth(2)?;
        let before = &line[..line.len() - place.len()];
        Some(format!("{before}{}{}", self.translate_path(file), &place[file.len()..]))
    }
}

/// Returns the error in a program's output as one line: up to four lines from the first that begins with `error` (else
/// the last line), joined by `: `, without `Caused by:` and without `error: ` in front.
fn error_in_output(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let start = lines.iter().position(|line| line.starts_with("error")).unwrap_or(lines.len().saturating_sub(1));
    let tail: Vec<&str> = lines[start..].iter().filter(|line| **line != "Caused by:").take(4).copied().collect();
    tail.join(": ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
