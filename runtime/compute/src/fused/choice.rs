//! What choosing a next token needs of its logits, without a copy of them.

use candle_core::Tensor;
use rayon::prelude::*;

use super::host::{self, Floats};
use super::lanes::{exp_in_place, largest, wide};
use crate::error::{Error, Result};

/// How likely each word is, relative to the likeliest one.
#[derive(Debug, Clone, Default)]
pub struct Likelihoods {
    /// The word with the largest logit, the first of equals.
    pub best: u32,
    /// e^(logit − the largest logit) of every word, so that of the best one is 1.
    pub weights: Vec<f32>,
    /// Their sum.
    pub total: f64,
}

/// The likelihoods of one row of logits.
///
/// # Errors
/// When a logit is not finite, or there is none.
pub fn likelihoods(logits: &[f32]) -> Result<Likelihoods> {
    let top = wide(
        #[inline(always)]
        || largest(logits),
    );
    // Not a number is passed over by the largest, so every logit is looked at.
    let broken = wide(
        #[inline(always)]
        || logits.iter().fold(false, |broken, logit| broken | !logit.is_finite()),
    );
    if broken {
        let at = logits.iter().position(|logit| !logit.is_finite()).unwrap_or(0);
        let what =
            format!("the logit of token `{at}` is `{}`; the model's weights or adapter have diverged", logits[at]);
        return Err(Error::NonFinite(what));
    }
    let Some(best) = logits.iter().position(|logit| *logit == top) else {
        return Err(Error::shape("there are no logits to choose from"));
    };
    let mut weights = logits.to_vec();
    wide(
        #[inline(always)]
        || exp_in_place(&mut weights, top),
    );
    let total = wide(
        #[inline(always)]
        || sum(&weights),
    );
    Ok(Likelihoods { best: best as u32, weights, total })
}

/// Σ in double precision, lane by lane.
#[inline(always)]
fn sum(numbers: &[f32]) -> f64 {
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

/// What `work` makes of each row of a matrix, with the row's number; rows are shared among threads.
///
/// # Errors
/// When it is no matrix of f32, or a row fails.
pub fn each_row<R: Send, E: From<Error> + Send>(
    matrix: &Tensor,
    work: impl Fn(usize, &[f32]) -> std::result::Result<R, E> + Sync,
) -> std::result::Result<Vec<R>, E> {
    let (_, width) = host::matrix(matrix, "matrix")?;
    let floats = Floats::of(matrix, "matrix")?;
    let rows = floats.slice().par_chunks(width.max(1)).enumerate();
    // Gathered first, so that of several failures the first row's is told, whichever thread came first.
    let found: Vec<_> = rows.map(|(row, numbers)| work(row, numbers)).collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_first_of_equals_and_weighs_one() {
        let found = likelihoods(&[0.5, 2.0, -1.0, 2.0]).unwrap();
        assert_eq!((found.best, found.weights[1], found.weights[3]), (1, 1.0, 1.0));
        assert!((f64::from(found.weights[0]) - (-1.5f64).exp()).abs() < 1e-7);
        assert_eq!(found.total, found.weights.iter().copied().map(f64::from).sum::<f64>());
        assert_eq!(sum(&[0.5; 75]), 37.5);
    }

    #[test]
    fn what_is_not_a_number_is_named() {
        let error = likelihoods(&[0.0, f32::NAN, f32::INFINITY]).unwrap_err().to_string();
        assert!(error.contains("token `1`"), "{error}");
        assert!(likelihoods(&[]).is_err());
    }
}
