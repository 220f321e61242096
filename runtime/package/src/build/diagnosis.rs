//! The error behind a cargo that did not succeed: read from its answer, and put into our words but for the compiler's.
//! What the compiler warns of where it did.

mod warning;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tunebox_foundation::explain::Explanation;

use super::failure::{build_error, build_error_because, no_target, outdated_lock};
use super::messages::{list, messages, text};
use crate::Error;
use crate::error::Reason;
use crate::sources::FOLDER;

pub use warning::Warning;
pub(super) use warning::warnings;

/// How many of the compiler's errors are shown.
const SHOWN: usize = 5;

/// What it says before the name of the one that it cannot get.
const NAMED: [&str; 3] = ["failed to get `", "failed to download `", "no matching package named `"];

/// What the compiler writes before the place of something, at the beginning of a line.
const ARROWS: [&str; 2] = ["--> ", "::: "];

/// What cargo says when it cannot get at a registry, or was told not to.
const OFFLINE: [&str; 7] = [
    "failed to download",
    "failed to get `",
    "no matching package named `",
    "Could not resolve host",
    "Could not connect",
    "download of ",
    "you're using offline mode",
];

/// What cargo's answer for a folder comes to. The compiler names files from the workspace's `root` on, and some by the
/// names that they have in the bytes; a person is told of them as they lie from the folder on.
pub(super) fn explain(folder: &Path, root: &Path, output: &Output) -> Error {
    let words = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<Value> = messages(&output.stdout).filter_map(of_compiler).collect();
    let has = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
    match errors.first().and_then(|first| text(first, "message")) {
        Some(message) if is_missing_library(message) => no_target(),
        Some(message) => refused(message, &errors, &Places::of(folder, root)),
        None if is_missing_library(&words) => no_target(),
        None if has(&["because --locked was passed", "lock file needs to be updated"]) => {
            outdated_lock(folder, &[], false)
        }
        None if has(&["believes it's in a workspace"]) => {
            let hint = "add an empty `[workspace]` table to its `Cargo.toml`, or list it in that workspace";
            build_error(format!("the workspace around `{}` does not list it", folder.display()), hint)
        }
        None if has(&OFFLINE) => not_fetched(dependency(&words), &last_words(&words)),
        None => {
            let shown = folder.display();
            let hint = format!("`cargo check` in `{shown}` shows all of it");
            build_error_because(format!("cargo cannot build `{shown}`"), last_words(&words), hint)
        }
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

/// The error for a dependency that cargo cannot get.
fn not_fetched(name: Option<String>, problem: &str) -> Error {
    let name = name.map_or("a dependency of the method".to_owned(), |name| format!("the dependency `{name}`"));
    let vendor = "or put the dependencies beside the method with `cargo vendor`";
    let hint = format!("connect once, and leave `--offline` out: a build fetches it from the network; {vendor}");
    let error = Explanation::new("build", format!("{name} cannot be fetched")).with_why(problem).with_hint(hint);
    Reason::NotFetched.error(error)
}

/// The dependency that cargo cannot get.
fn dependency(words: &str) -> Option<String> {
    let rest = NAMED.iter().find_map(|before| words.split_once(before)).map(|(_, rest)| rest)?;
    let name = rest.split(['`', ' ']).next()?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

/// The errors as the compiler shows them, the first of them under its message.
fn refused(message: &str, errors: &[Value], places: &Places) -> Error {
    let shown = || errors.iter().take(SHOWN);
    let mut output: Vec<String> = shown().map(|error| places.in_text(text(error, "rendered").unwrap_or(""))).collect();
    if let Some(first) = output.first_mut() {
        *first = first.lines().skip(message.lines().count()).collect::<Vec<_>>().join("\n");
    }
    match (errors.len(), errors.len().saturating_sub(SHOWN)) {
        (1, _) => {}
        (all, 0) => output.push(format!("{all} errors")),
        (all, more) => output.push(format!("… and {more} more: {all} errors")),
    }
    output.retain(|part| !part.is_empty());

    let mut codes: Vec<String> = shown().filter_map(code).map(str::to_owned).collect();
    codes.sort();
    codes.dedup();
    let commands: Vec<String> = codes.iter().map(|code| format!("`rustc --explain {code}`")).collect();
    let hint = (!commands.is_empty()).then(|| format!("{}: what such an error means", commands.join(", ")));
    let what = headline(message, errors.first().and_then(code));
    let location = errors.first().and_then(|error| place(error, places));
    Explanation { location, output: Some(output.join("\n\n")), hint, ..Explanation::new("build", what) }.into()
}

/// The code of an error, of which the compiler has a longer explanation.
fn code(error: &Value) -> Option<&str> {
    text(error.get("code")?, "code")
}

/// What the compiler says first, with the code that stood before it.
fn headline(message: &str, code: Option<&str>) -> String {
    let Some(code) = code else { return message.to_owned() };
    let (first, rest) = message.split_at(message.find('\n').unwrap_or(message.len()));
    format!("{first} [{code}]{rest}")
}

/// The file, line and column of an error.
fn place(error: &Value, places: &Places) -> Option<String> {
    let span = list(error, "spans").find(|span| span.get("is_primary") == Some(&Value::Bool(true)))?;
    let number = |key: &str| span.get(key).and_then(Value::as_u64).unwrap_or(0);
    let file = places.of_file(text(span, "file_name")?);
    Some(format!("{file}:{}:{}", number("line_start"), number("column_start")))
}

/// Where the files lie that the compiler names.
struct Places {
    /// The root of the workspace.
    root: PathBuf,
    /// The way from it to the folder, with a slash at its end; nothing for the root itself.
    down: String,
    /// And back.
    up: String,
}

impl Places {
    fn of(folder: &Path, root: &Path) -> Self {
        let way = folder.canonicalize().ok().zip(root.canonicalize().ok());
        let way = way.and_then(|(folder, root)| folder.strip_prefix(root).map(Path::to_owned).ok()).unwrap_or_default();
        let down: String = way.iter().map(|part| format!("{}/", part.display())).collect();
        Self { root: root.to_owned(), down, up: "../".repeat(way.iter().count()) }
    }

    /// A file from the folder on. The bytes name the SDK as it is called in its own repository, wherever it lies here.
    fn of_file(&self, named: &str) -> String {
        let supplied = format!("{FOLDER}/{named}");
        match named.strip_prefix(&self.down) {
            Some(inside) if self.root.join(named).is_file() || !self.down.is_empty() => inside.to_owned(),
            _ if self.root.join(named).is_file() => format!("{}{named}", self.up),
            _ if self.root.join(&supplied).is_file() => format!("{}{supplied}", self.up),
            _ => named.to_owned(),
        }
    }

    /// What the compiler shows, with the places in it named from the folder on.
    fn in_text(&self, rendered: &str) -> String {
        let line = |line: &str| self.in_line(line).unwrap_or_else(|| line.to_owned());
        rendered.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
    }

    /// A line that begins with a place.
    fn in_line(&self, line: &str) -> Option<String> {
        let begun = line.trim_start();
        let place = ARROWS.iter().find_map(|arrow| begun.strip_prefix(arrow))?;
        let file = place.rsplitn(3, ':').nth(2)?;
        let before = &line[..line.len() - place.len()];
        Some(format!("{before}{}{}", self.of_file(file), &place[file.len()..]))
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
