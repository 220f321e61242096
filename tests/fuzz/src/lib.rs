//! Fuzz targets for the parts of the runtime that take untrusted bytes or requests.
//!
//! A target is one file of `targets/`: a function that takes any bytes and must return. libFuzzer
//! calls it (`libfuzzer/`), a plain loop calls it (`main.rs`), and the tests call it on the committed
//! inputs of `corpus/` and on some thousands of made ones (`../fuzz.rs`).

#![expect(clippy::print_stderr, reason = "the person who runs a target is told where a failing input was kept")]

mod conversation;
mod corpus;
mod mutation;
mod scratch;
mod targets;
mod trust_file;

use std::time::{Duration, Instant};

pub use corpus::{corpus, folder};
pub use mutation::Mutator;
pub use targets::TARGETS;

/// Something that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its file, and of its folder in `corpus/`.
    pub name: &'static str,
    /// Takes an input. Returns, whatever the bytes are; a broken claim is a panic.
    pub run: fn(&[u8]),
    /// Words that inputs are made of, for mutations that hit more than bytes.
    pub words: &'static [&'static str],
    /// Bytes of the longest input that is made.
    pub longest: usize,
    /// Inputs that the tests make.
    pub quick: u64,
}

/// The target of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// What came of a loop over made inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Inputs that were taken.
    pub inputs: u64,
    /// The longest that one of them took.
    pub slowest: Duration,
}

/// Runs a target on inputs made from its corpus, `seed` and their number: `first`, `first` + 1, … for as long as
/// `more` says so. The same numbers are the same inputs on any machine.
pub fn search(target: &Target, seed: u64, first: u64, mut more: impl FnMut(u64) -> bool) -> Tally {
    let mutator = Mutator::new(target, seed, corpus(target.name));
    let mut tally = Tally::default();
    while more(tally.inputs) {
        let input = mutator.input(first + tally.inputs);
        let begun = Instant::now();
        let witness = Witness { target: target.name, input: &input };
        (target.run)(&input);
        drop(witness);
        tally.slowest = tally.slowest.max(begun.elapsed());
        tally.inputs += 1;
    }
    tally
}

/// Keeps an input that a target does not take.
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
