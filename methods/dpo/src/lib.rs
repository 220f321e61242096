//! Direct preference optimization: preferred answers become likelier than rejected ones, measured
//! from where training began.
//!
//! r = log π(y) − log π_ref(y) for each answer; the loss of a pair is a function of both, most often of
//! Δ = r(chosen) − r(rejected). `losses` is the table of these functions, `mixture` reads their names.

mod divergence;
mod losses;
mod mixture;

use divergence::Divergence;
use losses::{Loss, Terms, pair_weights};
use tunebox::prelude::*;

/// What people may set.
#[derive(Settings)]
pub struct Options {
    /// The loss of a pair, or several with their weights, such as `sigmoid 0.8, bco-pair 0.2, sft 1.0`. Losses:
    /// `sigmoid`, `cdpo`, `robust`, `hinge`, `ipo`, `sigmoid-norm`, `exo-pair`, `nca-pair`, `bco-pair`, `sppo-hard`,
    /// `aot`, `aot-unpaired`, `apo-zero`, `apo-down`, `discopop`, and `sft`, the negative log-likelihood of the chosen
    /// answers.
    #[setting(default = "sigmoid")]
    loss: String,

    /// How strongly the policy is held to the reference: higher is closer.
    #[setting(default = 0.1, above = 0.0)]
    beta: f32,

    /// The share of pairs whose order is taken to be wrong; for `cdpo`, `robust`, `exo-pair`, `aot`, `aot-unpaired`.
    #[setting(default = 0.0, low = 0.0, below = 0.5)]
    label_smoothing: f32,

    /// The divergence from the reference that bends r in the losses of Δ (arXiv:2309.16240).
    #[setting(default = "reverse-kl")]
    f_divergence: Divergence,

    /// The α of `f-divergence = "alpha"`; at 1 it is `reverse-kl`.
    #[setting(default = 0.5)]
    f_alpha: f32,

    /// The weight of tokens past the length of the shorter answer (LD-DPO, arXiv:2409.06411); 1 counts all alike.
    #[setting(default = 1.0, low = 0.0, high = 1.0)]
    ld_alpha: f32,

    /// Weigh each pair by how likely the policy itself is to write it (WPO, arXiv:2406.11827).
    #[setting(default = false)]
    use_weighting: bool,

    /// The temperature at which `discopop` blends its two parts.
    #[setting(default = 0.05, above = 0.0)]
    discopop_tau: f32,
}

/// Direct preference optimization.
pub struct Preference {
    options: Options,
    mixture: Vec<(Loss, f32)>,
}

impl Method for Preference {
    type Settings = Options;

    fn init(options: Options) -> Result<Self> {
        let mixture = mixture::parse(&options.loss, options.label_smoothing)?;
        Ok(Self { options, mixture })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        self.check_batch(batch)?;
        let rows = Pair::of(batch)?;
        let (masks, lengths) = (rows.map(Rows::mask), rows.lengths());
        let scores = rows.score_for_learning(self.taps())?;
        let frozen = rows.score(&reference()?, Taps::empty())?;
        let weights = (self.options.ld_alpha < 1.0).then(|| self.token_weights(&masks, &lengths));
        let policy = sequence_logprobs(&scores, weights.as_ref());
        let reference = sequence_logprobs(&frozen, weights.as_ref());

        let ratios = policy.with(&reference, |policy, reference| policy - reference);
        let divergences = ratios.map(|ratio| self.options.f_divergence.derivative(ratio, self.options.f_alpha));
        let terms =
            Terms { options: &self.options, policy: &policy, reference: &reference, ratios, divergences, lengths };
        let pair_weights = self.options.use_weighting.then(|| pair_weights(&scores, &terms.lengths));
        let nll = loss::token_mean(&-scores.chosen.logprob(), batch.window_targets("chosen")?);
        let total = self.mixture.iter().map(|(loss, weight)| match loss {
            Loss::Sft => &nll * *weight,
            of_pairs => {
                let cost = terms.cost(*of_pairs); // [rows]
                let cost = if let Some(weights) = &pair_weights { cost * weights } else { cost };
                loss::row_mean(&cost, batch.window_size()) * *weight
            }
        });
        let total = total.reduce(|sum, cost| sum + cost).ok_or_else(|| Error::new("`loss` names no loss"))?;
        backward(&total)?;

        add_metric("loss", total);
        terms.ratios.map(|ratio| ratio * self.options.beta).report_rewards(batch);
        policy.report_logprobs(batch);
        scores.report_tokens(batch, &masks)
    }
}

impl Preference {
    /// Fails if a loss of optimal transport gets less than the pairs of a whole update: it sorts them.
    fn check_batch(&self, batch: &Batch) -> Result<()> {
        let coupling = self.mixture.iter().find(|(loss, _)| loss.couples_pairs());
        match coupling {
            Some((loss, _)) if batch.size() < batch.window_size() => Err(Error::new(format!(
                "`loss = \"{}\"` sorts the pairs of an update, so it needs them in one micro-batch; set \
                 `train.accumulation = 1` and `train.batch = {}`",
                loss.name(),
                batch.window_size()
            ))),
            _ => Ok(()),
        }
    }

    /// 1 up to the length of the shorter answer, `ld-alpha` after it: `[rows, width]`.
    fn token_weights(&self, masks: &Pair<Tensor>, lengths: &Pair<Tensor>) -> Pair<Tensor> {
        let shared = lengths.chosen.minimum(&lengths.rejected).unsqueeze(1); // [rows, 1]
        masks.map(|mask| where_(&mask.cumsum(1).less_equal(&shared), 1.0, self.options.ld_alpha))
    }

    /// The taps to compute besides the log-probabilities.
    fn taps(&self) -> Taps {
        let reported = Pair::reported();
        if self.options.use_weighting { reported | Taps::LOG_SUM_SQUARE } else { reported }
    }
}

/// The log-probability of each answer, `[rows]`: the sum over its tokens, weighted if there are `weights` `[rows,
/// width]`.
fn sequence_logprobs(scores: &Pair<Scores>, weights: Option<&Pair<Tensor>>) -> Pair<Tensor> {
    match weights {
        None => scores.map(loss::sequence_logprob),
        Some(weights) => scores.with(weights, |scores, weights| (scores.logprob() * weights).sum(1)),
    }
}

method! {
    Preference,
    shape: "preference",
    metrics: [
        "loss", "rewards-chosen", "rewards-rejected", "rewards-accuracies", "rewards-margins", "logps-chosen",
        "logps-rejected", "logits-chosen", "logits-rejected", "entropy", "mean-token-accuracy",
    ],
    paper: "arXiv:2305.18290",
}
