//! `publishers.toml`, edited by anybody.

use tunebox_package::trust::Publishers;

use crate::{Target, trust_file};

pub(super) const TARGET: Target = Target { name: "publishers", run, longest: 4 << 10, quick: 6_000 };

/// Entries that are written and read back as the same, or an error with a place in the text.
fn run(bytes: &[u8]) {
    trust_file::reads_what_it_writes(bytes, |text| Publishers::parse("publishers.toml", text), Publishers::to_text);
}
