//! Muon (Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>), as `torch.optim.Muon`.

use super::{AdamW, subtract_with_decay};
use crate::optimizer::Parameter;
use crate::tensor::{All, matmul};
use crate::{Result, Tensor};

/// The coefficients of the Newton–Schulz iteration x ← ax + (b·xxᵀ + c·(xxᵀ)²)x.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Muon for matrices, AdamW for everything else. Torch's defaults, but without weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// The share of the momentum that a step keeps.
    pub momentum: f64,
    /// Whether a step looks ahead by the momentum.
    pub nesterov: bool,
    /// Newton–Schulz iterations.
    pub iterations: u32,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The optimizer of parameters that are no matrices.
    pub others: AdamW,
}

impl Default for Muon {
    fn default() -> Self {
        Self { momentum: 0.95, nesterov: true, iterations: 5, weight_decay: 0.0, others: AdamW::default() }
    }
}

impl Muon {
    /// One step with the parameter's gradient. Keeps the state `momentum`; of a vector, the states of [`AdamW`].
    #[track_caller]
    pub fn step(&self, parameter: &Parameter, rate: f64) -> Result<()> {
        self.step_with(parameter, &parameter.gradient(), rate)
    }

    /// One step with another gradient in the shape of the parameter.
    ///
    /// m ← μm + (1−μ)g; u = (1−μ)g + μm with Nesterov, else m; w ← w − rate·λ·w − rate · √max(1, rows / columns) ·
    /// orthogonalized(u).
    #[track_caller]
    pub fn step_with(&self, parameter: &Parameter, gradient: &Tensor, rate: f64) -> Result<()> {
        let [rows, columns] = parameter.shape()[..] else { return self.others.step_with(parameter, gradient, rate) };
        let own = gradient.scale(1.0 - self.momentum);
        let momentum = parameter.state("momentum").scale(self.momentum) + &own;
        parameter.set_state("momentum", &momentum)?;
        let update = if self.nesterov { own + momentum.scale(self.momentum) } else { momentum };
        let factor = (f64::from(rows) / f64::from(columns)).max(1.0).sqrt();
        let change = self.orthogonalize(update, rows > columns).scale(rate * factor);
        subtract_with_decay(parameter, change, rate, self.weight_decay)
    }

    /// Returns a matrix with singular values near 1 and the singular vectors of `matrix`, by Newton–Schulz iterations
    /// in `f32` (torch iterates in `bf16`). `is_tall`: it has more rows than columns.
    fn orthogonalize(&self, matrix: Tensor, is_tall: bool) -> Tensor {
        let [a, b, c] = COEFFICIENTS;
        let mut x = if is_tall { matrix.transpose(0, 1) } else { matrix };
        let norm = x.square().sum(All).sqrt();
        x = x / norm.add_scalar(1e-7);
        for _ in 0..self.iterations {
            let product = matmul(&x, &x.transpose(0, 1));
            let polynomial = product.scale(b) + matmul(&product, &product).scale(c);
            x = x.scale(a) + matmul(&polynomial, &x);
        }
        if is_tall { x.transpose(0, 1) } else { x }
    }
}
