//! What a worker says to the program that started it: one JSON document a line.

use tunebox_training::Error;

use crate::{Target, conversation};

pub(super) const TARGET: Target = Target { name: "worker", run, longest: 8 << 10, quick: 300 };

/// The end that the worker told of, or an error of the worker that says what it was.
fn run(bytes: &[u8]) {
    if let Err(error) = conversation::after_greeting(bytes) {
        let Error::Explained(explanation, _) = &error else { panic!("{error:?}") };
        assert_eq!(explanation.category, "worker", "{error:?}");
    }
}
