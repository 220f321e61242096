//! The batches of one update (a window), with the counts of targets, tokens and records of the whole window.
//!
//! A loss is divided by these counts, so accumulation over micro-batches gives the gradient of one large batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_model::chat::Encoded;
use tunebox_model::rows::Rows;
use tunebox_sandbox::Batch;

use super::dataset::Dataset;
use super::encode::Example;
use crate::error::Error;

/// The batches of one update.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// One batch for each call of `step`.
    pub batches: Vec<Batch>,
    /// Tokens of all rows.
    pub tokens: u64,
    /// Target tokens of all rows.
    pub targets: u64,
}

/// Builds the batches of one update, one for each list of `micro_batches`, which holds indices of `data.examples`. Each
/// batch gets the counts of the whole window: for each side the targets and the tokens without the first of each row,
/// and the number of records. In the batches, counts of zero become 1, since losses are divided by them. Panics for an
/// index that `data` does not have.
///
/// # Errors
/// Rows whose ids and targets differ in length, which tokenizing rules out.
pub fn window(data: &Dataset, micro_batches: &[Vec<usize>]) -> Result<Window, Error> {
    let mut window = Window::default();
    let mut sources = completion_sources(micro_batches, data.examples.len()).into_iter();
    for indices in micro_batches {
        let sources: Vec<usize> = sources.by_ref().take(indices.len()).collect();
        window.batches.push(build_batch(data, indices, &sources)?);
    }
    let (mut targets, mut predicted) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
    let mut size = 0;
    for batch in &window.batches {
        size += batch.size;
        for (side, rows) in &batch.sides {
            *targets.entry(side.clone()).or_default() += saturating_u32(rows.targets());
            *predicted.entry(side.clone()).or_default() +=
                rows.ids.iter().map(|ids| saturating_u32(ids.len()).saturating_sub(1)).sum::<u32>();
            window.tokens += rows.tokens() as u64;
        }
    }
    window.targets = targets.values().map(|count| u64::from(*count)).sum();
    targets.values_mut().chain(predicted.values_mut()).for_each(|count| *count = (*count).max(1));
    for batch in &mut window.batches {
        batch.window_targets.clone_from(&targets);
        batch.window_tokens.clone_from(&predicted);
        batch.window_size = size.max(1);
    }
    if let Some(last) = window.batches.last_mut() {
        last.ends_window = true;
    }
    Ok(window)
}

/// Builds one batch of the examples with the given indices, without the counts of its window. `sources` holds, for each
/// of `indices`, the index of the example whose completion its row of the side `mismatched` gets. Columns are all
/// numeric fields of the file, NaN for an example without the field. Empty rows of other sides are left out.
fn build_batch(data: &Dataset, indices: &[usize], sources: &[usize]) -> Result<Batch, Error> {
    let examples: Vec<_> = indices.iter().map(|index| &data.examples[*index]).collect();
    let mut sides = Vec::new();
    for (number, side) in data.shape.sides().iter().enumerate() {
        let rows = if *side == MISMATCHED_SIDE {
            collect_rows(examples.iter().zip(sources).map(|(example, source)| {
                replace_completion(&example.sides[0], &data.examples[*source].sides[0], data.report.length)
            }))?
        } else {
            // An instruction may lack one of its sides.
            let present = examples.iter().map(|example| &example.sides[number]).filter(|row| !row.ids.is_empty());
            collect_rows(present.cloned())?
        };
        sides.push(((*side).to_owned(), rows));
    }
    let column = |name: &String| {
        let numbers = examples.iter().map(|example| example.columns.get(name).copied().unwrap_or(f32::NAN));
        (name.clone(), numbers.collect())
    };
    let columns = data.columns.iter().map(column).collect();
    let token_column = |name: &String| (name.clone(), build_token_column(name, data, &examples));
    Ok(Batch {
        sides,
        size: saturating_u32(examples.len()),
        columns,
        token_columns: data.token_columns.iter().map(token_column).collect(),
        indices: examples.iter().map(|example| example.index).collect(),
        questions: examples.iter().filter_map(|example| example.question.clone()).collect(),
        ..Batch::default()
    })
}

