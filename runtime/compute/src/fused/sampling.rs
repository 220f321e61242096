//! Sampling of next tokens: on a device by a kernel that does not copy the logits; for the CPU, the weights of all
//! tokens.

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::backend::accelerator_of;
use super::host::{self, Floats};
use super::simd::{exp_in_place, largest, vectorize};
use crate::accelerator::{Grid, arguments, extent, kernel};
use crate::error::{Error, Result};
use crate::random::Stream;

/// The largest vocabulary that the kernel has room for: TILES · TILE_WORDS of `kernels/chance.h`.
const WORDS: usize = 512 * 1024;
/// 32-bit words of a random stream as the kernel reads it: eight of its key, two of its position.
const STREAM: usize = 10;
/// Threads of the block that samples from one row.
const THREADS: u32 = 1024;

/// The tokens of the vocabulary that may be sampled. The filters apply in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Of these, keeps the most likely tokens that together hold this share of their probability, in (0, 1].
    pub top_p: f32,
    /// Of these, keeps the tokens with at least this share of the most likely one's probability, in [0, 1].
    pub min_p: f32,
    /// Takes the most likely token and ignores the filters. Its log-probability is then that among all tokens.
    pub greedy: bool,
}

/// A sampled token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledToken {
    /// The token id.
    pub id: u32,
    /// The natural logarithm of its probability among the tokens that could be sampled.
    pub logprob: f32,
}

