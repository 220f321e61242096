//! Completions that the model sampled for a method: token rows, log-probabilities, and how each ended.

use std::sync::Arc;

use tunebox_compute::budget::Reservation;
use tunebox_compute::{Device, Tensor};
use tunebox_foundation::explain::ensure;
use tunebox_model::error::Error;
use tunebox_model::generate::Completion;
use tunebox_model::rows::Rows;

/// The most bytes of decoded completions that one call of `judge` keeps for the next verifier.
pub const DECODED_BYTES: usize = 1 << 20;

/// Prompts with their completions.
#[derive(Debug)]
pub struct Completions {
    /// The prompts that were continued.
    pub prompts: Arc<Rows>,
    /// Rows of prompt and completion; the completion's tokens are the targets.
    pub rows: Arc<Rows>,
    /// For each row, the index of the prompt that it continues.
    pub group: Vec<u32>,
    /// For each row, whether the completion ended by itself, or by the environment.
    pub finished: Vec<bool>,
    /// For each row, the reward that the environment gave.
    pub rewards: Vec<Option<f32>>,
    /// For each row, the log-probability of each token of its completion; 0 for the tokens of replies.
    logprobs: Vec<Vec<f32>>,
    /// The reservation of the bytes of these completions.
    _bytes: Option<Reservation>,
}

impl Completions {
    /// Joins each completion to its prompt as one row. `completions` holds equally many completions for each prompt, in
    /// the order of the prompts. The targets of a row are the tokens that the model wrote, not the tokens of replies.
    /// Reserves no bytes.
    ///
    /// # Errors
    /// When the number of completions is not a multiple of the number of prompts, or not 0 without prompts.
    pub fn new(prompts: Arc<Rows>, completions: Vec<Completion>) -> Result<Self, Error> {
        let each = completions.len().checked_div(prompts.count()).unwrap_or(0);
        let (count, over) = (completions.len(), prompts.count());
        let uneven = || Error::Argument(format!("`{count}` completions do not divide over `{over}` prompts"));
        ensure(each * over == count, uneven)?;
        let (mut ids, mut targets, mut group) = (Vec::new(), Vec::new(), Vec::new());
        let continued = prompts.ids.iter().zip(0_u32..).flat_map(|prompt| std::iter::repeat_n(prompt, each));
        for (completion, (prompt, number)) in completions.iter().zip(continued) {
            ids.push([prompt.as_slice(), &completion.ids].concat());
            let mut marks = vec![false; prompt.len()];
            marks.resize(prompt.len() + completion.ids.len(), true);
            for reply in &completion.replies {
                marks.iter_mut().skip(prompt.len() + reply.start).take(reply.len()).for_each(|mark| *mark = false);
            }
            targets.push(marks);
            group.push(number);
        }
        let rows = Arc::new(Rows::new(ids, targets)?);
        let (finished, rewards) = completions.iter().map(|completion| (completion.finished, completion.reward)).unzip();
        let logprobs = completions.into_iter().map(|completion| completion.logprobs).collect();
        Ok(Self { prompts, rows, group, finished, rewards, logprobs, _bytes: None })
    }

    /// Attaches the reservation that holds the bytes of these completions until they are dropped.
    pub(crate) fn with_reservation(mut self, bytes: Reservation) -> Self {
        self._bytes = Some(bytes);
        self
    }

    /// Returns the token ids of row `row` without its prompt; empty if there is no such row.
    #[must_use]
    pub fn completion(&self, row: usize) -> &[u32] {
        let ids = self.rows.ids.get(row).map_or(&[][..], Vec::as_slice);
        ids.get(self.completion_start(row)..).unwrap_or(&[])
    }

    /// Returns the token ids of row `row` after the last one that is no target: what the model wrote last. Empty if
    /// there is no such row.
    #[must_use]
    pub fn last_turn(&self, row: usize) -> &[u32] {
        let marks = self.rows.targets.get(row).map_or(&[][..], Vec::as_slice);
        let start = marks.iter().rposition(|mark| !mark).map_or(0, |last| last + 1);
        self.rows.ids.get(row).and_then(|ids| ids.get(start..)).unwrap_or(&[])
    }

    /// Returns the index of the first completion token in row `row`: the length of its prompt; 0 if there is no such
    /// row.
    fn completion_start(&self, row: usize) -> usize {
        let prompt = self.group.get(row).and_then(|group| self.prompts.ids.get(*group as usize));
        prompt.map_or(0, Vec::len)
    }

    /// Returns the log-probability of each sampled token under the distribution that it was sampled from, at the
    /// token's position: `[rows, width]`, `f32`, 0 at prompt tokens and padding. `width` is the length of the longest
    /// row.
    pub(crate) fn logprob_tensor(&self, device: &Device) -> Result<Tensor, Error> {
        let (count, width) = (self.rows.count(), self.rows.width());
        let mut padded = vec![0.0f32; count * width];
        for (row, logprobs) in self.logprobs.iter().enumerate() {
            let start = row * width + self.completion_start(row);
            if let Some(places) = padded.get_mut(start..start + logprobs.len()) {
                places.copy_from_slice(logprobs);
            }
        }
        Ok(Tensor::from_vec(padded, (count, width), device)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Completions {
        let prompts = Arc::new(Rows::new(vec![vec![1, 2], vec![3]], vec![vec![false; 2], vec![false]]).unwrap());
        let one = |ids: &[u32], finished| Completion {
            ids: ids.to_vec(),
            logprobs: ids.iter().map(|id| -(*id as f32)).collect(),
            finished,
            ..Completion::default()
        };
        let completions = vec![one(&[7], true), one(&[8, 9], false), one(&[7, 7, 7], true), one(&[9], true)];
        Completions::new(prompts, completions).unwrap()
    }

    #[test]
    fn the_mask_marks_the_completion_and_nothing_of_the_prompt() {
        let written = written();
        assert_eq!(written.rows.ids[1], [1, 2, 8, 9]);
        assert_eq!(written.rows.targets[1], [false, false, true, true]);
        assert_eq!(written.group, [0, 0, 1, 1]);
        assert_eq!(written.completion(2), [7, 7, 7]);
    }

    #[test]
    fn log_probabilities_stand_at_their_tokens_and_the_padding_is_zero() {
        let found = written().logprob_tensor(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(found[0], [0.0, 0.0, -7.0, 0.0]);
        assert_eq!(found[2], [0.0, -7.0, -7.0, -7.0]);
    }

    #[test]
    fn tokens_of_replies_are_no_targets_and_the_last_turn_is_what_follows_them() {
        let prompts = Arc::new(Rows::new(vec![vec![1, 2]], vec![vec![false; 2]]).unwrap());
        let ids = vec![7, 8, 3, 4, 9];
        let one = Completion { logprobs: vec![-1.0; 5], ids, replies: vec![1..2, 3..4], ..Completion::default() };
        let written = Completions::new(prompts, vec![one]).unwrap();
        assert_eq!(written.rows.targets[0], [false, false, true, false, true, false, true]);
        assert_eq!((written.completion(0).len(), written.last_turn(0)), (5, &[9][..]));
    }

    #[test]
    fn completions_that_do_not_divide_over_the_prompts_are_refused() {
        let prompts = Arc::new(Rows::new(vec![vec![1], vec![2]], vec![vec![false], vec![false]]).unwrap());
        let one = Completion { ids: vec![3], logprobs: vec![0.0], finished: true, ..Completion::default() };
        assert!(Completions::new(prompts, vec![one]).is_err());
    }
}