/// Collects the numbers of a column for the targets of each example, NaN for those of an example without the column.
/// Returns the reason as an error if any record of the data has a list of this name of the wrong length, so that
/// already the first step fails.
fn build_token_column(name: &str, data: &Dataset, examples: &[&Example]) -> Result<Vec<Vec<f32>>, String> {
    if let Some(reason) = data.wrong_lists.get(name) {
        return Err(reason.clone());
    }
    let numbers = |example: &&Example| match example.token_columns.get(name) {
        Some(Ok(numbers)) => numbers.clone(),
        _ => vec![f32::NAN; example.targets()],
    };
    Ok(examples.iter().map(numbers).collect())
}

/// Collects tokenized rows into one [`Rows`] for the model, in which the first token of a row is never a target. Fails
/// if a row has another number of ids than of target marks.
pub(crate) fn collect_rows(encoded: impl Iterator<Item = Encoded>) -> Result<Arc<Rows>, Error> {
    let (ids, targets) = encoded.map(|row| (row.ids, row.targets)).unzip();
    Ok(Arc::new(Rows::new(ids, targets)?))
}

/// Converts a count to `u32`; a larger count becomes `u32::MAX`.
fn saturating_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The side of unpaired records with prompts and completions of other records, as a baseline for the method.
///
/// Each prompt gets the completion of the record before it in the window, as TRL rotates the completions of a batch;
/// the first prompt gets that of the last record. A window of one record uses the record before it in the file.
const MISMATCHED_SIDE: &str = "mismatched";

/// Returns, for each record of a window, in order, the index of the record whose completion its `mismatched` row gets:
/// the one before it in the window, and for the first the last. `window` holds indices of records by micro-batch; the
/// file has `total` records. A record alone in its window gets the completion of the record before it in the file,
/// wrapping around.
fn completion_sources(window: &[Vec<usize>], total: usize) -> Vec<usize> {
    let all: Vec<usize> = window.concat();
    match all.as_slice() {
        [] => Vec::new(),
        [only] => vec![(only + total - 1) % total],
        [.., last] => std::iter::once(*last).chain(all.iter().copied()).take(all.len()).collect(),
    }
}

/// Makes a row of the prompt of one row and the completion of another, cut to `length` tokens. Both arguments are whole
/// rows: of `prompt` the tokens before its first target are taken, of `completion` those from its first target on. A
/// row without targets is all prompt.
fn replace_completion(prompt: &Encoded, completion: &Encoded, length: usize) -> Encoded {
    let start = |row: &Encoded| row.targets.iter().position(|target| *target).unwrap_or(row.ids.len());
    let (end, begin) = (start(prompt), start(completion));
    let mut ids = [&prompt.ids[..end], &completion.ids[begin..]].concat();
    let mut targets = [&prompt.targets[..end], &completion.targets[begin..]].concat();
    ids.truncate(length);
    targets.truncate(length);
    Encoded { ids, targets, merged: false }
}

#[cfg(test)]
mod tests {
    use tunebox_model::chat::Encoded;

    use crate::data::{Report, Shape};

    use super::*;

    /// One example for each pair of tokens and targets; the last tokens are targets.
    fn data(sizes: &[(usize, usize)]) -> Dataset {
        let example = |(length, targets): &(usize, usize)| Example {
            sides: vec![Encoded {
                ids: vec![7; *length],
                targets: (0..*length).map(|index| index >= length - targets).collect(),
                merged: false,
            }],
            columns: BTreeMap::from([("weight".into(), *length as f32)]),
            line: 1,
            ..Example::default()
        };
        let examples = sizes.iter().map(example).collect();
        let report = Report { length: 64, ..Report::default() };
        Dataset::of_examples("test".into(), Shape::Text, examples, report, Default::default())
    }

