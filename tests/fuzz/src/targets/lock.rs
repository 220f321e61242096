//! `tunebox.lock`, edited by anybody.

use tunebox_package::trust::Lock;

use crate::{Target, trust_file};

pub(super) const TARGET: Target = Target { name: "lock", run, longest: 4 << 10, quick: 6_000 };

/// Entries that are written and read back as the same, or an error with a place in the text.
fn run(bytes: &[u8]) {
    trust_file::reads_what_it_writes(bytes, |text| Lock::parse("tunebox.lock", text), Lock::to_text);
}
