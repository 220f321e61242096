//! Answers under prompts that they do not belong to: what a method compares with what it learns from.
//!
//! Each prompt gets the completion of the record before it in the accumulation window, as TRL rotates
//! the completions of a batch; the first gets that of the last. Where a window has one record only, the
//! record before it in the file stands in, so that a window is never mismatched with itself.

use tunebox_model::chat::Encoded;

/// The side of a batch that is made here and not read.
pub(super) const SIDE: &str = "mismatched";

/// For each record of a window, in order, the one whose completion it gets; `total` records are in the file.
pub(super) fn partners(places: &[Vec<usize>], total: usize) -> Vec<usize> {
    let all: Vec<usize> = places.concat();
    match all.as_slice() {
        [] => Vec::new(),
        [only] => vec![(only + total - 1) % total],
        [.., last] => std::iter::once(*last).chain(all.iter().copied()).take(all.len()).collect(),
    }
}

/// The prompt of one row and the completion of another, cut to `length` tokens.
pub(super) fn mixed(prompt: &Encoded, completion: &Encoded, length: usize) -> Encoded {
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
    fn completions_move_on_by_one_record_over_all_micro_batches() {
        assert_eq!(partners(&[vec![7, 2], vec![5]], 9), [5, 7, 2]);
    }

    #[test]
    fn a_record_alone_in_its_window_gets_the_completion_before_it_in_the_file() {
        assert_eq!(partners(&[vec![4]], 9), [3]);
        assert_eq!(partners(&[vec![0]], 9), [8]);
    }

    #[test]
    fn a_mixed_row_has_one_prompt_and_the_other_completion() {
        let one = row(&[1, 2, 3, 4], &[0, 0, 1, 1]);
        let other = row(&[5, 6, 7, 8, 9], &[0, 1, 1, 0, 1]);
        assert_eq!(mixed(&one, &other, 64), row(&[1, 2, 6, 7, 8, 9], &[0, 0, 1, 1, 0, 1]));
        assert_eq!(mixed(&one, &other, 3), row(&[1, 2, 6], &[0, 0, 1]));
    }
}
