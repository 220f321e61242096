//! Means of captured activations, summed in `f64`, and directions made of them.

use crate::Tensor;
use crate::tensor::{Dtype, Keep};

/// A running mean of vectors, for many layers at once.
#[derive(Default)]
pub struct Means {
    sum: Option<Tensor>,
    count: u32,
}

impl Means {
    /// Adds the vectors of some rows, `[layers, rows, dimension]`, to the sum, in `f64`.
    #[track_caller]
    pub fn add(&mut self, captured: &Tensor) {
        let sum = captured.cast(Dtype::F64).sum(1); // [layers, dimension]
        self.count += captured.shape()[1];
        self.sum = Some(match self.sum.take() {
            Some(before) => before + sum,
            None => sum,
        });
    }

    /// How many vectors were added for each layer.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The mean of the added vectors in `f64`, `[layers, dimension]`; `None` before the first was added.
    #[track_caller]
    pub fn mean(&self) -> Option<Tensor> {
        self.sum.as_ref().map(|sum| sum.scale(1.0 / f64::from(self.count.max(1))))
    }
}

/// Subtracts from each row of `direction` its projection on the same row of `other`: r − (r·ô) ô. Both are
/// `[layers, dimension]` of one type.
#[track_caller]
pub fn remove_projection(direction: &Tensor, other: &Tensor) -> Tensor {
    let unit = other / other.norm(Keep(-1));
    let along = (direction * &unit).sum(Keep(-1)); // [layers, 1]
    direction - unit * along
}
