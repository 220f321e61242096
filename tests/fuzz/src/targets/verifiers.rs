//! The texts that built-in verifiers read, through the wall: what they say of a completion, an answer, a schema.

use std::cell::RefCell;

use tunebox_package::{builtin, read_manifest};
use tunebox_sandbox::{Engine, Judge, Limits, Verdict};

use crate::Target;

pub(super) const TARGET: Target = Target { name: "verifiers", run, longest: 2 << 10, quick: 1_000 };

thread_local! {
    static JUDGES: RefCell<Vec<(&'static str, Judge)>> = RefCell::new(judges());
}

/// Every built-in verifier whose settings all have defaults.
fn judges() -> Vec<(&'static str, Judge)> {
    let engine = Engine::new().unwrap_or_else(|error| panic!("{error}"));
    let judge = |found: &'static builtin::Builtin| {
        let manifest = read_manifest(found.bytes).ok()?;
        let default = |setting: &tunebox_package::Setting| Some((setting.name.clone(), setting.default.clone()?));
        let settings: Vec<_> = manifest.settings.iter().map(default).collect::<Option<_>>()?;
        let limits = Limits { verifier_seconds: 20.0, ..Limits::default() };
        let verifier = engine.admit_verifier(found.bytes, found.name, &limits).ok()?;
        Some((found.name, Judge::new(verifier, &settings).ok()?))
    };
    let judges: Vec<_> = builtin::verifiers().iter().filter_map(judge).collect();
    assert!(judges.len() > 6, "{} verifiers", judges.len());
    judges
}

/// A verdict or none: no verifier gives up on a text. The answer stands behind the first line that is `|`.
fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (completion, answer) = text.split_once("\n|\n").unwrap_or((&text, &text));
    JUDGES.with_borrow_mut(|judges| {
        for (name, judge) in judges {
            if let Verdict::Failed(reason) = judge.verdict("", completion, answer, None) {
                panic!("`{name}`: {reason}");
            }
        }
    });
}
