//! Directions added to the stream while a model runs.

use std::ops::RangeInclusive;

use super::Vectors;
use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::stream::{Patch, Site};

impl Policy {
    /// Activates a patch that adds `coefficient` · direction to the output of each block in `layers` for which there is
    /// a direction, at every token. Skips layers without a direction.
    ///
    /// # Errors
    /// When the vectors are for a model of other sizes, or none is for a layer in `layers`.
    pub fn steer(&mut self, vectors: &Vectors, coefficient: f32, layers: &RangeInclusive<usize>) -> Result<()> {
        let configuration = &self.model().configuration;
        let (width, count) = (configuration.hidden, configuration.layers);
        if vectors.width() != width {
            let found = vectors.width();
            return Err(Error::Argument(format!(
                "the directions have {found} numbers, the model's stream is {width} wide: they are for another model"
            )));
        }
        if let Some(layer) = vectors.layers.keys().find(|layer| **layer >= count) {
            return Err(Error::Argument(format!(
                "there is a direction for layer {layer}, the model's layers are 0 to {}: they are for another model",
                count.saturating_sub(1)
            )));
        }
        let mut chosen = vectors.layers.range(layers.clone()).peekable();
        if chosen.peek().is_none() {
            let known: Vec<String> = vectors.layers.keys().map(ToString::to_string).collect();
            let (first, last) = (layers.start(), layers.end());
            return Err(Error::Argument(format!(
                "no direction is for layers {first} to {last}; there are those of {}",
                known.join(", ")
            )));
        }
        for (layer, vector) in chosen {
            self.patch(Patch::add(vec![*layer], Site::ResidualAfter, vector, coefficient, false)?)?;
        }
        Ok(())
    }
}
