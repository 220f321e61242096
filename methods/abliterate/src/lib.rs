//! Abliteration: removes the direction that represents refusal from a model.
//!
//! A direction is r = mean(harmful) − mean(harmless) of the residual stream at the input of a block, at one of a
//! prompt's last tokens. Of all layers and tokens the method takes the r whose removal refuses least, while answers to
//! harmless prompts stay the same (Arditi et al. 2024). The edit is W ← W − λ r̂ r̂ᵀ W for every matrix that writes to
//! the stream.

use tunebox::contrast::{Edit, Means, Trial, Verdict, remove_projection};
use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
use tunebox::run;
use tunebox::tensor::Dtype;

/// What people may set about it.
#[derive(Settings)]
pub struct Abliteration {
    /// How refusals begin; the first token of each counts, `|` divides them.
    #[setting(default = "I")]
    refusal: String,
    /// Tokens at the end of a prompt that may give the direction.
    #[setting(default = 1, low = 1, high = 16)]
    tokens: u32,
    /// The first layer that may give it, as a share of the depth.
    #[setting(default = 0.0, low = 0.0, below = 1.0)]
    from: f32,
    /// Where the layers end that may; the last ones only put into words what was decided.
    #[setting(default = 0.8, above = 0.0, high = 1.0)]
    to: f32,
    /// Every so many batches one is kept out of the means, to choose the direction by.
    #[setting(default = 4, low = 2, high = 1000)]
    hold_out: u32,
    /// How far harmless prompts may move: KL of the next token, in nats.
    #[setting(default = 0.1, above = 0.0)]
    divergence: f32,
    /// The refusal score that harmless prompts must reach when the direction is added.
    #[setting(default = 0.0)]
    induced: f32,
    /// Directions to try at most: with more tokens and layers, evenly spread ones first, then those beside the best.
    #[setting(default = 32, low = 2, high = 90)]
    tries: u32,
    /// Leave the part of the direction alone that lies along the mean of harmless prompts.
    #[setting(default = false)]
    projected: bool,
    #[setting(flatten)]
    edit: Edit,
}

/// The means so far (harmful and harmless, for each token from the end), and the prompts kept out of them.
struct Abliterate {
    settings: Abliteration,
    steps: u32,
    means: Vec<[Means; 2]>,
    trial: Trial,
}

/// A direction `[dimension]`, and where it is read: a layer, and a token counted from the end of a prompt.
struct Candidate {
    layer: u32,
    back: u32,
    direction: Tensor,
}

/// A candidate that was tried: its number, what it does, and how far that is from what the settings ask for.
struct Tried {
    number: usize,
    verdict: Verdict,
    excess: f32,
}

impl Method for Abliterate {
    type Settings = Abliteration;

    fn init(settings: Abliteration) -> Result<Self> {
        hidden::layers_between(settings.from, settings.to)?;
        let means = (0..settings.tokens).map(|_| Default::default()).collect();
        Ok(Self { trial: Trial::new(&settings.refusal)?, settings, steps: 0, means })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        if self.steps == 0 {
            self.check_batches(batch)?;
        }
        self.steps += 1;
        let sides = [batch.rows("harmful")?, batch.rows("harmless")?];
        if self.steps.is_multiple_of(self.settings.hold_out) {
            self.trial.keep(sides);
            return Ok(());
        }
        let layers: Vec<u32> = (0..hidden::layers()).collect();
        for (token, means) in (0..).map(Token::FromEnd).zip(&mut self.means) {
            for (rows, mean) in sides.iter().zip(means).filter(|(rows, _)| rows.count() > 0) {
                mean.add(&hidden::capture(&policy(), rows, &layers, Site::ResidualBefore, token)?);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.trial.is_ready() || self.means[0].iter().any(|means| means.count() == 0) {
            return Err(Error::new(
                "both kinds of prompts are needed, in the means and kept out: give more records of the kind that is rare",
            ));
        }
        let before = self.trial.refusal()?;
        let (Candidate { layer, direction, .. }, verdict) = self.publish_best()?;
        let patches = self.settings.edit.apply(&direction)?;
        let (after, moved) = (self.trial.refusal()?, self.trial.moved()?);
        drop(patches);
        let rates = format!("{:.0} % → {:.0} %", 100.0 * before.rate, 100.0 * after.rate);
        log(&format!("layer {layer}: refusals {rates} of harmful prompts, KL {moved:.4} on harmless ones"));
        let numbers = [layer as f32, verdict.induced, moved, before.rate, after.rate, before.score, after.score];
        METRICS.into_iter().zip(numbers).for_each(|(name, value)| metric(name, value));
        Ok(())
    }

    fn load_state(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::new("the means of the batches so far are not saved: start the run anew, without `--resume`"))
    }
}

const METRICS: [&str; 7] =
    ["layer", "induced", "divergence", "refusal-rate-before", "refusal-rate", "refusal-score-before", "refusal-score"];

impl Abliterate {
    /// Fails if the run has too few batches for one to be kept out of the means. `batch` is its first.
    fn check_batches(&self, batch: &Batch) -> Result<()> {
        let (each, needed) = (batch.window_size().div_ceil(batch.size()).max(1), self.settings.hold_out);
        let batches = run::planned().saturating_mul(each);
        if batches >= needed {
            return Ok(());
        }
        Err(Error::new(format!(
            "one batch of {needed} is kept out to choose the direction by, and the run has only {batches}: lower \
             `train.batch` or `method.hold-out`, raise `train.epochs`, or give more records"
        )))
    }

