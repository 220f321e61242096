//! Samples the next token from a row of logits that are already divided by the temperature: top-k, then top-p, then
//! min-p, then one draw. Sums are in `f64` and in a fixed order, so that a draw chooses the same token on every
//! machine. Logits on an accelerator stay there: it samples by the same rules, and only the chosen tokens are copied
//! back.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, SampledToken, SamplingOptions, TokenWeights};

use super::Sampling;
use super::sequence::Sequence;
use crate::error::Result;

/// Samples one token for every sequence from logits `[sequences, vocabulary]`, which are divided by the temperature
/// already. Takes one number of each sequence's random stream, also at temperature 0. Runs on the device of the logits
/// if that can sample and all tokens are allowed, and overwrites them there; else row by row on the CPU. Errors: a
/// logit is not finite.
pub(super) fn sample_tokens(
    logits: &Tensor,
    sampling: &Sampling,
    active: &mut [&mut Sequence],
) -> Result<Vec<SampledToken>> {
    let streams = active.iter().map(|sequence| &sequence.stream);
    let (top_k, top_p, min_p) = (sampling.top_k, sampling.top_p, sampling.min_p);
    let options = SamplingOptions { top_k, top_p, min_p, greedy: sampling.temperature == 0.0 };
    let there = match &sampling.allowed {
        None => fused::sample_tokens(logits, streams, &options)?,
        Some(_) => None,
    };
    // A token takes one draw of its stream wherever it is chosen.
    let draws: Vec<f64> = active.iter_mut().map(|sequence| sequence.next_uniform()).collect();
    match (there, &sampling.allowed) {
        (Some(chosen), _) => Ok(chosen),
        (None, None) => fused::map_rows(logits, |row, logits| sample_token(logits, sampling, draws[row])),
        (None, Some(ids)) => fused::map_rows(logits, |row, logits| sample_among(ids, logits, sampling, draws[row])),
    }
}

/// Samples one of the tokens `ids`, ascending and all in the vocabulary, as if the vocabulary had no others. Errors:
/// the logit of one of them is not finite.
fn sample_among(ids: &[u32], logits: &[f32], sampling: &Sampling, draw: f64) -> Result<SampledToken> {
    let allowed: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
    if !allowed.iter().all(|logit| logit.is_finite()) {
        // Names the token by its id, not by its place among the allowed ones.
        fused::token_weights(logits)?;
    }
    let chosen = sample_token(&allowed, sampling, draw)?;
    Ok(SampledToken { id: ids[chosen.id as usize], ..chosen })
}

/// Samples one token from one row of logits, already divided by the temperature, after the filters top-k, top-p and
/// min-p. `draw` is uniform in [0, 1). The token's log-probability is that among the tokens which the filters leave. At
/// temperature 0, takes the likeliest token, the lowest id of equals, without `draw` and filters, and its
/// log-probability among all tokens. Errors: a logit is not finite, or there are none.
pub(super) fn sample_token(logits: &[f32], sampling: &Sampling, draw: f64) -> Result<SampledToken> {
    let TokenWeights { best, weights, total } = fused::token_weights(logits)?;
    if sampling.temperature == 0.0 {
        return Ok(SampledToken { id: best, logprob: -total.ln() as f32 });
    }
    let open = sampling.top_k == 0 && sampling.top_p >= 1.0 && sampling.min_p <= 0.0;
    if open {
        return Ok(draw_token((0..).zip(weights.iter().copied().map(f64::from)), total, draw, best));
    }
    let kept = candidates(&weights, sampling);
    let kept = kept.iter().map(|id| (*id, f64::from(weights[*id as usize])));
    let total = kept.clone().map(|(_, weight)| weight).sum();
    Ok(draw_token(kept, total, draw, best))
}

/// Returns the first token at which the running sum of positive weights exceeds `draw · total`, with ln(weight / total)
/// as its log-probability. `weights` yields (token id, weight); `total` is the sum of the weights. If rounding keeps
/// the running sum from exceeding, returns the last token with a positive weight; if no weight is positive, `best` with
/// weight 1.
fn draw_token(weights: impl Iterator<Item = (u32, f64)>, total: f64, draw: f64, best: u32) -> SampledToken {
    let wanted = draw * total;
    let mut reached = 0.0;
    let mut chosen = (best, 1.0);
    for (id, weight) in weights {
        if weight <= 0.0 {
            continue;
        }
        reached += weight;
        chosen = (id, weight);
        if reached > wanted {
            break;
        }
    }
    SampledToken { id: chosen.0, logprob: (chosen.1 / total).ln() as f32 }
}

/// The token ids that top-k, then top-p, then min-p leave, by descending weight; ties by lower id. `weights` are the
/// probabilities by token id, relative to that of the likeliest token, whose weight is 1. Top-p counts shares of what
/// top-k leaves. Top-k 0 keeps all tokens.
fn candidates(weights: &[f32], sampling: &Sampling) -> Vec<u32> {
    let limit = if sampling.top_k == 0 { weights.len() } else { sampling.top_k.min(weights.len()) };
    let mut kept = top_p_tokens(weights, sampling, limit);
    // The largest weight is 1: it belongs to the largest logit.
    kept.retain(|id| weights[*id as usize] >= sampling.min_p);
    kept
}

