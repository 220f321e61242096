//! Where the source of a method in Rust prints: that compiles for every target, and in a component it goes nowhere.

use std::path::Path;

use super::lines::each_line;

/// What prints, as it is written.
const MACROS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// The lines below `src` that print, as `src/lib.rs:12`.
pub fn prints(folder: &Path) -> Vec<String> {
    let mut places = Vec::new();
    each_line(folder, &mut |place, code| {
        if is_printing(code) {
            places.push(place.to_owned());
        }
    });
    places
}

fn is_printing(code: &str) -> bool {
    let begins_a_word = |at: usize| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    MACROS.iter().any(|name| code.match_indices(name).any(|(at, _)| begins_a_word(at)))
}

#[cfg(test)]
mod tests {
    use std::fs;

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

    #[test]
    #[cfg(unix)]
    fn a_source_that_never_ends_is_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("src/.x.rs")).unwrap();
        assert!(prints(folder.path()).is_empty());
    }
}
