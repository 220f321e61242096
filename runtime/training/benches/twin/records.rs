//! Synthetic records: seeded random tokens, the second half of each row a target. Rows have unequal lengths, but
//! those of one step are those of any other, so that all steps have the same to do.

use std::collections::BTreeMap;

use tunebox_compute::random::Stream;
use tunebox_model::chat::Encoded;
use tunebox_sandbox::Batch;
use tunebox_training::data::{Dataset, Example, Report, Shape, window};

use super::Outcome;

/// How many records a batch has, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Records of a batch.
    pub(crate) batch: usize,
    /// Tokens of the longest row; the shortest has half as many.
    pub(crate) sequence: usize,
    /// Ids are below this.
    pub(crate) vocabulary: usize,
}

/// Generates the batch of a step with random tokens; the same step gives the same batch.
pub(crate) fn batch(shape: Shape, sizes: Sizes, step: usize) -> Outcome<Batch> {
    let mut stream = Stream::new(step as u64, "twin");
    let examples: Vec<Example> = (0..sizes.batch)
        .map(|record| Example {
            sides: (0..shape.sides().len()).map(|side| row(&mut stream, sizes, record + side)).collect(),
            columns: BTreeMap::new(),
            question: None,
            line: record as u64 + 1,
        })
        .collect();
    let report = Report { length: sizes.sequence, longest: sizes.sequence, ..Report::default() };
    let (digest, token_digest) = (String::new(), String::new());
    let data = Dataset { name: "made up".into(), shape, examples, report, digest, token_digest };
    let window = window(&data, &[(0..sizes.batch).collect()])?;
    Ok(window.batches.into_iter().next().ok_or("a window without a batch")?)
}

/// Generates a row of random tokens whose second half are targets. Lengths fall evenly from `sequence` at place 0 to
/// half of it at the last place of a batch, and repeat after that.
fn row(stream: &mut Stream, sizes: Sizes, place: usize) -> Encoded {
    let half = (sizes.sequence / 2).max(1);
    let length = sizes.sequence - (sizes.sequence - half) * (place % sizes.batch) / (sizes.batch - 1).max(1);
    let ids: Vec<u32> = (0..length).map(|_| (stream.next_u64() % sizes.vocabulary.max(1) as u64) as u32).collect();
    let targets = (0..length).map(|place| place >= length / 2 && place > 0).collect();
    Encoded { ids, targets, merged: false }
}