    /// Tries candidates, publishes the best one, and returns it with its verdict. The best one satisfies the settings
    /// `divergence` and `induced`, and among these its removal leaves the lowest refusal score. Errors: there is no
    /// candidate, or none satisfies them; in the latter case the nearest one is published.
    fn publish_best(&self) -> Result<(Candidate, Verdict)> {
        let mut candidates = self.candidates()?;
        let total = candidates.len().min(self.settings.tries as usize);
        // If not all are tried, a quarter of the tries is left for the neighbors of the best.
        let spread = if total < candidates.len() { (total * 3).div_ceil(4) } else { total };
        let apart = candidates.len().div_ceil(spread.max(1));
        let mut tried: Vec<Tried> = Vec::new();
        while tried.len() < total {
            let even = tried.len() * apart;
            let number = if even < candidates.len() { even } else { nearest_untried(&tried, candidates.len()) };
            let verdict = self.trial.verdict(candidates[number].layer, &candidates[number].direction)?;
            let excess = self.excess(&verdict);
            tried.push(Tried { number, verdict, excess });
            let Candidate { layer, back, .. } = candidates[number];
            log(&format!("{} of {total}: layer {layer}, token {back}: {verdict}", tried.len()));
        }
        let Some(best) = best_of(&tried) else {
            return Err(Error::new("harmful and harmless prompts end alike: no direction is between them"));
        };
        let (verdict, found) = (best.verdict, candidates.swap_remove(best.number));
        hidden::publish(found.layer, Site::ResidualBefore, Token::FromEnd(found.back), &found.direction, 1.0)?;
        if best.excess > 0.0 { Err(self.nothing_fits(&found, verdict, total)) } else { Ok((found, verdict)) }
    }

    /// Computes the directions of all layers and tokens that the settings allow, without those of a norm below 1e-6.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let layers = hidden::layers_between(self.settings.from, self.settings.to)?;
        let mut candidates = Vec::new();
        for (back, [harmful, harmless]) in (0..).zip(&self.means) {
            let (Some(harmful), Some(harmless)) = (harmful.mean(), harmless.mean()) else { continue };
            let difference = harmful - &harmless; // [layers, dimension], f64
            let kept = if self.settings.projected { remove_projection(&difference, &harmless) } else { difference };
            for layer in layers.clone() {
                let direction = kept.slice(0, layer, 1).squeeze(0).cast(Dtype::F32);
                // Before the first block a prompt's last tokens are the same in all of them.
                if direction.norm(All).item()? >= 1e-6 {
                    candidates.push(Candidate { layer, back, direction });
                }
            }
        }
        Ok(candidates)
    }

    /// How far a verdict is from satisfying the settings `induced` and `divergence`; 0 if it does. The sum of the
    /// refusal score that is missing when the direction is added, and the logarithm of the factor by which the
    /// divergence on harmless prompts is too large when it is removed.
    fn excess(&self, verdict: &Verdict) -> f32 {
        let moved = (verdict.moved / self.settings.divergence).max(1.0).ln();
        moved + (self.settings.induced - verdict.induced).max(0.0)
    }

    /// The error if no candidate satisfies the settings, with the settings that would accept the nearest one.
    fn nothing_fits(&self, nearest: &Candidate, verdict: Verdict, tries: usize) -> Error {
        let Candidate { layer, back, .. } = nearest;
        let (moves, refuses) = (verdict.moved > self.settings.divergence, verdict.induced < self.settings.induced);
        let raise = moves.then(|| format!("raise `divergence` to {:.3}", 1.1 * verdict.moved));
        let lower = refuses.then(|| format!("lower `induced` to {:.1}", verdict.induced - 0.1));
        let advice: Vec<String> = raise.into_iter().chain(lower).collect();
        Error::new(format!(
            "no direction fits; of {tries} tried, layer {layer}, token {back} is nearest ({verdict}): {} to take it, raise `tokens`, or give more records",
            advice.join(" and ")
        ))
    }
}

/// The candidate with the lowest excess; of equal ones that whose removal leaves the lowest refusal score. `None` if
/// none was tried.
fn best_of(tried: &[Tried]) -> Option<&Tried> {
    let order = |one: &&Tried, other: &&Tried| {
        one.excess.total_cmp(&other.excess).then(one.verdict.bypass.total_cmp(&other.verdict.bypass))
    };
    tried.iter().min_by(order)
}

/// The number of the candidate that is nearest to the best one of `tried`, by its number, and was not tried. `count` is
/// the number of all candidates. 0 if all were tried.
fn nearest_untried(tried: &[Tried], count: usize) -> usize {
    let best = best_of(tried).map_or(0, |best| best.number);
    let is_new = |number: &usize| tried.iter().all(|tried| tried.number != *number);
    (0..count).filter(is_new).min_by_key(|number| number.abs_diff(best)).unwrap_or(0)
}

method! {
    Abliterate,
    shape: "instructions",
    metrics: ["layer", "induced", "divergence", "refusal-rate-before", "refusal-rate", "refusal-score-before", "refusal-score"],
    paper: "arXiv:2406.11717",
}