/// The fewest of the `limit` likeliest tokens that together hold at least the share top-p of the weight of these
/// `limit` tokens, by descending weight; ties by lower id. All `limit` tokens at top-p 1.
fn top_p_tokens(weights: &[f32], sampling: &Sampling, limit: usize) -> Vec<u32> {
    if sampling.top_p >= 1.0 {
        return top_tokens(weights, limit);
    }
    let share = f64::from(sampling.top_p);
    let weight = |id: &u32| f64::from(weights[*id as usize]);
    let total: f64 = match limit == weights.len() {
        true => weights.iter().copied().map(f64::from).sum(),
        false => top_tokens(weights, limit).iter().map(weight).sum(),
    };
    // Sorting a whole vocabulary for a handful of tokens is most of a step's time: try few first.
    let mut count = limit.min(256);
    loop {
        let (kept, mut reached) = (top_tokens(weights, count), 0.0);
        let last = kept.iter().position(|id| {
            reached += weight(id);
            reached >= share * total
        });
        match last {
            Some(rank) => return kept[..=rank].to_vec(),
            None if count == limit => return kept,
            None => count = (count * 16).min(limit),
        }
    }
}

/// Token ids of the `count` largest weights, by descending weight; ties by lower id.
fn top_tokens(weights: &[f32], count: usize) -> Vec<u32> {
    let by_weight =
        |left: &u32, right: &u32| weights[*right as usize].total_cmp(&weights[*left as usize]).then(left.cmp(right));
    let mut ids: Vec<u32> = (0..weights.len() as u32).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count, by_weight);
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_weight);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, ..Sampling::default() }
    }

    /// Logits whose probabilities are 0.1, 0.2, 0.3, 0.4.
    fn logits() -> Vec<f32> {
        [0.1f32, 0.2, 0.3, 0.4].iter().map(|share| share.ln()).collect()
    }

    fn ids(sampling: &Sampling) -> Vec<u32> {
        let draws = (0..1000).map(|draw| f64::from(draw) / 1000.0);
        let mut ids: Vec<u32> = draws.map(|draw| sample_token(&logits(), sampling, draw).unwrap().id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let count = |id: u32| {
            let draws = (0..1000).map(|draw| (f64::from(draw) + 0.5) / 1000.0);
            draws.filter(|draw| sample_token(&logits(), &sampling(), *draw).unwrap().id == id).count()
        };
        assert_eq!([count(0), count(1), count(2), count(3)], [100, 200, 300, 400]);
    }

    #[test]
    fn the_log_probability_is_that_of_the_distribution_drawn_from() {
        let open = sample_token(&logits(), &sampling(), 0.95).unwrap();
        assert!((f64::from(open.logprob) - 0.4f64.ln()).abs() < 1e-6);
        let top = sample_token(&logits(), &Sampling { top_k: 2, ..sampling() }, 0.1).unwrap();
        assert_eq!(top.id, 3);
        assert!((f64::from(top.logprob) - (0.4f64 / 0.7).ln()).abs() < 1e-6);
    }

    #[test]
    fn filters_leave_the_likeliest_tokens_that_they_allow() {
        let open = sampling();
        let cases = [
            (Sampling { top_k: 3, ..open.clone() }, vec![1, 2, 3]),
            (Sampling { top_p: 0.69, ..open.clone() }, vec![2, 3]),
            (Sampling { top_p: 0.71, ..open.clone() }, vec![1, 2, 3]),
            // Top-p counts shares of what top-k leaves: 0.4 / 0.7 = 0.571 of what two tokens hold.
            (Sampling { top_k: 2, top_p: 0.55, ..open.clone() }, vec![3]),
            (Sampling { top_k: 2, top_p: 0.6, ..open.clone() }, vec![2, 3]),
            (Sampling { min_p: 0.6, ..open }, vec![2, 3]),
        ];
        for (sampling, wanted) in cases {
            assert_eq!(ids(&sampling), wanted, "{sampling:?}");
        }
    }

    #[test]
    fn temperature_zero_takes_the_likeliest_whatever_the_draw() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        for draw in [0.0, 0.5, 0.999] {
            let choice = sample_token(&logits(), &greedy, draw).unwrap();
            assert_eq!(choice.id, 3);
            assert!((f64::from(choice.logprob) - 0.4f64.ln()).abs() < 1e-6);
        }
    }

    #[test]
    fn allowed_tokens_are_sampled_as_if_there_were_no_others() {
        let count = |id: u32| {
            let draws = (0..1000).map(|draw| (f64::from(draw) + 0.5) / 1000.0);
            draws.filter(|draw| sample_among(&[0, 3], &logits(), &sampling(), *draw).unwrap().id == id).count()
        };
        assert_eq!([count(0), count(1), count(2), count(3)], [200, 0, 0, 800]);
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let chosen = sample_among(&[0, 1], &logits(), &greedy, 0.0).unwrap();
        assert_eq!(chosen.id, 1);
        assert!((f64::from(chosen.logprob) - (0.2f64 / 0.3).ln()).abs() < 1e-6);
    }

    #[test]
    fn a_logit_that_is_not_a_number_is_named_by_its_token() {
        let refused = sample_among(&[2], &[0.0, 0.0, f32::NAN], &sampling(), 0.5).unwrap_err();
        assert!(refused.to_string().contains("token `2`"), "{refused}");
    }

    #[test]
    fn a_logit_that_is_not_a_number_is_an_error() {
        assert!(sample_token(&[0.0, f32::NAN], &sampling(), 0.5).is_err());
    }
}
