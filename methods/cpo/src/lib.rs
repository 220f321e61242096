//! Contrastive preference optimization and related losses: preferred answers become likelier than rejected ones,
//! without a reference model.
//!
//! L = mean(preference loss of d) + nll-weight · NLL(chosen), d = log π(chosen) − log π(rejected) on sums or on means
//! of tokens. With `loss = "simpo"` and `nll-weight = 0` this is SimPO.

use tunebox::prelude::*;

/// Contrastive preference optimization, and what people may set about it.
#[derive(Settings)]
pub struct Contrast {
    /// The loss of a pair. On sums of tokens: `sigmoid`, `hinge`. On means: `ipo`, `simpo`, `alphapo`.
    #[setting(default = "sigmoid")]
    loss: Loss,

    /// How sharply the loss answers to d.
    #[setting(default = 0.1, above = 0.0)]
    beta: f32,

    /// The weight of the negative log-likelihood of the chosen answers, which `alphapo` never adds. True SimPO has 0.
    #[setting(default = 1.0, low = 0.0)]
    nll_weight: f32,

    /// The margin γ that `simpo` and `alphapo` ask of β·d.
    #[setting(default = 0.5)]
    gamma: f32,

    /// The bend α of `alphapo`'s reward, (1 − p^(−α)) / α; 0 is the limit log p.
    #[setting(default = 0.25)]
    alpha: f32,

    /// The share of pairs whose order is taken to be wrong; for `sigmoid`, `simpo` and `alphapo`.
    #[setting(default = 0.0, low = 0.0, below = 0.5)]
    label_smoothing: f32,
}

/// The loss of a pair.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Loss {
    Sigmoid,
    Hinge,
    Ipo,
    Simpo,
    Alphapo,
}

impl Method for Contrast {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        if settings.label_smoothing > 0.0 && matches!(settings.loss, Loss::Hinge | Loss::Ipo) {
            return Err(Error::new(
                "`label-smoothing` is defined for `loss = \"sigmoid\"`, `\"simpo\"` and `\"alphapo\"`; with the \
                 others it must be 0",
            ));
        }
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = Pair::of(batch)?;
        let scores = rows.score_for_learning(Pair::reported())?;
        let logps = self.logprobs(&scores, &rows.lengths());
        let rewards = logps.map(|logprob| self.reward(logprob));
        let preference = loss::row_mean(&self.cost(&rewards.difference()), batch.window_size());
        let nll = loss::token_mean(&-scores.chosen.logprob(), batch.window_targets("chosen")?);
        let weight = if self.loss == Loss::Alphapo { 0.0 } else { self.nll_weight };
        let total = if weight == 0.0 { preference } else { preference + &nll * weight };
        backward(&total)?;

        add_metric("loss", total);
        add_metric("nll-loss", nll);
        rewards.map(|reward| reward * self.beta).report_rewards(batch);
        logps.report_logprobs(batch);
        scores.report_tokens(batch, &rows.map(Rows::mask))
    }
}

impl Contrast {
    /// The sum of the token log-probabilities of each answer, or their mean, as the loss takes it: `[rows]`.
    fn logprobs(&self, scores: &Pair<Scores>, lengths: &Pair<Tensor>) -> Pair<Tensor> {
        match self.loss {
            Loss::Sigmoid | Loss::Hinge => scores.map(loss::sequence_logprob),
            Loss::Ipo | Loss::Simpo | Loss::Alphapo => scores.with(lengths, loss::mean_logprob),
        }
    }

    /// The reward of an answer, of which d is the difference: its log-probability ℓ, or (1 − e^(−αℓ)) ÷ α for
    /// `alphapo`.
    fn reward(&self, logprob: &Tensor) -> Tensor {
        if self.loss != Loss::Alphapo || self.alpha == 0.0 {
            return logprob * 1.0;
        }
        -(logprob * -self.alpha).expm1() / self.alpha
    }

    /// The loss of each pair from d: `[rows]`.
    fn cost(&self, difference: &Tensor) -> Tensor {
        let margin = difference * self.beta;
        match self.loss {
            Loss::Sigmoid => loss::smoothed_logistic(&margin, self.label_smoothing),
            Loss::Hinge => (1.0 - margin).relu(),
            Loss::Ipo => (difference - 0.5 / self.beta).square(),
            Loss::Simpo | Loss::Alphapo => loss::smoothed_logistic(&(margin - self.gamma), self.label_smoothing),
        }
    }
}

method! {
    Contrast,
    shape: "preference",
    metrics: [
        "loss", "nll-loss", "rewards-chosen", "rewards-rejected", "rewards-accuracies", "rewards-margins",
        "logps-chosen", "logps-rejected", "logits-chosen", "logits-rejected", "entropy", "mean-token-accuracy",
    ],
    paper: "arXiv:2401.08417",
}
