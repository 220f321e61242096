//! Where the source of a method in Rust prints: that compiles for every target, and in a component it goes nowhere.

use std::fs;
use std::path::Path;

/// What prints, as it is written.
const MACROS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// The lines below `src` that print, as `src/lib.rs:12`. Those of tests are left out: they run natively.
pub fn prints(folder: &Path) -> Vec<String> {
    let mut places = Vec::new();
    search(folder, "src", &mut places);
    places
}

fn search(folder: &Path, below: &str, places: &mut Vec<String>) {
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
            search(folder, &path, places);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(folder.join(&path)).unwrap_or_default();
            places.extend(lines(&text).map(|line| format!("{path}:{line}")));
        }
    }
}

/// The numbers of the lines that print, up to the tests at the end of a file.
fn lines(text: &str) -> impl Iterator<Item = usize> {
    let begins_tests = |(line, next): (&str, &str)| line.trim() == "#[cfg(test)]" && next.trim_end().ends_with('{');
    let end = text.lines().zip(text.lines().skip(1)).position(begins_tests).unwrap_or(usize::MAX);
    text.lines().take(end).enumerate().filter(|(_, line)| is_printing(line)).map(|(index, _)| index + 1)
}

fn is_printing(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let begins_a_word = |at: usize| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    MACROS.iter().any(|name| code.match_indices(name).any(|(at, _)| begins_a_word(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
