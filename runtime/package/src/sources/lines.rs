//! The source of a method in Rust, line by line. Only a compiler understands it; a line tells enough for a warning.

use std::fs;
use std::path::Path;

use crate::files;

/// Who sees a line: its place, as `src/lib.rs:12`, and its code.
type See<'a> = dyn FnMut(&str, &str) + 'a;

/// Shows every line below `src` without its comment. Those of tests are left out: they run natively.
pub(super) fn each_line(folder: &Path, see: &mut See<'_>) {
    search(folder, "src", see);
}

fn search(folder: &Path, below: &str, see: &mut See<'_>) {
    let Ok(entries) = fs::read_dir(folder.join(below)) else { return };
    let entries = entries.flatten().filter_map(|entry| {
        let is_folder = entry.file_type().ok()?.is_dir();
        Some((entry.file_name().into_string().ok()?, is_folder))
    });
    let mut entries: Vec<(String, bool)> = entries.collect();
    entries.sort();
    for (name, is_folder) in entries {
        let path = format!("{below}/{name}");
        if is_folder && name != "tests" {
            search(folder, &path, see);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = files::read_text(&folder.join(&path)).unwrap_or_default();
            for (number, code) in code(&text) {
                see(&format!("{path}:{number}"), code);
            }
        }
    }
}

/// The lines of a file with their numbers, up to the tests at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let begins_tests = |(line, next): (&str, &str)| line.trim() == "#[cfg(test)]" && next.trim_end().ends_with('{');
    let end = text.lines().zip(text.lines().skip(1)).position(begins_tests).unwrap_or(usize::MAX);
    let numbered = text.lines().take(end).enumerate();
    numbered.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}
