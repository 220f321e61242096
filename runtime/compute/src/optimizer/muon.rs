//! Muon (Jordan 2024) as `torch.optim.Muon` computes it, but in f32: the momentum of a matrix, made nearly orthogonal.
//!
//! It is for the hidden matrices. Vectors, the token embedding and the output head are updated by AdamW with the same
//! learning rate.

use candle_core::{DType, Tensor};

use super::adamw::AdamWSettings;
use super::part::{StateTensor, View, each_piece};
use crate::error::Result;
use crate::fused::Floats;
use crate::parameters::square_sum;

/// The smallest divisor in the normalization of a matrix, so that a matrix of zeros stays 0.
const EPSILON: f64 = 1e-7;
/// The coefficients of the Newton-Schulz iteration X ← aX + (bXXᵀ + c(XXᵀ)²)X.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// The number of iterations.
const ITERATIONS: usize = 5;

/// The hyperparameters of Muon. The defaults are torch's, except for a weight decay of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonSettings {
    /// The share of the momentum that a step keeps, in [0, 1).
    pub momentum: f64,
    /// Whether a step takes the mean of gradient and new momentum, weighted by `momentum`, instead of the new momentum.
    pub nesterov: bool,
    /// Settings of AdamW, which updates everything but hidden matrices. Its decoupled weight decay also applies to the
    /// matrices.
    pub adamw: AdamWSettings,
}

impl Default for MuonSettings {
    /// torch's defaults, but without weight decay.
    fn default() -> Self {
        Self { momentum: 0.95, nesterov: true, adamw: AdamWSettings::default() }
    }
}

impl MuonSettings {
    /// Whether the momentum and the settings of AdamW are in the ranges that their fields state.
    pub(super) fn is_valid(&self) -> bool {
        (0.0..1.0).contains(&self.momentum) && self.adamw.is_valid()
    }

    /// The state for numbers of a shape: the momentum of a matrix `[rows, columns]`, the moments of AdamW for anything
    /// else.
    pub(super) fn state(shape: &[usize]) -> Vec<StateTensor> {
        match shape {
            [rows, columns] => vec![("momentum", DType::F32, rows * columns)],
            _ => AdamWSettings::state(shape.iter().product()),
        }
    }

    /// Updates a hidden matrix and its momentum by one step, and anything else by AdamW. Overwrites the gradients of a
    /// matrix.
    ///
    /// M ← μM + (1−μ)G; D = M, or (1−μ)G + μM for Nesterov's variant; W ← W − rate·λ·W − rate·√max(1, rows /
    /// columns)·O, where O is D made orthogonal and λ the weight decay.
    pub(super) fn update(&self, view: &View<'_>) -> Result<()> {
        let &[rows, columns] = view.shape else { return self.adamw.update(view) };
        let ([mu, take], nesterov) = ([self.momentum, 1.0 - self.momentum].map(|number| number as f32), self.nesterov);
        each_piece([&view.gradients, &view.state[0]], |[gradients, momentum]| {
            for (g, m) in gradients.iter_mut().zip(momentum) {
                *m = mu * *m + take * *g;
                *g = if nesterov { take * *g + mu * *m } else { *m };
            }
        })?;
        let direction = orthogonalize(&view.gradients.reshape((rows, columns))?)?.flatten_all()?;
        let adjusted = view.rate * (rows as f64 / columns as f64).max(1.0).sqrt();
        let [keep, rate] = [1.0 - view.rate * self.adamw.weight_decay, adjusted].map(|number| number as f32);
        each_piece([&view.values, &direction], |[values, direction]| {
            for (value, d) in values.iter_mut().zip(direction) {
                *value = keep * *value - rate * *d;
            }
        })
    }
}

/// Returns a new contiguous matrix with the singular vectors of `matrix` (f32, contiguous, on the CPU) and singular
/// values near 1: divides by the Frobenius norm, then runs [`ITERATIONS`] of Newton-Schulz on the wide side.
fn orthogonalize(matrix: &Tensor) -> Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let norm = square_sum(&Floats::of(matrix, "gradients")?).sqrt();
    let wide = if rows > columns { matrix.t()?.contiguous()? } else { matrix.clone() };
    let [a, b, c] = COEFFICIENTS;
    let mut x = (wide * (1.0 / norm.max(EPSILON)))?;
    for _ in 0..ITERATIONS {
        let gram = x.matmul(&x.t()?)?;
        let polynomial = ((&gram * b)? + (gram.matmul(&gram)? * c)?)?;
        x = ((&x * a)? + polynomial.matmul(&x)?)?;
    }
    Ok(if rows > columns { x.t()?.contiguous()? } else { x })
}
