//! Lines in the source of a Rust method that compile but do not work in a component: prints, whose output is lost, and
//! metrics that are not declared, which end a run. The search compares text line by line and does not parse the source,
//! which is enough for a warning.

use std::path::Path;

use crate::digest::files_below;
use crate::files;

/// The source text of a call that reports a metric by a literal name; `add_` may stand before it.
const METRIC_CALL: &str = "metric(\"";

/// Finds lines below `src` that report a metric whose name is not in `declared`. Returns pairs of place, as
/// `src/lib.rs:12`, and name. Comments and tests are not searched.
pub fn undeclared(folder: &Path, declared: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (place, code) in source_lines(folder) {
        let names = reported_metrics(&code).filter(|name| !declared.iter().any(|known| known == name));
        found.extend(names.map(|name| (place.clone(), name.to_owned())));
    }
    found
}

/// Iterates over the names in the calls `metric("…")` and `add_metric("…")` of a line. Methods and other functions with
/// such an ending do not count.
fn reported_metrics(code: &str) -> impl Iterator<Item = &str> {
    let calls = code.match_indices(METRIC_CALL).filter(|(at, _)| {
        let before = code[..*at].trim_end_matches("add_");
        !before.ends_with(|letter: char| letter.is_alphanumeric() || "_.".contains(letter))
    });
    calls.filter_map(|(at, _)| code[at + METRIC_CALL.len()..].split_once('"').map(|(name, _)| name))
}

/// The macros that print.
const PRINT_MACROS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// Finds lines below `src` that print, with `println!`, `dbg!` and the like. Returns their places, as `src/lib.rs:12`.
/// Comments and tests are not searched.
pub fn prints(folder: &Path) -> Vec<String> {
    source_lines(folder).into_iter().filter(|(_, code)| is_printing(code)).map(|(place, _)| place).collect()
}

/// Whether a line of code calls one of [`PRINT_MACROS`].
fn is_printing(code: &str) -> bool {
    let begins_a_word = |at: usize| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    PRINT_MACROS.iter().any(|name| code.match_indices(name).any(|(at, _)| begins_a_word(at)))
}

/// Returns the lines in the Rust files below `src`, in the order of their paths: the line's place, as `src/lib.rs:12`,
/// and its code without comments. Leaves out tests, which run natively: folders `tests` and files `tests.rs`. What
/// cannot be read counts as empty.
fn source_lines(folder: &Path) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for path in files_below(folder, Path::new("src"), "tests").unwrap_or_default() {
        if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            let text = files::read_text(&folder.join(&path)).unwrap_or_default();
            lines.extend(
                lines_before_tests(&text)
                    .map(|(number, code)| (format!("{}:{number}", path.display()), code.to_owned())),
            );
        }
    }
    lines
}

/// Iterates over the lines of a file before its first test module: the line's number, from 1, and its text before `//`.
/// A test module begins with a line `#[cfg(test)]` before one that ends with `{`; all lines from there on are left out.
fn lines_before_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let begins_tests = |(line, next): (&str, &str)| line.trim() == "#[cfg(test)]" && next.trim_end().ends_with('{');
    let end = text.lines().zip(text.lines().skip(1)).position(begins_tests).unwrap_or(usize::MAX);
    let numbered = text.lines().take(end).enumerate();
    numbered.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_metric_that_is_not_declared_is_found_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let source = "fn step() {\n    add_metric(\"loss\", loss);\n    run::metric(\"accurcy\", share); add_metric(\"x\", 1.0);\n    \
                      // metric(\"old\", 1.0)\n    own.metric(\"y\", 1.0);\n    my_metric(\"z\", 1.0);\n    metric(name,
                      // 1.0);\n}\n\n\
                      #[cfg(test)]\nmod tests {\n    fn told() {\n        metric(\"t\", 1.0);\n    }\n}\n";
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/lib.rs"), source).unwrap();
        let found = |declared: &[&str]| {
            let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
            let found = undeclared(folder.path(), &declared);
            found.into_iter().map(|(place, name)| format!("{place} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(found(&["loss", "accuracy"]), ["src/lib.rs:3 accurcy", "src/lib.rs:3 x"]);
        assert!(found(&["loss", "accurcy", "x"]).is_empty());
    }

    #[test]
    fn lines_that_print_are_found_outside_of_comments_and_tests() {
        let folder = tempfile::tempdir().unwrap();
        let source = "//! Not println!(\"\").\nmod tests;\n\nfn step() {\n    std::println!(\"dbg\");\n    \
                      reprint!();\n    let x = dbg!(2);\n    eprint!(\"\"); // print!\n}\n\n#[cfg(test)]\nmod tests {\n    \
                      fn shown() {\n        println!();\n    }\n}\n";
        for (path, text) in [("lib.rs", source), ("parts/one.rs", "print!(\"\");\n"), ("tests.rs", "println!();\n")] {
            let path = folder.path().join("src").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(prints(folder.path()), ["src/lib.rs:5", "src/lib.rs:7", "src/lib.rs:8", "src/parts/one.rs:1"]);
        assert!(prints(&folder.path().join("nowhere")).is_empty());
    }

    #[test]
    fn a_source_that_never_ends_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("src/.x.rs")).unwrap();
        assert!(prints(folder.path()).is_empty());
    }
}
