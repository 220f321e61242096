//! `publishers.toml`, edited by anybody.

use tunebox_package::trust::Publishers;

use crate::{Target, trust_file};

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
        "listed = true\n",
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
    trust_file::reads_what_it_writes(bytes, |text| Publishers::parse("publishers.toml", text), Publishers::to_text);
}
