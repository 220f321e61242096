//! Data sets of random tokens, for benchmarks and unit tests.

use tunebox_compute::random::Stream;
use tunebox_model::chat::Encoded;
use tunebox_sandbox::Question;

use super::{Dataset, Example, Report, Shape};
use crate::configuration::RandomRecords;

/// Generates a data set of one shape with random token ids below `vocabulary`; equal arguments give equal data. Rows
/// have `sizes.sequence` tokens, of which all but the first are targets; prompts have half as many tokens and no
/// targets. A row has at least one token. The `label` of unpaired records is 0 and 1 in turn. Digests are empty. `None`
/// for the shapes `Instructions` and `Contrast`, whose rows need not have equal length.
#[must_use]
pub fn random_dataset(shape: Shape, sizes: RandomRecords, vocabulary: usize) -> Option<Dataset> {
    let (rows, length, learned) = match shape {
        // The side `mismatched` of an unpaired record is built from the first.
        Shape::Messages | Shape::PromptCompletion | Shape::Text | Shape::Unpaired => (1, sizes.sequence, true),
        Shape::Preference => (2, sizes.sequence, true),
        Shape::Prompts => (1, sizes.sequence / 2, false),
        Shape::Instructions | Shape::Contrast => return None,
    };
    let mut stream = Stream::new(sizes.seed, "bench");
    let vocabulary = vocabulary.max(1) as u64;
    let mut row = || {
        let ids: Vec<u32> = (0..length.max(1)).map(|_| (stream.next_u64() % vocabulary) as u32).collect();
        let targets = (0..ids.len()).map(|at| learned && at > 0).collect();
        Encoded { ids, targets, merged: false }
    };
    let examples: Vec<Example> = (0..sizes.records)
        .map(|number| Example {
            sides: (0..rows).map(|_| row()).collect(),
            columns: [("label".to_owned(), (number % 2) as f32)]
                .into_iter()
                .filter(|_| shape == Shape::Unpaired)
                .collect(),
            question: (shape == Shape::Prompts).then(Question::default),
            index: number as u32,
            line: number as u64 + 1,
            ..Example::default()
        })
        .collect();
    let report = Report {
        lines: examples.len() as u64,
        tokens: examples.iter().map(Example::tokens).sum(),
        targets: examples.iter().map(Example::targets).sum(),
        longest: length,
        length: sizes.sequence,
        ..Report::default()
    };
    let name = "random".to_owned();
    Some(Dataset::of_examples(name, shape, examples, report, (String::new(), String::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_long_as_asked_for_and_the_same_every_time() {
        let sizes = RandomRecords { records: 3, sequence: 8, seed: 1 };
        let made = random_dataset(Shape::Preference, sizes, 5).unwrap();
        assert_eq!((made.report.tokens, made.report.targets), (48, 42));
        assert!(made.examples.iter().flat_map(|one| &one.sides).flat_map(|side| &side.ids).all(|id| *id < 5));
        assert_eq!(made.examples, random_dataset(Shape::Preference, sizes, 5).unwrap().examples);
        assert_eq!(random_dataset(Shape::Prompts, sizes, 5).unwrap().report.longest, 4);
        assert!(random_dataset(Shape::Contrast, sizes, 5).is_none());
    }
}
