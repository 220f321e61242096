//! `tunebox.lock`, edited by anybody.

use tunebox_compute::explain::Explain;
use tunebox_package::trust::Lock;

use crate::Target;

pub(super) const TARGET: Target = Target {
    name: "lock",
    run,
    words: &[
        "schema = 1\n",
        "[[package]]\n",
        "name = ",
        "version = ",
        "source = ",
        "sha256 = ",
        "signer = ",
        "interface = ",
        "highest = ",
        "calm-dpo",
        "1.0.0-beta.2",
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
    match Lock::parse("tunebox.lock", &text) {
        Ok(read) => {
            let written = read.to_text();
            let again = written.as_ref().ok().map(|text| Lock::parse("tunebox.lock", text));
            assert!(again.is_some_and(|again| again.is_ok_and(|again| again == read)), "{written:?}");
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.snippet().is_none_or(|line| (1..=lines).contains(&line.line)), "{error:?}");
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    }
}
