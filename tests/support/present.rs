//! A device that a test needs: one that is not there is skipped in one loud line, and is a failure where `TUNEBOX_DEVICES`
//! names it, as in `TUNEBOX_DEVICES=cuda`, so that a run on a machine with a GPU cannot pass by skipping.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// What was opened under a name, or nothing where it is not there; the error is why.
pub(crate) fn present<Device>(name: &str, opened: Result<Device, String>) -> Option<Device> {
    let wanted = wanted(&std::env::var("TUNEBOX_DEVICES").unwrap_or_default());
    match opened {
        Ok(device) => Some(device),
        Err(why) => {
            assert!(!wanted.contains(name), "`{name}` is asked for: {why}");
            skipped(name, &why);
            None
        }
    }
}

/// Says once, past the capture of the test harness, that something was not tried.
pub(crate) fn skipped(name: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{name}: {why}")) {
        let _ = writeln!(std::io::stderr(), "SKIPPED on `{name}`: {why}");
    }
}

/// The devices that must be there. A word that names none would pass by skipping, so it fails.
pub(crate) fn wanted(text: &str) -> BTreeSet<String> {
    let words = text.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| {
            assert!(["cuda", "metal"].contains(&word), "`TUNEBOX_DEVICES` takes `cuda` and `metal`, and not `{word}`");
            word.to_owned()
        })
        .collect()
}
