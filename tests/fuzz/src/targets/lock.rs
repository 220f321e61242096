//! `tunebox.lock`, edited by anybody.

use tunebox_package::trust::Lock;

use crate::{Target, trust_file};

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
    trust_file::reads_what_it_writes(bytes, |text| Lock::parse("tunebox.lock", text), Lock::to_text);
}
