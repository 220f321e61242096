//! Odds-ratio preference optimization: chosen answers become likelier, and their odds rise over
//! those of rejected ones. Nothing is measured against a reference, which saves its forward passes.
//!
//! L = NLL(chosen) − β·mean(log σ(z)) with z = log odds(chosen) − log odds(rejected), where the
//! probability of an answer is the geometric mean of its tokens'.

use tunebox::prelude::*;

/// Odds-ratio preference optimization, and what people may set about it.
#[derive(Settings)]
pub struct Odds {
    /// The weight of the odds term; the paper's λ.
    #[setting(default = 0.1, low = 0.0)]
    beta: f32,

    /// What the plain term learns of a chosen row: `row`, prompt and answer, as TRL does; `answer`, the answer alone.
    #[setting(default = "row")]
    nll: Learned,
}

/// Which tokens of a chosen row the plain term learns.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Learned {
    Row,
    Answer,
}

impl Method for Odds {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = Pair::of(batch)?;
        let (masks, lengths) = (rows.map(Rows::mask), rows.lengths());
        let scored = Pair { chosen: self.nll_rows(rows.chosen), rejected: rows.rejected };
        let scores = scored.score_for_learning(Pair::reported())?;

        let answers = scores.with(&masks, |scores, mask| (scores.logprob() * mask).sum(1)); // [rows]
        let means = answers.with(&lengths, |sum, length| sum / length);
        let log_odds = means.map(|mean| mean - loss::log_one_minus_exp(mean)).difference(); // z
        let ratio = log_odds.log_sigmoid();

        let nll = loss::token_mean(&-scores.chosen.logprob(), self.denominator(batch)?);
        let total = &nll - loss::row_mean(&ratio, batch.window_size()) * self.beta;
        backward(&total)?;

        add_metric("loss", total);
        add_metric("nll-loss", nll);
        add_metric("log-odds-ratio", loss::row_mean(&ratio, batch.window_size()));
        add_metric("log-odds-chosen", loss::row_mean(&log_odds, batch.window_size()));
        means.map(|mean| mean * self.beta).report_rewards(batch);
        means.report_logprobs(batch);
        scores.report_tokens(batch, &masks)
    }
}

impl Odds {
    /// The chosen rows with the targets of the NLL term: all tokens, or those of the answer.
    fn nll_rows(&self, chosen: Rows) -> Rows {
        match self.nll {
            Learned::Row => chosen.whole(),
            Learned::Answer => chosen,
        }
    }

    /// The number of targets of the NLL term in the whole accumulation window.
    fn denominator(&self, batch: &Batch) -> Result<u32> {
        match self.nll {
            Learned::Row => batch.window_tokens("chosen"),
            Learned::Answer => batch.window_targets("chosen"),
        }
    }
}

method! {
    Odds,
    shape: "preference",
    metrics: [
        "loss", "nll-loss", "log-odds-ratio", "log-odds-chosen", "rewards-chosen", "rewards-rejected",
        "rewards-accuracies", "rewards-margins", "logps-chosen", "logps-rejected", "logits-chosen", "logits-rejected",
        "entropy", "mean-token-accuracy",
    ],
    paper: "arXiv:2403.07691",
}
