//! `run.lock` of a run from elsewhere.

use tunebox_foundation::explain::Explain;
use tunebox_sandbox::Compiling;
use tunebox_training::{base_precision, runs, verify};

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "run_lock", run, longest: 4 << 10, quick: 3_000 };

/// Listed or passed over; verified as far as a run goes whose settings are not there: an error that can be shown.
fn run(bytes: &[u8]) {
    with_file("run.lock", bytes, |path, folder| {
        let all = folder.join("locked");
        let run = all.join("one");
        let moved = std::fs::create_dir_all(&run).and_then(|()| std::fs::rename(path, run.join("run.lock")));
        assert!(moved.is_ok(), "{moved:?}");
        match runs(&all) {
            Ok(listed) => assert!(listed.len() <= 1, "{listed:?}"),
            Err(error) => drop(error.explanation()),
        }
        if let Err(error) = base_precision(&run) {
            drop(error.explanation());
        }
        match verify(&run, &[], true, Compiling::default()) {
            Ok(_) => panic!("a run without settings was verified"),
            Err(error) => drop(error.explanation()),
        }
    });
}
