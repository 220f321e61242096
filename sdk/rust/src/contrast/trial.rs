//! Held-out prompts, to measure the effect of a direction that is added to or removed from the residual stream.

use std::fmt;

use super::refusal::{Refusal, refusal};
use crate::hidden::{Site, layers};
use crate::model::{divergence, policy, reference};
use crate::patch::{self, Patch};
use crate::tensor::{All, concat};
use crate::{Error, Result, Rows, Tensor, text};

/// Harmful and harmless prompts, and the tokens that refusals begin with.
#[derive(Default)]
pub struct Trial {
    harmful: Vec<Rows>,
    harmless: Vec<Rows>,
    begins: Vec<u32>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bypass, induced, moved } = self;
        write!(formatter, "bypass {bypass:+.2}, induced {induced:+.2}, KL {moved:.3}")
    }
}

/// The effect of a direction on the prompts of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The refusal score of harmful prompts without it.
    pub bypass: f32,
    /// The refusal score of harmless prompts with it added.
    pub induced: f32,
    /// The KL from the reference on harmless prompts without it.
    pub moved: f32,
}

impl Trial {
    /// Creates a trial without prompts. `refusals` are texts divided by `|`; the first token of each counts as a
    /// refusal. Needs the grant of `text`. Errors: no text has a token.
    #[track_caller]
    pub fn new(refusals: &str) -> Result<Self> {
        let begins = refusals.split('|').map(|text| Ok(text::encode(text)?.first().copied()));
        let begins: Vec<u32> = begins.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        if begins.is_empty() {
            return Err(Error::new("nothing is said about how refusals begin"));
        }
        Ok(Self { begins, ..Self::default() })
    }

    /// Adds the two sets of prompts, harmful and harmless, to those of the trial. A set without rows is ignored.
    pub fn keep(&mut self, [harmful, harmless]: [Rows; 2]) {
        self.harmful.extend((harmful.count() > 0).then_some(harmful));
        self.harmless.extend((harmless.count() > 0).then_some(harmless));
    }

    /// Whether the trial has both harmful and harmless prompts.
    pub fn is_ready(&self) -> bool {
        !self.harmful.is_empty() && !self.harmless.is_empty()
    }

    /// Estimates how the present policy, with its active patches, refuses the harmful prompts.
    #[track_caller]
    pub fn refusal(&self) -> Result<Refusal> {
        refusal(&policy(), &self.harmful, &self.begins)
    }

    /// Measures a direction `[dimension]`: added at the input of block `layer`, then removed from every block.
    #[track_caller]
    pub fn verdict(&self, layer: u32, direction: &Tensor) -> Result<Verdict> {
        let added = patch::add(&[layer], Site::ResidualBefore, direction, 1.0, false)?;
        let induced = refusal(&policy(), &self.harmless, &self.begins)?.score;
        drop(added);
        let _removed = ablate_direction(direction)?;
        Ok(Verdict { bypass: self.refusal()?.score, induced, moved: self.moved()? })
    }

    /// The mean KL(reference ‖ policy) of the next token on the harmless prompts, in nats, under active patches.
    #[track_caller]
    pub fn moved(&self) -> Result<f32> {
        let base = reference()?;
        let each = self.harmless.iter().map(|rows| divergence(&base, &policy(), rows)).collect::<Result<Vec<_>>>()?;
        concat(&each.iter().collect::<Vec<_>>(), 0).mean(All).item()
    }
}

/// Removes a direction from input, attention and MLP output of every block, until the patches are dropped.
#[track_caller]
pub fn ablate_direction(direction: &Tensor) -> Result<Vec<Patch>> {
    let layers: Vec<u32> = (0..layers()).collect();
    let sites = [Site::ResidualBefore, Site::AttentionOutput, Site::MlpOutput];
    sites.into_iter().map(|site| patch::ablate(&layers, site, direction)).collect()
}
