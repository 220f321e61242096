//! Where the source of a method in Rust reports a metric that it does not declare: that compiles, and ends a run.

use std::path::Path;

use super::lines::each_line;

/// What reports a number under a name that stands there, as it is written; `add_` may stand before it.
const CALL: &str = "metric(\"";

/// The lines below `src` that report a metric of a name that is not among these, as `src/lib.rs:12`, each with the name.
pub fn undeclared(folder: &Path, declared: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    each_line(folder, &mut |place, code| {
        let names = reported(code).filter(|name| !declared.iter().any(|known| known == name));
        found.extend(names.map(|name| (place.to_owned(), name.to_owned())));
    });
    found
}

/// The names in the calls of a line.
fn reported(code: &str) -> impl Iterator<Item = &str> {
    let calls = code.match_indices(CALL).filter(|(at, _)| {
        let before = code[..*at].trim_end_matches("add_");
        !before.ends_with(|letter: char| letter.is_alphanumeric() || "_.".contains(letter))
    });
    calls.filter_map(|(at, _)| code[at + CALL.len()..].split_once('"').map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_not_declared_is_found_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let source = "fn step() {\n    add_metric(\"loss\", loss);\n    run::metric(\"accurcy\", share); add_metric(\"x\", 1.0);\n    \
                      // metric(\"old\", 1.0)\n    own.metric(\"y\", 1.0);\n    my_metric(\"z\", 1.0);\n    metric(name, 1.0);\n}\n\n\
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
}
