//! Principal components of differences, for many layers at once.
//!
//! By powers of the small matrix D Dᵀ: squared k times it has turned 2ᵏ times towards its first eigenvector, however
//! slowly a single step converges. Everything is in `f64`.

use crate::Tensor;
use crate::tensor::{Dtype, Keep, matmul};

/// Squarings; 2¹⁶ steps of power iteration tell components apart whose variances differ by a few parts in 10⁴.
const SQUARINGS: u32 = 16;

/// The first principal component of differences `[layers, pairs, dimension]`, at length 1: `[layers, dimension]`,
/// `f32`. `centred` takes the mean difference away first, which leaves how pairs differ among themselves;
/// without it the component is mostly the mean difference itself. The sign is open; see [`majority`].
#[track_caller]
pub fn principal(differences: &Tensor, centred: bool) -> Tensor {
    let rows = differences.cast(Dtype::F64);
    let rows = if centred { &rows - rows.mean(Keep(1)) } else { rows };
    let turned = rows.transpose(1, 2); // [layers, dimension, pairs]
    let mut power = scale_to_one(&matmul(&rows, &turned)); // [layers, pairs, pairs]
    for _ in 0..SQUARINGS {
        power = scale_to_one(&matmul(&power, &power));
    }
    // Every column points to the same eigenvector by now; the one that holds most of it is the least rounded.
    let columns = power.square().sum(Keep(1)); // [layers, 1, pairs]
    let [layers, pairs] = [differences.shape()[0], differences.shape()[1]];
    let best = columns.argmax(Keep(2)).expand(&[layers, pairs, 1]);
    let weights = power.gather(2, &best); // [layers, pairs, 1]
    let component = matmul(&turned, &weights).squeeze(2); // [layers, dimension]
    let length = component.norm(Keep(1)).clamp(Some(f64::MIN_POSITIVE), None);
    (component / length).cast(Dtype::F32)
}

/// Divides each layer's matrix by its largest absolute entry, so that powers stay finite; zero matrices stay zero.
#[track_caller]
fn scale_to_one(matrices: &Tensor) -> Tensor {
    let largest = matrices.abs().max(Keep(1)).max(Keep(2)); // [layers, 1, 1]
    matrices / largest.clamp(Some(f64::MIN_POSITIVE), None)
}

/// The fraction of pairs whose difference has a positive dot product with the direction of its layer: `[layers]`.
/// `differences` are `[layers, pairs, dimension]`, `directions` `[layers, dimension]`.
#[track_caller]
pub fn separation(differences: &Tensor, directions: &Tensor) -> Tensor {
    dot_products(differences, directions).greater(0.0).cast(Dtype::F32).mean(1)
}

/// Flips each direction, `[layers, dimension]`, that most differences oppose; at a tie, that their sum opposes.
#[track_caller]
pub fn majority(differences: &Tensor, directions: &Tensor) -> Tensor {
    let along = dot_products(differences, directions); // [layers, pairs]
    let votes = along.greater(0.0).cast(Dtype::F32).mean(Keep(1)) - along.less(0.0).cast(Dtype::F32).mean(Keep(1));
    let tie = votes.equal(0.0).cast(Dtype::F32) * along.sum(Keep(1));
    let sign = (votes + tie).less(0.0).cast(Dtype::F32) * -2.0 + 1.0; // [layers, 1]
    directions * sign
}

/// The dot product of each difference with the direction of its layer: `[layers, pairs]`.
#[track_caller]
fn dot_products(differences: &Tensor, directions: &Tensor) -> Tensor {
    matmul(differences, &directions.unsqueeze(2)).squeeze(2)
}