/// Samples one token for each row of logits on their device. `logits` are `[rows, vocabulary]` f32, already divided by
/// the temperature, and are overwritten. `streams` gives each row its random stream at the position of its draw; the
/// caller still has to advance each stream by one draw (two words). Returns the tokens in the order of the rows. Waits
/// for the device. Copies forty bytes to the device and eight back for each row, but not the logits.
///
/// Returns `None`, without a side effect, where the caller has to sample by [`map_rows`] and [`token_weights`]: on the
/// CPU, and for a vocabulary of more than 524,288 tokens, for which the kernel has no room. A device samples the token
/// that the CPU would for the same logits, unless a draw lies within some 10⁻¹³ of the border between two tokens.
///
/// # Errors
/// If a logit is not finite ([`Error::NonFinite`]), the vocabulary is empty, there is not one stream for each row, or
/// the device fails. Values of `options` outside of their ranges are not checked.
pub fn sample_tokens<'a>(
    logits: &Tensor,
    streams: impl Iterator<Item = &'a Stream>,
    options: &SamplingOptions,
) -> Result<Option<Vec<SampledToken>>> {
    let Some(device) = accelerator_of([(logits, "logits")])? else { return Ok(None) };
    let (rows, words) = host::matrix_dims(logits, "logits")?;
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
    let SamplingOptions { top_k, top_p, min_p, greedy } = *options;
    // More than there are words is all of them.
    let top_k = u32::try_from(top_k).unwrap_or(u32::MAX);
    let arguments = arguments![logits, &streams, words, top_k, top_p, min_p, u32::from(greedy)];
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

/// The unnormalized probabilities of all tokens of a vocabulary.
#[derive(Debug, Clone, Default)]
pub struct TokenWeights {
    /// The id of the token with the largest logit, the lowest of equals.
    pub best: u32,
    /// e^(logit − the largest logit) of every token, so that of the best one is 1.
    pub weights: Vec<f32>,
    /// The sum of `weights`.
    pub total: f64,
}

/// Computes e^(logit − the largest logit) of every token and the sum of these weights, given one row of logits,
/// `[vocabulary]`.
///
/// # Errors
/// [`Error::NonFinite`], which names the first such token, if a logit is not finite; [`Error::Shape`] if there are no
/// logits.
pub fn token_weights(logits: &[f32]) -> Result<TokenWeights> {
    let top = vectorize!(largest(logits));
    // `largest` skips NaN, so all logits are checked separately.
    let broken = vectorize!(logits.iter().fold(false, |broken, logit| broken | !logit.is_finite()));
    if broken {
        let at = logits.iter().position(|logit| !logit.is_finite()).unwrap_or(0);
        return Err(not_finite(at, logits[at]));
    }
    let Some(best) = logits.iter().position(|logit| *logit == top) else {
        return Err(no_logits());
    };
    let mut weights = logits.to_vec();
    vectorize!(exp_in_place(&mut weights, top));
    let total = vectorize!(sum_in_f64(&weights));
    Ok(TokenWeights { best: best as u32, weights, total })
}

/// Creates the [`Error::NonFinite`] for the logit of token id `token`, which is not finite.
fn not_finite(token: usize, logit: f32) -> Error {
    Error::NonFinite(format!("the logit of token `{token}` is `{logit}`; the model's weights or adapter have diverged"))
}

/// Creates the [`Error::Shape`] for an empty vocabulary.
fn no_logits() -> Error {
    Error::shape("there are no logits to choose from")
}

/// Sums numbers in f64: adds number i of each whole group of 32 to sum i, then adds the 32 sums and the remaining
/// numbers.
#[inline(always)]
fn sum_in_f64(numbers: &[f32]) -> f64 {
    const LANES: usize = 32;
    let mut lanes = [0f64; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += f64::from(chunk[lane]);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().copied().map(f64::from).sum::<f64>()
}

/// Calls `work(index, row)` for each row of an f32 matrix, in parallel, and returns the results in the order of the
/// rows. A matrix on a device is first copied to the host as a whole. Without columns, `work` is not called.
///
/// # Errors
/// If the tensor is no contiguous matrix of f32. If `work` fails for a row, the error of the first such row; `work` is
/// called for the other rows nevertheless.
pub fn map_rows<R: Send, E: From<Error> + Send>(
    matrix: &Tensor,
    work: impl Fn(usize, &[f32]) -> std::result::Result<R, E> + Sync,
) -> std::result::Result<Vec<R>, E> {
    let (_, width) = host::matrix_dims(matrix, "matrix")?;
    let (downloaded, locked);
    let numbers: &[f32] = match accelerator_of([(matrix, "matrix")])? {
        None => {
            locked = Floats::of(matrix, "matrix")?;
            &locked
        }
        Some(device) => {
            downloaded = device.download::<f32>(matrix)?;
            &downloaded
        }
    };
    let rows = numbers.par_chunks(width.max(1)).enumerate();
    // Collected first, so that of several errors the first row's is returned, whichever thread came first.
    let found: Vec<_> = rows.map(|(row, numbers)| work(row, numbers)).collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::parity::on_each_device;

    const OPEN: SamplingOptions = SamplingOptions { top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false };

    on_each_device! {
        fn a_device_chooses_and_the_cpu_leaves_it_to_the_caller(on) tolerance(0.0, 0.0) {
            let logits = || on.put(&Tensor::new(&[[0f32, 80.0, 0.0], [-90.0, 0.0, -90.0]], &Device::Cpu).unwrap());
            let streams = [Stream::new(1, "a"), Stream::new(1, "b")];
            for choosing in [OPEN, SamplingOptions { greedy: true, ..OPEN }, SamplingOptions { top_k: 2, ..OPEN }] {
                let found = sample_tokens(&logits(), streams.iter(), &choosing).unwrap();
                let expected = vec![SampledToken { id: 1, logprob: 0.0 }; 2];
                assert_eq!(found, (!on.device.is_cpu()).then_some(expected), "{choosing:?}");
            }
            let one = sample_tokens(&logits(), streams.iter().take(1), &OPEN);
            assert_eq!(one.is_err(), !on.device.is_cpu(), "two rows and one stream");
        }

        fn a_device_names_the_logit_that_is_not_finite(on) tolerance(0.0, 0.0) {
            let logits = [[0f32, 1.0, 2.0], [0.0, f32::NEG_INFINITY, f32::NAN]];
            let logits = on.put(&Tensor::new(&logits, &Device::Cpu).unwrap());
            let streams = [Stream::new(1, "a"), Stream::new(1, "b")];
            match sample_tokens(&logits, streams.iter(), &OPEN) {
                Ok(found) => assert!(on.device.is_cpu() && found.is_none()),
                Err(error) => assert!(error.to_string().contains("token `1` is `-inf`"), "{error}"),
            }
        }

        /// More tokens than a device chooses among: the caller gets the rows.
        fn rows_of_any_device_come_to_the_host(on) tolerance(0.0, 0.0) {
            let words = 524_289;
            let numbers: Vec<f32> = (0..2 * words).map(|number| number as f32).collect();
            let logits = on.put(&Tensor::from_vec(numbers, (2, words), &Device::Cpu).unwrap());
            let streams = [Stream::new(1, "a"), Stream::new(1, "b")];
            assert_eq!(sample_tokens(&logits, streams.iter(), &OPEN).unwrap(), None);
            let ends = |row: usize, numbers: &[f32]| Ok::<_, Error>((row, numbers[0], numbers[words - 1]));
            let found = map_rows(&logits, ends).unwrap();
            assert_eq!(found, [(0, 0.0, 524_288.0), (1, 524_289.0, 1_048_577.0)]);
        }
    }

    #[test]
    fn the_best_is_the_first_of_equals_and_weighs_one() {
        let found = token_weights(&[0.5, 2.0, -1.0, 2.0]).unwrap();
        assert_eq!((found.best, found.weights[1], found.weights[3]), (1, 1.0, 1.0));
        assert!((f64::from(found.weights[0]) - (-1.5f64).exp()).abs() < 1e-7);
        assert_eq!(found.total, found.weights.iter().copied().map(f64::from).sum::<f64>());
        assert_eq!(sum_in_f64(&[0.5; 75]), 37.5);
    }

    #[test]
    fn what_is_not_a_number_is_named() {
        let error = token_weights(&[0.0, f32::NAN, f32::INFINITY]).unwrap_err().to_string();
        assert!(error.contains("token `1`"), "{error}");
        assert!(token_weights(&[]).is_err());
    }
}
