//! Data files of every format, in the layouts that are converted.

use tunebox_foundation::explain::Explain;
use tunebox_model::chat::Answers;
use tunebox_training::data::{Reading, Shape, preview};

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "data_file", run, longest: 4 << 10, quick: 2_000 };

/// The names of files; the first byte of an input chooses one.
const NAMES: [&str; 4] = ["input.jsonl", "input.json", "input.csv", "input.parquet"];

/// Records and what is wrong with the others, or an error that can be shown.
fn run(bytes: &[u8]) {
    let Some((first, content)) = bytes.split_first() else { return };
    with_file(NAMES[usize::from(*first) % NAMES.len()], content, |path, _| {
        let reading = Reading::new(Shape::all().collect(), 64);
        match preview(&[path.to_owned()], &reading, None, Answers::All, None) {
            Ok(shown) => assert!(shown.records > 0 && shown.report.skipped.iter().all(|one| !one.reason.is_empty())),
            Err(error) => drop(error.explanation()),
        }
    });
}
