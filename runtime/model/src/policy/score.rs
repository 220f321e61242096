//! Scoring: per-token taps of rows through a view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tunebox_compute::fused::{HeadTaps, TapSet};
use tunebox_compute::{Device, Tensor};

use super::{Policy, View};
use crate::decoder::head::{Head, KeptHead};
use crate::decoder::lens::Lens;
use crate::decoder::packing::Packing;
use crate::decoder::{Kept, stack};
use crate::error::{Error, Result};
use crate::rows::Rows;

/// Per-token tensors `[rows, width]`, `f32`, exactly 0 where the rows' mask is 0.
#[derive(Debug, Clone)]
pub struct Taps {
    /// log p(token t | tokens before t).
    pub logprob: Tensor,
    /// Entropy of the next-token distribution, in nats.
    pub entropy: Option<Tensor>,
    /// log Σ p².
    pub log_sum_square: Option<Tensor>,
    /// The mean logit over the vocabulary.
    pub mean_logit: Option<Tensor>,
    /// The mean log-probability over the vocabulary.
    pub mean_logprob: Option<Tensor>,
    /// 1 where the token is the model's first choice.
    pub top_one: Option<Tensor>,
}

/// dL/d(tap), each `[rows, width]`; ignored where the rows' mask is 0.
#[derive(Debug, Clone, Default)]
pub struct Seeds {
    /// Of the log-probabilities.
    pub logprob: Option<Tensor>,
    /// Of the entropies.
    pub entropy: Option<Tensor>,
    /// Of the mean log-probabilities.
    pub mean_logprob: Option<Tensor>,
}

/// Rows that were scored, and what is kept for learning from them.
pub struct Scored {
    /// What they were scored through.
    pub view: View,
    /// What was scored.
    pub rows: Arc<Rows>,
    /// What came out.
    pub taps: Taps,
    /// The updates that the weights had had.
    pub generation: u64,
    pub(super) asked: TapSet,
    pub(super) temperature: f32,
    /// The pass that dropout masks belong to.
    pub(super) dropout: Option<(u64, u64)>,
    pub(super) pass: Option<Pass>,
}

/// All that a backward pass needs.
pub(super) struct Pass {
    pub(super) packing: Packing,
    pub(super) blocks: Vec<Kept>,
    pub(super) head: KeptHead,
}

impl Scored {
    /// Scores that another learner than [`Policy`] made; nothing is kept for a backward pass.
    #[must_use]
    pub fn of_taps(view: View, rows: Arc<Rows>, taps: Taps, generation: u64) -> Self {
        let asked = TapSet {
            entropy: taps.entropy.is_some(),
            log_sum_square: taps.log_sum_square.is_some(),
            mean_logit: taps.mean_logit.is_some(),
            mean_logprob: taps.mean_logprob.is_some(),
            top_one: taps.top_one.is_some(),
        };
        Self { view, rows, taps, generation, asked, temperature: 1.0, dropout: None, pass: None }
    }

    /// Bytes of activations that wait for a backward pass.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.pass.as_ref().map_or(0, |pass| pass.blocks.iter().map(Kept::bytes).sum::<usize>() + pass.head.bytes())
    }
}

impl Policy {
    /// Scores rows through a view; logits are divided by the temperature. With `keep` the
    /// forward pass stays in memory for [`Policy::backward`], which otherwise runs it again.
    /// Adapter dropout acts only with `keep`, on the policy.
    ///
    /// # Errors
    /// When the temperature is not positive, a token is not in the vocabulary, or a snapshot
    /// does not exist.
    pub fn score(&self, view: &View, rows: &Arc<Rows>, taps: TapSet, temperature: f32, keep: bool) -> Result<Scored> {
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(Error::Argument(format!("temperature `{temperature}` is not a positive number")));
        }
        let learning = keep && *view == View::Policy;
        let dropout = learning.then(|| (self.generation, self.passes.fetch_add(1, Ordering::Relaxed)));
        let packing = Packing::new(rows, &self.model.configuration)?;
        let device = self.model.weights.device();
        let (found, pass) = if packing.is_empty() {
            (empty_taps(&packing, taps, device)?, None)
        } else {
            let lens = Lens { dropout, ..self.lens(view)? };
            let head = Head::new(&lens, temperature, taps)?;
            if learning {
                let pass = self.pass(&lens, &head, packing)?;
                (spread(&pass.packing, pass.head.taps(), device)?, Some(pass))
            } else {
                let hidden = stack::forward(&lens, &packing)?;
                let kept = head.forward(packing.select(&hidden)?, &packing.targets)?;
                (spread(&packing, kept.taps(), device)?, None)
            }
        };
        Ok(Scored {
            view: view.clone(),
            rows: Arc::clone(rows),
            taps: found,
            generation: self.generation,
            asked: taps,
            temperature,
            dropout,
            pass,
        })
    }

    /// A forward pass that keeps what its backward pass needs.
    pub(super) fn pass(&self, lens: &Lens<'_>, head: &Head, packing: Packing) -> Result<Pass> {
        let (hidden, blocks) = stack::forward_kept(lens, &packing, self.settings.recompute)?;
        let head = head.forward(packing.select(&hidden)?, &packing.targets)?;
        Ok(Pass { packing, blocks, head })
    }
}

fn spread(packing: &Packing, taps: &HeadTaps, device: &Device) -> Result<Taps> {
    let optional = |values: Option<&Vec<f32>>| values.map(|values| packing.scatter(values, device)).transpose();
    Ok(Taps {
        logprob: packing.scatter(&taps.logprob, device)?,
        entropy: optional(taps.entropy.as_ref())?,
        log_sum_square: optional(taps.log_sum_square.as_ref())?,
        mean_logit: optional(taps.mean_logit.as_ref())?,
        mean_logprob: optional(taps.mean_logprob.as_ref())?,
        top_one: optional(taps.top_one.as_ref())?,
    })
}

fn empty_taps(packing: &Packing, asked: TapSet, device: &Device) -> Result<Taps> {
    let zeros = |wanted: bool| wanted.then(|| packing.scatter(&[], device)).transpose();
    Ok(Taps {
        logprob: packing.scatter(&[], device)?,
        entropy: zeros(asked.entropy)?,
        log_sum_square: zeros(asked.log_sum_square)?,
        mean_logit: zeros(asked.mean_logit)?,
        mean_logprob: zeros(asked.mean_logprob)?,
        top_one: zeros(asked.top_one)?,
    })
}
