//! Noise on the embeddings of the tokens while training (NEFTune, Jain et al. 2023).

use rayon::prelude::*;
use tunebox_compute::fused;
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use super::packing::Packing;
use crate::error::Result;

/// Uniform noise on the embeddings of rows that are scored for learning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingNoise {
    /// The noise on a row of L tokens lies within ± alpha ÷ √(L · hidden size).
    pub alpha: f64,
    /// The seed of the run.
    pub seed: u64,
}

impl EmbeddingNoise {
    /// Adds noise to the scaled embeddings `[tokens, hidden]` of packed rows, as the hook of transformers and TRL does
    /// for each row alone, without padding: L counts all tokens of the row, also those that the packing leaves out.
    /// Equal numbers in `pass` give equal noise. The numbers are drawn on the CPU, so they are equal on every device.
    pub(crate) fn add(&self, embeddings: &Tensor, packing: &Packing, pass: (u64, u64)) -> Result<Tensor> {
        let (tokens, hidden) = embeddings.dims2()?;
        let name = format!("neftune/{}/{}", pass.0, pass.1);
        let bound = |length: usize| (self.alpha / ((length * hidden) as f64).sqrt()) as f32;
        let lengths = packing.row_lengths.iter().zip(packing.segments.ranges());
        let bounds: Vec<f32> = lengths.flat_map(|(length, range)| range.map(|_| bound(*length))).collect();
        let mut noise = vec![0.0_f32; tokens * hidden];
        noise.par_chunks_mut(hidden).zip(&bounds).enumerate().for_each(|(token, (row, bound))| {
            // A number takes one word of the stream, so the index of a token gives the position of its numbers.
            let mut stream = Stream::at(self.seed, &name, ((packing.first_token + token) * hidden) as u64);
            row.iter_mut().for_each(|number| *number = (2.0 * stream.uniform() - 1.0) * bound);
        });
        let noise = Tensor::from_vec(noise, (tokens, hidden), &Device::Cpu)?.to_dtype(embeddings.dtype())?;
        Ok(fused::add(embeddings, &noise.to_device(embeddings.device())?)?)
    }
}
