//! Fuzz targets for the parts of the runtime that read untrusted bytes or answer untrusted calls.
//!
//! A target is one file of `targets/`: a function that takes any bytes and must return. libFuzzer
//! calls it (`libfuzzer/`), a plain loop calls it (`main.rs`), and the tests call it on the committed
//! inputs of `corpus/` and on thousands of generated ones (`../fuzz.rs`). `words/` has words for mutations to insert.

#![expect(clippy::print_stderr, reason = "a finding is reported where the target runs")]

mod allocation;
mod conversation;
mod corpus;
mod features;
mod mutation;
mod scratch;
mod targets;
mod trust_file;

use std::path::Path;
use std::time::{Duration, Instant};

pub use allocation::Counting;
pub use corpus::{corpus, folder};
pub use features::take_new_features;
pub use mutation::Mutator;
pub use targets::TARGETS;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its file, and of its folder in `corpus/`.
    pub name: &'static str,
    /// Runs the target on an input. Returns whatever the bytes are; panics if something does not hold that must.
    pub run: fn(&[u8]),
    /// Bytes of the longest generated input.
    pub longest: usize,
    /// Number of inputs that the tests generate.
    pub quick: u64,
}

/// The target of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Results of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of executions.
    pub inputs: u64,
    /// Number of inputs that reached a new feature.
    pub kept: u64,
    /// Duration of the slowest execution.
    pub slowest: Duration,
}

/// Runs a target on inputs generated from its corpus, `seed` and their number (`first`, `first` + 1, …) while `more`
/// returns true, which gets the number of executions. Also mutates inputs that reached a new feature, and writes them to
/// the folder in `TUNEBOX_FUZZ_KEPT` if that is set. The same numbers give the same inputs on every machine.
pub fn search(target: &Target, seed: u64, first: u64, mut more: impl FnMut(u64) -> bool) -> Tally {
    let mut mutator = Mutator::new(target, seed, corpus(target.name));
    let mut tally = Tally::default();
    while more(tally.inputs) {
        let input = mutator.input(first + tally.inputs);
        let begun = Instant::now();
        let witness = Witness { target: target.name, input: &input };
        (target.run)(&input);
        drop(witness);
        tally.slowest = tally.slowest.max(begun.elapsed());
        tally.inputs += 1;
        if take_new_features() {
            if let Some(folder) = std::env::var_os("TUNEBOX_FUZZ_KEPT") {
                let path = Path::new(&folder).join(format!("{seed}-{}", first + tally.inputs));
                std::fs::write(&path, &input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
            mutator.keep(input);
            tally.kept += 1;
        }
    }
    tally
}

/// Writes the current input to a file if the target panics.
struct Witness<'input> {
    target: &'static str,
    input: &'input [u8],
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = std::env::temp_dir().join(format!("tunebox-fuzz-{}-{}", self.target, self.input.len()));
            let kept = std::fs::write(&path, self.input);
            eprintln!("`{}` does not take {}: {kept:?}", self.target, path.display());
        }
    }
}
