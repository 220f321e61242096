//! The effect of directions added to the residual stream: how much likelier one kind of text becomes than another.

use std::ops::Range;

use crate::hidden::Site;
use crate::model::{Taps, policy, score};
use crate::patch::{self, Patch};
use crate::tensor::All;
use crate::{Result, Rows, Tensor};

/// Adds `coefficient` times each direction of `[layers, dimension]` to the output of its block in `layers`, until the
/// returned patches are dropped.
#[track_caller]
pub fn add_directions(directions: &Tensor, layers: Range<u32>, coefficient: f32) -> Result<Vec<Patch>> {
    let add = |(place, layer)| {
        let direction = directions.slice(0, place, 1).squeeze(0);
        patch::add(&[layer], Site::ResidualAfter, &direction, coefficient, false)
    };
    (0..).zip(layers).map(add).collect()
}

/// The mean log-probability per target token of the first rows of all pairs minus that of the second ones, in nats. One
/// forward pass for each of the two rows of a pair.
#[track_caller]
pub fn lead(pairs: &[[Rows; 2]]) -> Result<f32> {
    let mut means = [0.0; 2];
    for (side, mean) in means.iter_mut().enumerate() {
        let (mut sum, mut targets) = (0.0, 0);
        for pair in pairs {
            sum += score(&policy(), &pair[side], Taps::empty(), 1.0)?.logprob().sum(All).item()?;
            targets += pair[side].targets();
        }
        *mean = sum / targets.max(1) as f32;
    }
    Ok(means[0] - means[1])
}
