//! Lines of data files: JSON objects in one of eight shapes.

use tunebox_training::data::{Record, Shape};

use crate::Target;

pub(super) const TARGET: Target = Target { name: "record", run, longest: 4 << 10, quick: 6_000 };

/// A record of any shape, of each shape alone, or a fault with a column inside the line.
fn run(line: &[u8]) {
    let characters = String::from_utf8_lossy(line).chars().count();
    let all: Vec<Shape> = Shape::all().collect();
    for wanted in std::iter::once(all.as_slice()).chain(all.chunks(1)) {
        if let Err((fault, column)) = Record::parse(line, wanted) {
            assert!((1..=characters + 1).contains(&column), "column {column} of {characters} characters");
            assert!(!fault.what.is_empty());
        }
    }
}
