//! Compares the log-probabilities of an exported model with those of the model that it was made from.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_foundation::explain::Explanation;

use crate::error::Result;
use crate::policy::{Policy, View};
use crate::rows::Rows;

/// The text on which models are compared: prose, numbers, code and letters beyond ASCII. No model was trained on it.
const TEXT: &str = "The Rhine rises in the Swiss Alps, passes Basel, Mainz and Cologne, and reaches the sea near \
    Rotterdam after 1,233 kilometers. What is 17 + 25? It is 42.\n\nfn area(width: f32, height: f32) -> f32 {\n    \
    width * height\n}\n\nDer Fluß führt im Frühjahr mehr Wasser; le café est naïf, 東京は大きい。";

/// The most tokens of [`TEXT`] that are compared, including the first, which has no log-probability.
const MAX_TOKENS: usize = 192;

/// How far the log-probabilities of two models are apart on a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The number of compared tokens.
    pub tokens: usize,
    /// The largest absolute difference of a token's log-probability, in nats; not a number if one of the models gives
    /// none.
    pub largest: f32,
    /// The mean absolute difference, in nats.
    pub mean: f32,
}

impl Difference {
    /// Returns `self` if the largest difference of log-probabilities is at most `limit`, in nats.
    ///
    /// # Errors
    /// When the largest difference is above `limit` or NaN.
    pub(super) fn within(self, limit: f32) -> Result<Self> {
        let Self { tokens, largest, .. } = self;
        if largest <= limit {
            return Ok(self);
        }
        let what = format!("the exported model is not the one of the run: log-probabilities differ by up to {largest}");
        let why = format!("this format keeps them within {limit}, measured on {tokens} tokens");
        let hint = "choose a `--type` with more bits; if the difference stays, report it as a bug";
        Err(Explanation::new("export", what).with_why(why).with_hint(hint).into())
    }
}

/// Compares the log-probabilities of two policies on the tokens of [`TEXT`], or on a fixed list of tokens if `policy`
/// has no tokenizer.
///
/// # Errors
/// When both have a tokenizer and they encode the text differently, or one fails to score it.
pub(super) fn compare(policy: &Policy, written: &Policy) -> Result<Difference> {
    let ids = tokens_to_compare(policy)?;
    if written.model().tokenizer.is_some() && tokens_to_compare(written)? != ids {
        let what = "the exported model is not the one of the run: its tokenizer gives other tokens";
        let hint = "export with `--to hf`, which keeps the tokenizer's own files, and report this as a bug";
        return Err(Explanation::new("export", what).with_hint(hint).into());
    }
    let (one, other) = (logprobs(policy, &ids)?, logprobs(written, &ids)?);
    let differences: Vec<f32> = one.iter().zip(&other).map(|(one, other)| (one - other).abs()).collect();
    // `max` would drop a difference that is no number.
    let larger = |largest: f32, next: &f32| if next.is_nan() || *next > largest { *next } else { largest };
    let largest = differences.iter().fold(0.0, larger);
    let mean = differences.iter().sum::<f32>() / differences.len().max(1) as f32;
    Ok(Difference { tokens: differences.len(), largest, mean })
}

/// The tokens to compare: those of [`TEXT`] by the model's tokenizer, special ids included; a fixed list of ids if it
/// has none. At most [`MAX_TOKENS`], and at most as many as the model takes.
fn tokens_to_compare(policy: &Policy) -> Result<Vec<u32>> {
    let model = policy.model();
    let mut ids = match &model.tokenizer {
        Some(tokenizer) => tokenizer.encode(TEXT, true)?,
        None => (0..MAX_TOKENS).map(|at| (at * 7919 % model.configuration.vocabulary) as u32).collect(),
    };
    ids.truncate(MAX_TOKENS.min(model.configuration.max_positions));
    Ok(ids)
}

/// The log-probability under the policy, in nats, of each token after the first, given the tokens before it.
fn logprobs(policy: &Policy, ids: &[u32]) -> Result<Vec<f32>> {
    let mut targets = vec![true; ids.len()];
    targets.iter_mut().take(1).for_each(|target| *target = false);
    let rows = Arc::new(Rows::new(vec![ids.to_vec()], vec![targets])?);
    let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
    let row = scored.tap(Tap::Logprob)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(row.into_iter().skip(1).collect())
}
