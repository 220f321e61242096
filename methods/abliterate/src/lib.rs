//! Abliteration: the direction along which a model decides to refuse, taken out of what it writes.
//!
//! r = mean(harmful) − mean(harmless) of the stream at a block's input and one of a prompt's last tokens; of all
//! layers and tokens the r whose removal refuses least, while harmless prompts are answered as before
//! (Arditi et al. 2024). The edit is W ← W − λ r̂ r̂ᵀ W for every matrix that writes the stream.

use tunebox::contrast::{Edit, Means, Trial, Verdict, projected};
use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
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

/// A direction `[dimension]`, where it was read, and what it does.
struct Candidate {
    layer: u32,
    token: Token,
    direction: Tensor,
    verdict: Verdict,
}

impl Method for Abliterate {
    type Settings = Abliteration;

    fn init(settings: Abliteration) -> Result<Self> {
        hidden::layers_between(settings.from, settings.to)?;
        let means = (0..settings.tokens).map(|_| Default::default()).collect();
        Ok(Self { trial: Trial::new(&settings.refusal)?, settings, steps: 0, means })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
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
                "both kinds of prompts are needed, in the means and kept out: give more records or smaller batches; a run that was resumed starts anew",
            ));
        }
        let before = self.trial.refusal()?;
        let Candidate { layer, token, direction, verdict } = self.best()?;
        let patches = self.settings.edit.apply(&direction)?;
        let (after, moved) = (self.trial.refusal()?, self.trial.moved()?);
        drop(patches);
        hidden::publish(layer, Site::ResidualBefore, token, &direction, 1.0)?;
        let rates = format!("{:.0} % → {:.0} %", 100.0 * before.rate, 100.0 * after.rate);
        log(&format!("layer {layer}: refusals {rates} of harmful prompts, KL {moved:.4} on harmless ones"));
        let numbers = [layer as f32, verdict.induced, moved, before.rate, after.rate, before.score, after.score];
        METRICS.into_iter().zip(numbers).for_each(|(name, value)| metric(name, value));
        Ok(())
    }
}

const METRICS: [&str; 7] =
    ["layer", "induced", "divergence", "refusal-rate-before", "refusal-rate", "refusal-score-before", "refusal-score"];

impl Abliterate {
    /// The direction whose removal refuses least, of those that leave harmless prompts alone when removed and are
    /// refused when added.
    fn best(&self) -> Result<Candidate> {
        let layers = hidden::layers_between(self.settings.from, self.settings.to)?;
        let mut best: Option<Candidate> = None;
        for (back, [harmful, harmless]) in (0..).zip(&self.means) {
            let (Some(harmful), Some(harmless)) = (harmful.mean(), harmless.mean()) else { continue };
            let difference = harmful - &harmless; // [layers, dimension], f64
            let kept = if self.settings.projected { projected(&difference, &harmless) } else { difference };
            for layer in layers.clone() {
                let direction = kept.slice(0, layer, 1).squeeze(0).cast(Dtype::F32);
                // Before the first block a prompt's last tokens are the same in all of them.
                if direction.norm(All).item()? < 1e-6 {
                    continue;
                }
                let verdict = self.trial.verdict(layer, &direction)?;
                log(&format!("layer {layer}, token {back}: {verdict}"));
                let fits = verdict.moved <= self.settings.divergence && verdict.induced >= self.settings.induced;
                if fits && best.as_ref().is_none_or(|best| verdict.bypass < best.verdict.bypass) {
                    best = Some(Candidate { layer, token: Token::FromEnd(back), direction, verdict });
                }
            }
        }
        best.ok_or_else(|| Error::new("no direction fits: raise `divergence`, lower `induced`, or give more records"))
    }
}

method! {
    Abliterate,
    shape: "instructions",
    metrics: ["layer", "induced", "divergence", "refusal-rate-before", "refusal-rate", "refusal-score-before", "refusal-score"],
    paper: "arXiv:2406.11717",
}
