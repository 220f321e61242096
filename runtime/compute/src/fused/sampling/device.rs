//! The choice of a token as one launch for all rows, and one wait for what was chosen.

use candle_core::{DType, Tensor};

use super::{SampledToken, SamplingOptions, no_logits, not_finite};
use crate::accelerator::{Accelerator, Grid, arguments, extent, kernel};
use crate::error::{Error, Result};
use crate::fused::host;
use crate::random::Stream;

/// Words that the kernel has room for: TILES · TILE_WORDS of `kernels/chance.h`.
const WORDS: usize = 512 * 1024;
/// Words of a stream: its key, and its position.
const STREAM: usize = 10;
const THREADS: u32 = 1024;

/// Chooses one word for each row of logits on a device: one launch for all rows, then a wait for the choices. Returns
/// `None` for more than [`WORDS`] words.
pub(super) fn sample_tokens<'a>(
    device: &Accelerator,
    logits: &Tensor,
    streams: impl Iterator<Item = &'a Stream>,
    choosing: &SamplingOptions,
) -> Result<Option<Vec<SampledToken>>> {
    let (rows, words) = host::matrix(logits, "logits")?;
    if words == 0 {
        return Err(no_logits());
    }
    if words > WORDS {
        return Ok(None);
    }
    let streams: Vec<u32> = streams.flat_map(stream_words).collect();
    if streams.len() != rows * STREAM {
        return Err(Error::shape(format!("{} streams for {rows} rows of logits", streams.len() / STREAM)));
    }
    let streams = device.upload(&streams, &[rows, STREAM])?;
    let arguments = arguments![
        logits,
        &streams,
        words, // More than there are words is all of them.
        u32::try_from(choosing.top_k).unwrap_or(u32::MAX),
        choosing.top_p,
        choosing.min_p,
        u32::from(choosing.greedy)
    ];
    let grid = Grid::of(extent(rows)?, THREADS);
    let choices = device.compute(&kernel::CHOOSE, DType::F32, grid, &[rows, 2], &arguments)?;
    let found = device.download::<u32>(&choices)?;
    let chosen = found.as_chunks::<2>().0.iter().map(|[id, bits]| {
        let logprob = f32::from_bits(*bits);
        // The logit itself stands there where one is not finite.
        if logprob.is_finite() { Ok(SampledToken { id: *id, logprob }) } else { Err(not_finite(*id as usize, logprob)) }
    });
    chosen.collect::<Result<_>>().map(Some)
}

/// Returns a stream as the kernel takes it: the eight words of its key, then the low and the high word of its position.
fn stream_words(stream: &Stream) -> [u32; STREAM] {
    let (key, position) = (stream.key(), stream.position());
    std::array::from_fn(|at| match at {
        8 => position as u32,
        9 => (position >> 32) as u32,
        _ => key[at],
    })
}
