//! `publishers.toml`, edited by anybody.

use tunebox_compute::explain::Explain;
use tunebox_package::trust::Publishers;

use crate::Target;

pub(super) const TARGET: Target = Target {
    name: "publishers",
    run,
    words: &[
        "schema = 1\n",
        "[[publisher]]\n",
        "prefix = ",
        "key = ",
        "first-seen = ",
        "source = ",
        "packages = [",
        "local:plain",
        "registry.example/me",
        "2026-11-22",
        "\"\"\"",
        "'''",
        "= 1979-05-27",
        "{ a = 1 }",
        "\\u001b",
    ],
    longest: 4 << 10,
    quick: 6_000,
};

/// Entries that are written and read back as the same, or an error with a place in the text.
fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Publishers::parse("publishers.toml", &text) {
        Ok(read) => {
            let written = read.to_text();
            let again = written.as_ref().ok().map(|text| Publishers::parse("publishers.toml", text));
            assert!(again.is_some_and(|again| again.is_ok_and(|again| again == read)), "{written:?}");
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.snippet().is_none_or(|line| (1..=lines).contains(&line.line)), "{error:?}");
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    }
}
