//! Builds the feed-forward half of a block with experts.

use super::{Matrix, Network};
use crate::configuration::Experts;
use crate::decoder::experts::{Expert, ExpertFeedForward};
use crate::decoder::linear::{Learned, Linear};
use crate::decoder::norm::InputNorm;
use crate::decoder::projection::{Projection, ResidualAddition};
use crate::error::Result;

impl Network<'_> {
    /// Builds the feed-forward half of a block with experts. Its router and experts have no adapters; full training
    /// trains them themselves.
    pub(super) fn build_experts(
        &self,
        layer: usize,
        sizes: &Experts,
        input_norm: InputNorm,
        addition: ResidualAddition,
    ) -> Result<ExpertFeedForward> {
        let linear = |module: &str| self.build_plain_linear(&format!("model.layers.{layer}.{module}"));
        let names = self.model.configuration.expert_names;
        let expert = |expert| {
            let [gate, up, down] = names.of_expert(expert);
            let linears = vec![linear(&gate)?, linear(&up)?];
            Ok(Expert { projection: Projection { linears, widths: Vec::new() }, down: linear(&down)? })
        };
        Ok(ExpertFeedForward {
            input_norm,
            router: linear(&names.router())?,
            experts: (0..sizes.count).map(expert).collect::<Result<_>>()?,
            active: sizes.active,
            normalized: sizes.normalized,
            activation: self.model.configuration.activation,
            addition,
        })
    }

    /// Builds a linear map without bias and adapter, by the path of its module. The map trains its weight in full
    /// training, else nothing.
    fn build_plain_linear(&self, path: &str) -> Result<Linear> {
        let Matrix { weight, slot } = self.matrix(&format!("{path}.weight"))?;
        let learned = slot.map_or(Learned::Nothing, |weight| Learned::Whole { weight, bias: None });
        Ok(Linear { weight, bias: None, learned, decoding: self.decoding })
    }
}