    #[test]
    fn every_micro_batch_knows_the_targets_and_records_of_its_whole_window() {
        let data = data(&[(5, 2), (3, 1), (9, 8), (4, 3)]);
        let window = window(&data, &[vec![0, 1], vec![2], vec![3]]).unwrap();

        assert_eq!((window.tokens, window.targets), (21, 14));
        for batch in &window.batches {
            assert_eq!((batch.window_targets["example"], batch.window_size), (14, 4));
            assert_eq!(batch.window_tokens["example"], 4 + 2 + 8 + 3);
        }
        assert_eq!(window.batches.iter().map(|batch| batch.size).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn the_mismatched_side_is_made_of_the_whole_window() {
        let mut data = data(&[(5, 2), (3, 1), (9, 8)]);
        data.shape = Shape::Unpaired;
        let window = window(&data, &[vec![0, 1], vec![2]]).unwrap();
        let lengths = |batch: &Batch| batch.sides[1].1.ids.iter().map(Vec::len).collect::<Vec<_>>();

        assert_eq!(window.batches[0].sides[1].0, "mismatched");
        assert_eq!(lengths(&window.batches[0]), [3 + 8, 2 + 2]);
        assert_eq!(lengths(&window.batches[1]), [1 + 1]);
        assert_eq!(window.batches[0].window_targets["mismatched"], 11);
    }

    #[test]
    fn a_window_without_a_target_divides_by_one() {
        let window = window(&data(&[(1, 0)]), &[vec![0]]).unwrap();
        assert_eq!(window.batches[0].window_targets["example"], 1);
    }

    #[test]
    fn columns_are_in_the_order_of_the_rows_and_absent_numbers_are_nan() {
        let mut data = data(&[(5, 2), (3, 1)]);
        data.examples[0].columns.clear();
        let window = window(&data, &[vec![1, 0], vec![0]]).unwrap();
        let [both, absent] = [0, 1].map(|batch| &window.batches[batch].columns["weight"]);

        assert!(both[0] == 3.0 && both[1].is_nan());
        assert!(absent[0].is_nan(), "a column of the file is one of every batch");
    }

    #[test]
    fn a_column_for_tokens_has_the_numbers_of_the_targets_and_nan_for_a_record_without_it() {
        let mut data = data(&[(5, 2), (3, 1)]);
        data.token_columns.insert("advantage".into());
        data.examples[0].token_columns.insert("advantage".into(), Ok(vec![0.5, -1.0]));
        let window = window(&data, &[vec![1, 0]]).unwrap();
        let column = window.batches[0].token_columns["advantage"].as_ref().unwrap();
        assert!(column[0].len() == 1 && column[0][0].is_nan());
        assert_eq!(column[1], [0.5, -1.0]);
    }

    #[test]
    fn a_list_of_another_length_anywhere_in_the_data_is_told_in_the_first_window() {
        let mut data = data(&[(5, 2), (3, 1)]);
        data.token_columns.insert("advantage".into());
        data.wrong_lists.insert("advantage".into(), "line 9 is wrong".into());
        let window = window(&data, &[vec![0]]).unwrap();
        assert_eq!(window.batches[0].token_columns["advantage"].as_ref().unwrap_err(), "line 9 is wrong");
    }

    fn row(ids: &[u32], targets: &[u8]) -> Encoded {
        Encoded { ids: ids.to_vec(), targets: targets.iter().map(|target| *target == 1).collect(), merged: false }
    }

    #[test]
    fn completions_move_on_by_one_record_over_all_micro_batches_or_in_the_file() {
        assert_eq!(completion_sources(&[vec![7, 2], vec![5]], 9), [5, 7, 2]);
        for (alone, source) in [(4, 3), (0, 8)] {
            assert_eq!(completion_sources(&[vec![alone]], 9), [source]);
        }
    }

    #[test]
    fn a_mixed_row_has_one_prompt_and_the_other_completion() {
        let one = row(&[1, 2, 3, 4], &[0, 0, 1, 1]);
        let other = row(&[5, 6, 7, 8, 9], &[0, 1, 1, 0, 1]);
        assert_eq!(replace_completion(&one, &other, 64), row(&[1, 2, 6, 7, 8, 9], &[0, 0, 1, 1, 0, 1]));
        assert_eq!(replace_completion(&one, &other, 3), row(&[1, 2, 6], &[0, 0, 1]));
    }
}
