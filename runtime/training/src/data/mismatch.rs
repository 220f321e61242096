//! The side `mismatched` of unpaired records: prompts with completions of other records, as a baseline for the method.
//!
//! Each prompt gets the completion of the record before it in the window, as TRL rotates the completions of a batch; the
//! first prompt gets that of the last record. A window of one record uses the record before it in the file.

use tunebox_model::chat::Encoded;

/// The name of the side.
pub(super) const SIDE: &str = "mismatched";

/// For each record of a window, in order, the index of the record whose completion its `mismatched` row gets: the one
/// before it in the window, and for the first the last. `window` holds indices of records by micro-batch; the file has
/// `total` records. A record alone in its window gets the completion of the record before it in the file, wrapping
/// around.
pub(super) fn completion_sources(window: &[Vec<usize>], total: usize) -> Vec<usize> {
    let all: Vec<usize> = window.concat();
    match all.as_slice() {
        [] => Vec::new(),
        [only] => vec![(only + total - 1) % total],
        [.., last] => std::iter::once(*last).chain(all.iter().copied()).take(all.len()).collect(),
    }
}

/// Joins the tokens of `prompt` before its first target and those of `completion` from its first target on, and cuts
/// the row to `length` tokens. A row without targets counts as prompt as a whole.
pub(super) fn combine(prompt: &Encoded, completion: &Encoded, length: usize) -> Encoded {
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
    use super::*;

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
        assert_eq!(combine(&one, &other, 64), row(&[1, 2, 6, 7, 8, 9], &[0, 0, 1, 1, 0, 1]));
        assert_eq!(combine(&one, &other, 3), row(&[1, 2, 6], &[0, 0, 1]));
    }
}
