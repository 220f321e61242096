//! Mixtures of experts (Shazeer et al. 2017; Fedus et al. 2021): the choice of each token's experts from the router's
//! logits, the weighted sum of the experts' outputs, and the gradients of both.
//!
//! Leaves the experts themselves to the caller, who runs each over the tokens of its [`ExpertTokens`]. Runs on the CPU
//! only. Every number of a token is computed from that token's numbers alone and in a fixed order, so a token has the
//! same bits alone and in a batch.

use candle_core::Tensor;
use rayon::prelude::*;

use super::chunks::map_chunks;
use super::host::{self, Floats};
use super::indices::Indices;
use super::simd::{dot, exp_in_place, largest, vectorize};
use crate::error::{Error, Result};

/// Tokens of one task.
const TASK_TOKENS: usize = 64;

/// The experts of each token and their weights, by expert.
#[derive(Debug)]
pub struct Routes {
    /// The experts that have tokens, in ascending order.
    groups: Vec<ExpertTokens>,
    /// Whether the weights of a token's experts were divided by their sum.
    normalized: bool,
}

/// The tokens of one expert.
#[derive(Debug)]
pub struct ExpertTokens {
    /// The index of the expert.
    pub expert: usize,
    /// The tokens, in ascending order; at least one.
    pub tokens: Indices,
    /// The weight of the expert in the sum of each of these tokens.
    pub weights: Vec<f32>,
}

/// Chooses the experts of each token from the router's logits, `[tokens, experts]` f32 or bf16: the `active` experts
/// with the largest softmax over all experts, in f32, of equal ones the lower index. That softmax is the expert's
/// weight; with `normalized`, it is divided by the sum over the token's experts. Returns an error unless `active` is
/// from 1 to the number of experts.
pub fn route(logits: &Tensor, active: usize, normalized: bool) -> Result<Routes> {
    let (tokens, experts) = host::matrix_dims(logits, "logits")?;
    if active == 0 || active > experts {
        return Err(Error::argument(format!("`{active}` experts of a token are asked for, there are `{experts}`")));
    }
    let logits = &*Floats::activations(logits, "logits")?;
    let mut chosen = vec![(0_u32, 0_f32); tokens * active];
    let rows = chosen.par_chunks_mut(active).zip(logits.par_chunks(experts));
    rows.with_min_len(TASK_TOKENS).for_each(|(chosen, logits)| choose(chosen, softmax(logits), normalized));
    let mut groups = vec![(Vec::new(), Vec::new()); experts];
    for (token, chosen) in (0_u32..).zip(chosen.chunks_exact(active)) {
        for (expert, weight) in chosen {
            let (tokens, weights) = &mut groups[*expert as usize];
            tokens.push(token);
            weights.push(*weight);
        }
    }
    let group = |(expert, (tokens, weights)): (usize, (Vec<u32>, Vec<f32>))| {
        (!tokens.is_empty()).then(|| ExpertTokens { expert, tokens: tokens.into(), weights })
    };
    Ok(Routes { groups: groups.into_iter().enumerate().filter_map(group).collect(), normalized })
}

/// The softmax of one token's logits.
fn softmax(logits: &[f32]) -> Vec<f32> {
    let mut shares = logits.to_vec();
    vectorize!({
        let sum = exp_in_place(&mut shares, largest(logits));
        shares.iter_mut().for_each(|share| *share /= sum);
    });
    shares
}

