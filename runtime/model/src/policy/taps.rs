//! Per-token numbers of a batch: put together from its slices, and taken apart for them again.

use tunebox_compute::fused::{HeadTaps, TapGradients, TapSet};
use tunebox_compute::{DType, Device, Tensor};

use crate::decoder::packing::Packing;
use crate::error::{Error, Result};
use crate::rows::Rows;

/// Per-token tensors `[rows, width]` of the CPU, `f32`, exactly 0 where the rows' mask is 0.
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

impl Taps {
    /// Taps of nothing, in place of those that were handed on.
    ///
    /// # Errors
    /// When the tensor library refuses an empty tensor.
    pub fn empty() -> Result<Self> {
        let logprob = Tensor::zeros((0, 0), DType::F32, &Device::Cpu)?;
        Ok(Self { logprob, entropy: None, log_sum_square: None, mean_logit: None, mean_logprob: None, top_one: None })
    }

    /// The taps of some rows, in the order of their numbers, up to a width.
    ///
    /// # Errors
    /// When a number is past the last row, or the width past that of the taps.
    pub fn select(&self, rows: &[u32], width: usize) -> Result<Self> {
        let rows = Tensor::new(rows, self.logprob.device())?;
        let one =
            |tap: &Tensor| -> Result<Tensor> { Ok(tap.index_select(&rows, 0)?.narrow(1, 0, width)?.contiguous()?) };
        let optional = |tap: &Option<Tensor>| tap.as_ref().map(one).transpose();
        Ok(Self {
            logprob: one(&self.logprob)?,
            entropy: optional(&self.entropy)?,
            log_sum_square: optional(&self.log_sum_square)?,
            mean_logit: optional(&self.mean_logit)?,
            mean_logprob: optional(&self.mean_logprob)?,
            top_one: optional(&self.top_one)?,
        })
    }
}

/// dL/d(tap), each `[rows, width]` of the CPU; ignored where the rows' mask is 0.
#[derive(Debug, Clone, Default)]
pub struct Seeds {
    /// Of the log-probabilities.
    pub logprob: Option<Tensor>,
    /// Of the entropies.
    pub entropy: Option<Tensor>,
    /// Of the mean log-probabilities.
    pub mean_logprob: Option<Tensor>,
}

/// Taps that are filled slice by slice.
pub(super) struct Filling {
    shape: (usize, usize),
    logprob: Vec<f32>,
    entropy: Option<Vec<f32>>,
    log_sum_square: Option<Vec<f32>>,
    mean_logit: Option<Vec<f32>>,
    mean_logprob: Option<Vec<f32>>,
    top_one: Option<Vec<f32>>,
}

impl Filling {
    /// All zero.
    pub(super) fn new(rows: &Rows, asked: TapSet) -> Self {
        let shape = (rows.count(), rows.width());
        let zeros = |wanted: bool| wanted.then(|| vec![0.0; shape.0 * shape.1]);
        Self {
            shape,
            logprob: vec![0.0; shape.0 * shape.1],
            entropy: zeros(asked.entropy),
            log_sum_square: zeros(asked.log_sum_square),
            mean_logit: zeros(asked.mean_logit),
            mean_logprob: zeros(asked.mean_logprob),
            top_one: zeros(asked.top_one),
        }
    }

    /// Puts the taps of a slice in their places.
    pub(super) fn add(&mut self, packing: &Packing, taps: &HeadTaps) {
        packing.scatter(&taps.logprob, &mut self.logprob);
        let optional = [
            (&mut self.entropy, &taps.entropy),
            (&mut self.log_sum_square, &taps.log_sum_square),
            (&mut self.mean_logit, &taps.mean_logit),
            (&mut self.mean_logprob, &taps.mean_logprob),
            (&mut self.top_one, &taps.top_one),
        ];
        for (all, values) in optional {
            if let (Some(all), Some(values)) = (all, values) {
                packing.scatter(values, all);
            }
        }
    }

    /// The taps as tensors of the CPU, whatever computes the passes: a loss is built on them there.
    pub(super) fn finish(self) -> Result<Taps> {
        let tensor = |values: Vec<f32>| Tensor::from_vec(values, self.shape, &Device::Cpu);
        let optional = |values: Option<Vec<f32>>| values.map(tensor).transpose();
        Ok(Taps {
            logprob: tensor(self.logprob)?,
            entropy: optional(self.entropy)?,
            log_sum_square: optional(self.log_sum_square)?,
            mean_logit: optional(self.mean_logit)?,
            mean_logprob: optional(self.mean_logprob)?,
            top_one: optional(self.top_one)?,
        })
    }
}

/// Seeds in the host's memory, in row-major order or in that of a slice's targets.
#[derive(Default)]
pub(super) struct SeedValues {
    logprob: Option<Vec<f32>>,
    entropy: Option<Vec<f32>>,
    mean_logprob: Option<Vec<f32>>,
}

impl SeedValues {
    /// The numbers of `[rows, width]` seeds. Errors: another shape.
    pub(super) fn read(seeds: &Seeds, rows: &Rows) -> Result<Self> {
        let read = |seed: Option<&Tensor>| seed.map(|seed| numbers(seed, rows)).transpose();
        Ok(Self {
            logprob: read(seeds.logprob.as_ref())?,
            entropy: read(seeds.entropy.as_ref())?,
            mean_logprob: read(seeds.mean_logprob.as_ref())?,
        })
    }

    /// The seeds of a slice's targets; nothing when all of them are 0.
    pub(super) fn of(&self, packing: &Packing) -> Option<Self> {
        let gather = |all: Option<&Vec<f32>>| all.map(|all| packing.gather(all));
        let own = Self {
            logprob: gather(self.logprob.as_ref()),
            entropy: gather(self.entropy.as_ref()),
            mean_logprob: gather(self.mean_logprob.as_ref()),
        };
        let all = [&own.logprob, &own.entropy, &own.mean_logprob];
        let nothing = all.into_iter().flatten().flatten().all(|seed| *seed == 0.0);
        (!nothing).then_some(own)
    }

    /// As the head takes them.
    pub(super) fn head(&self) -> TapGradients<'_> {
        TapGradients {
            logprob: self.logprob.as_deref(),
            entropy: self.entropy.as_deref(),
            mean_logprob: self.mean_logprob.as_deref(),
        }
    }
}

fn numbers(seed: &Tensor, rows: &Rows) -> Result<Vec<f32>> {
    let (count, width) = (rows.count(), rows.width());
    if seed.dims() != [count, width] {
        return Err(Error::Argument(format!(
            "seeds of shape {:?} for scores of shape [{count}, {width}]",
            seed.dims()
        )));
    }
    Ok(seed.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?)
}
