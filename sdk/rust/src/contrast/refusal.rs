//! How likely a model is to refuse, estimated from the first token of its answer.
//!
//! Arditi et al. 2024 (arXiv:2406.11717): with P the probability of the tokens that refusals begin with, the score of
//! a prompt is log P − log (1 − P). It takes one pass where judging answers takes one for each token.

use crate::model::{View, next_token};
use crate::tensor::All;
use crate::{Result, Rows};

/// Refusal of a set of prompts.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The mean score; above 0 where refusing is likelier than not.
    pub score: f32,
    /// The share of prompts whose score is above 0.
    pub rate: f32,
}

/// Estimates refusal of prompts that end where the answer begins; `tokens` are the ids that refusals begin with.
#[track_caller]
pub fn refusal(view: &View, prompts: &[Rows], tokens: &[u32]) -> Result<Refusal> {
    let (mut score, mut refused, mut count) = (0.0, 0.0, 0.0_f32);
    for rows in prompts {
        let chance = next_token(view, rows, tokens)?.exp().sum(1).clamp(Some(1e-6), Some(1.0 - 1e-6)); // [rows]
        let scores = chance.log() - (1.0 - &chance).log();
        score += scores.sum(All).item()?;
        refused += scores.greater(0.0).count(All).item()?;
        count += rows.count() as f32;
    }
    let count = count.max(1.0);
    Ok(Refusal { score: score / count, rate: refused / count })
}
