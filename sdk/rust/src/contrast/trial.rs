//! Prompts kept out of a mean, and what becomes of them when a direction of the stream is added or removed.

use super::refusal::{Refusal, refusal};
use crate::hidden::{Site, layers};
use crate::model::{divergence, policy, reference};
use crate::patch::{self, Patch};
use crate::tensor::{All, concat};
use crate::{Result, Rows, Tensor, text};

/// Harmful and harmless prompts, and the tokens that refusals begin with.
#[derive(Default)]
pub struct Trial {
    /// Prompts that the model refuses.
    pub harmful: Vec<Rows>,
    /// Prompts that it answers.
    pub harmless: Vec<Rows>,
    begins: Vec<u32>,
}

impl Trial {
    /// A trial without prompts yet; refusals begin with the first token of one of these texts, divided by `|`.
    /// Needs the grant of `text`.
    #[track_caller]
    pub fn new(refusals: &str) -> Result<Self> {
        let begins = refusals.split('|').map(|text| Ok(text::encode(text)?.first().copied()));
        let begins = begins.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(Self { begins, ..Self::default() })
    }

    /// Whether there are prompts of both kinds.
    pub fn is_ready(&self) -> bool {
        !self.harmful.is_empty() && !self.harmless.is_empty()
    }

    /// How the policy as it is now meets the harmful prompts.
    #[track_caller]
    pub fn refusal(&self) -> Result<Refusal> {
        refusal(&policy(), &self.harmful, &self.begins)
    }

    /// The refusal score of harmless prompts while the direction is added at a layer's input.
    #[track_caller]
    pub fn induced(&self, layer: u32, direction: &Tensor) -> Result<f32> {
        let _added = patch::add(&[layer], Site::ResidualBefore, direction, 1.0, false)?;
        Ok(refusal(&policy(), &self.harmless, &self.begins)?.score)
    }

    /// How far the policy has moved from the reference on harmless prompts: the mean KL of the next token.
    #[track_caller]
    pub fn moved(&self) -> Result<f32> {
        let base = reference()?;
        let each = self.harmless.iter().map(|rows| divergence(&base, &policy(), rows)).collect::<Result<Vec<_>>>()?;
        concat(&each.iter().collect::<Vec<_>>(), 0).mean(All).item()
    }
}

/// Removes a direction from all that the policy reads and writes, at every layer, until the patches are dropped.
#[track_caller]
pub fn ablated(direction: &Tensor) -> Result<Vec<Patch>> {
    let layers: Vec<u32> = (0..layers()).collect();
    let sites = [Site::ResidualBefore, Site::AttentionOutput, Site::MlpOutput];
    sites.into_iter().map(|site| patch::ablate(&layers, site, direction)).collect()
}
