//! Holds back a part of the training data for validation.

use std::collections::{HashMap, HashSet};

use tunebox_compute::random::Stream;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::format::pluralize;

use super::super::encode::Example;
use super::{Dataset, token_digest};

impl Dataset {
    /// Moves a part of the examples, drawn by `seed`, into a data set of their own: the share `amount` of them if it is
    /// below 1, at least one, else so many. Examples with equal rows, such as the copies of a file with a weight, count
    /// once: they are all held back, as one example, or none of them is. Without rows, every record counts.
    ///
    /// # Errors
    /// An amount that is neither a share nor a number of records, or that leaves nothing to learn from.
    pub(crate) fn hold_back(&mut self, amount: f64, seed: u64) -> Result<Self, Box<Explanation>> {
        check_amount(amount)?;
        let examples = std::mem::take(&mut self.examples);
        let mut numbers = HashMap::new();
        let groups: Vec<usize> = examples
            .iter()
            .map(|example| {
                let next = numbers.len();
                *numbers.entry(content(example)).or_insert(next)
            })
            .collect();
        let count = numbers.len();
        let wanted = if amount < 1.0 { (amount * count as f64).round().max(1.0) } else { amount } as usize;
        if wanted >= count {
            let what = format!("`data.validation` holds back {wanted} of {}", pluralize(count as u64, "record"));
            let hint = "hold back fewer, or name a file of other records";
            return Err(Explanation::new("data", what).with_why("none is left to learn from").with_hint(hint).into());
        }
        let drawn = Stream::new(seed, "data/validation").permutation(count).into_iter().take(wanted);
        // A group leaves the set with its first example, so that the copies of it are in neither data set.
        let mut waiting: HashSet<usize> = drawn.map(|group| group as usize).collect();
        let chosen = waiting.clone();
        let mut held_back = Vec::with_capacity(wanted);
        for (example, group) in examples.into_iter().zip(groups) {
            if !chosen.contains(&group) {
                self.examples.push(example);
            } else if waiting.remove(&group) {
                held_back.push(example);
            }
        }
        self.report.count_tokens(&self.examples);
        self.report.held_back = wanted;
        self.token_digest = token_digest(&self.examples);
        let name = format!("{} held back of {}", pluralize(wanted as u64, "record"), self.name);
        let mut report = self.report.clone();
        report.count_tokens(&held_back);
        let digests = (self.digest.clone(), token_digest(&held_back));
        Ok(Self::of_examples(name, self.shape, held_back, report, digests))
    }
}

/// Checks that an amount to hold back is a share between 0 and 1, or a whole number from 1 on.
///
/// # Errors
/// Any other number.
pub(crate) fn check_amount(amount: f64) -> Result<(), Box<Explanation>> {
    if amount > 0.0 && (amount < 1.0 || amount.fract() == 0.0) {
        return Ok(());
    }
    let what = format!("{amount} is neither a share of the records between 0 and 1 nor a number of them");
    let hint = "`validation = 0.1` holds back a tenth of the records, `validation = 200` that many";
    Err(Explanation::new("config", what).with_hint(hint).into())
}

/// What makes two examples equal: their rows of tokens, or without rows the index of the record.
fn content(example: &Example) -> (Option<u32>, Vec<&[u32]>) {
    let rows: Vec<&[u32]> = example.sides.iter().map(|side| side.ids.as_slice()).collect();
    (rows.is_empty().then_some(example.index), rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tunebox_model::chat::Encoded;

    use super::super::super::shape::Shape;
    use super::*;

    /// A data set with a record of two tokens for each of `numbers`, the number and 0.
    fn data(numbers: impl IntoIterator<Item = u32>) -> Dataset {
        let row = |number| Encoded { ids: vec![number, 0], targets: vec![false, true], merged: false };
        let examples = numbers.into_iter().enumerate();
        let examples = examples.map(|(index, number)| Example {
            sides: vec![row(number)],
            index: index as u32,
            ..Example::default()
        });
        Dataset::of_examples("a.jsonl".into(), Shape::Text, examples.collect(), Default::default(), Default::default())
    }

    fn numbers(data: &Dataset) -> Vec<u32> {
        data.examples.iter().map(|example| example.sides[0].ids[0]).collect()
    }

    #[test]
    fn a_share_or_a_number_of_records_is_drawn_by_the_seed_and_gone_from_the_rest() {
        let hold_back = |amount, seed| {
            let mut data = data(0..50);
            let held_back = data.hold_back(amount, seed).unwrap();
            assert!(numbers(&data).is_sorted(), "the order of the files stays");
            let all: BTreeSet<u32> = numbers(&data).into_iter().chain(numbers(&held_back)).collect();
            assert_eq!((all.len(), data.examples.len() + held_back.examples.len()), (50, 50));
            assert_eq!(
                (data.report.held_back, data.report.tokens),
                (held_back.examples.len(), 2 * data.examples.len())
            );
            assert_ne!(data.token_digest, held_back.token_digest);
            numbers(&held_back)
        };
        assert_eq!([0.1, 7.0, 0.001, 1.0].map(|amount| hold_back(amount, 1).len()), [5, 7, 1, 1]);
        assert_eq!(hold_back(0.1, 1), hold_back(5.0, 1));
        assert_ne!(hold_back(0.1, 1), hold_back(0.1, 2));
    }

    #[test]
    fn equal_records_are_held_back_together_as_one() {
        let mut data = data((0..30).chain(0..30).chain(10..20));
        let held_back = data.hold_back(0.5, 1).unwrap();
        let (kept, held_back): (BTreeSet<u32>, BTreeSet<u32>) =
            (numbers(&data).into_iter().collect(), numbers(&held_back).into_iter().collect());
        assert_eq!((kept.len(), held_back.len()), (15, 15));
        assert!(kept.is_disjoint(&held_back));
        assert!(data.examples.len() >= 30, "the copies of what is learned stay");
    }

    #[test]
    fn records_without_rows_count_each() {
        let mut data = data(0..10);
        data.examples.iter_mut().for_each(|example| example.sides.clear());
        assert_eq!(data.hold_back(0.2, 1).unwrap().examples.len(), 2);
        assert_eq!(data.examples.len(), 8);
    }

    #[test]
    fn an_amount_must_leave_something_and_be_a_share_or_a_number() {
        let problem = data(0..10).hold_back(10.0, 1).unwrap_err();
        assert_eq!(problem.what, "`data.validation` holds back 10 of 10 records");
        for amount in [0.0, -1.0, 1.5, f64::NAN] {
            let problem = data(0..10).hold_back(amount, 1).unwrap_err();
            assert!(problem.what.contains("neither a share"), "{}", problem.what);
        }
    }
}
