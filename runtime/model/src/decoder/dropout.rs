//! Dropout whose mask is a function of its name, so that a second forward pass meets the same mask.
//! Leaves the naming of passes and places to `lens`.

use tunebox_compute::Tensor;
use tunebox_compute::random::Stream;

use crate::error::Result;

/// Dropout at one place of one pass.
#[derive(Debug, Clone)]
pub(crate) struct Dropout {
    /// The share of values that become 0, in `[0, 1)`.
    pub(crate) rate: f32,
    pub(crate) seed: u64,
    /// Names the pass and the place.
    pub(crate) name: String,
}

impl Dropout {
    /// Zeroes a share of the values and widens the others by 1/(1 − rate).
    pub(crate) fn apply(&self, values: &Tensor) -> Result<Tensor> {
        let mut stream = Stream::new(self.seed, &self.name);
        let widened = 1.0 / (1.0 - self.rate);
        let mask: Vec<f32> = stream
            .uniforms(values.elem_count())
            .into_iter()
            .map(|draw| if draw < self.rate { 0.0 } else { widened })
            .collect();
        let mask = Tensor::from_vec(mask, values.shape(), values.device())?;
        Ok((values * mask)?)
    }
}