/// Writes the experts with the largest shares and their weights, as many as `chosen` has room for, in ascending order
/// of the experts.
fn choose(chosen: &mut [(u32, f32)], shares: Vec<f32>, normalized: bool) {
    let mut order: Vec<(u32, f32)> = (0..).zip(shares).collect();
    order.select_nth_unstable_by(chosen.len() - 1, |(a, one), (b, other)| other.total_cmp(one).then(a.cmp(b)));
    chosen.copy_from_slice(&order[..chosen.len()]);
    chosen.sort_unstable_by_key(|(expert, _)| *expert);
    if normalized {
        let sum: f32 = chosen.iter().map(|(_, weight)| weight).sum();
        chosen.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
}

impl Routes {
    /// The experts that have tokens, in ascending order. Operations on all of them take and return tensors in this
    /// order.
    #[must_use]
    pub fn groups(&self) -> &[ExpertTokens] {
        &self.groups
    }

    /// The bytes of all token indices and weights.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.groups.iter().map(|group| group.tokens.len() * 8).sum()
    }

    /// Adds up the outputs of the experts, each times its weight in the token's sum: `outputs` has `[tokens, width]` of
    /// every group, the result is `[all tokens, width]`, shaped and typed like `like`. Sums in f32, in ascending order
    /// of the experts. Returns an error if shapes do not fit.
    pub fn mix(&self, outputs: &[Tensor], like: &Tensor) -> Result<Tensor> {
        self.combine(outputs, like, |group, row| group.weights[row])
    }

    /// Adds up the gradients of the rows that each expert read, as [`mix`](Self::mix) does, without weights: the
    /// gradient of the rows of all tokens.
    pub fn sum(&self, gradients: &[Tensor], like: &Tensor) -> Result<Tensor> {
        self.combine(gradients, like, |_, _| 1.0)
    }

    /// Adds up the rows of all groups that belong to a token, each times `factor(group, row)`, for each token.
    fn combine(
        &self,
        rows: &[Tensor],
        like: &Tensor,
        factor: impl Fn(&ExpertTokens, usize) -> f32 + Sync,
    ) -> Result<Tensor> {
        let (tokens, width) = host::matrix_dims(like, "like")?;
        if rows.len() != self.groups.len() {
            return Err(Error::shape(format!("rows of {} experts, tokens of {}", rows.len(), self.groups.len())));
        }
        let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); tokens];
        for (number, group) in self.groups.iter().enumerate() {
            host::expect_shape(&rows[number], "rows", &[group.tokens.len(), width])?;
            for (row, token) in group.tokens.iter().enumerate() {
                places[*token as usize].push((number, row));
            }
        }
        let rows = rows.iter().map(|rows| Floats::activations(rows, "rows")).collect::<Result<Vec<_>>>()?;
        let rows: Vec<&[f32]> = rows.iter().map(|rows| &**rows).collect();
        let mut sums = host::zeros::<f32>(tokens * width);
        sums.par_chunks_mut(width.max(1)).zip(&places).for_each(|(sum, places)| {
            for (number, row) in places {
                let (from, factor) = (&rows[*number][row * width..][..width], factor(&self.groups[*number], *row));
                vectorize!(sum.iter_mut().zip(from).for_each(|(sum, from)| *sum = from.mul_add(factor, *sum)));
            }
        });
        host::tensor_in(like.dtype(), sums, &[tokens, width])
    }

    /// The gradient of the router's logits, `[tokens, experts]` in the type of `logits`, which are those of [`route`].
    /// `weight_gradients` has those of every group's weights. The choice itself has no gradient.
    pub fn backward(&self, logits: &Tensor, weight_gradients: &[Vec<f32>]) -> Result<Tensor> {
        let (tokens, experts) = host::matrix_dims(logits, "logits")?;
        let entries = || {
            let groups = self.groups.iter().zip(weight_gradients);
            groups.flat_map(|(group, gradients)| {
                let weights = group.weights.iter().zip(gradients);
                group
                    .tokens
                    .iter()
                    .zip(weights)
                    .map(|(token, (weight, gradient))| (*token as usize, group.expert, *weight, *gradient))
            })
        };
        // The mean gradient of a token's weights, each weighted by its weight.
        let mut means = vec![0.0_f32; tokens];
        entries().for_each(|(token, _, weight, gradient)| means[token] += weight * gradient);
        let mut found = vec![0.0; tokens * experts];
        if !self.normalized {
            let logits = &*Floats::activations(logits, "logits")?;
            let rows = found.par_chunks_mut(experts).zip(logits.par_chunks(experts)).zip(&means);
            rows.with_min_len(TASK_TOKENS).for_each(|((found, logits), mean)| {
                found.iter_mut().zip(softmax(logits)).for_each(|(found, share)| *found = -share * mean);
            });
        }
        for (token, expert, weight, gradient) in entries() {
            found[token * experts + expert] = weight * (gradient - means[token]);
        }
        host::tensor_in(logits.dtype(), found, &[tokens, experts])
    }
}

/// Multiplies each row of `x`, `[rows, width]` f32 or bf16 on the CPU, by its factor. Returns an error unless there is
/// one factor for each row.
pub fn scale_rows(x: &Tensor, factors: &[f32]) -> Result<Tensor> {
    let (_, width) = host::matrix_dims(x, "x")?;
    host::expect_shape(x, "x", &[factors.len(), width])?;
    let [scaled] = map_chunks([(x, "x")], width.max(1), |row, [x], [scaled]| {
        let factor = factors[row];
        vectorize!(scaled.iter_mut().zip(x).for_each(|(scaled, x)| *scaled = x * factor));
    })?;
    scaled
}

/// Computes the dot product of each row of `a` with the same row of `b`, both `[rows, width]` f32 or bf16 on the CPU.
/// Returns an error if shapes differ.
pub fn row_dots(a: &Tensor, b: &Tensor) -> Result<Vec<f32>> {
    let (_, width) = host::matrix_dims(a, "a")?;
    host::expect_shape(b, "b", a.dims())?;
    let (a, b) = (&*Floats::activations(a, "a")?, &*Floats::activations(b, "b")?);
    let rows = a.par_chunks(width.max(1)).zip(b.par_chunks(width.max(1)));
    Ok(rows.with_min_len(TASK_TOKENS).map(|(a, b)| vectorize!(dot(a, b))).collect())
}

#[cfg(test)]
mod tests;
