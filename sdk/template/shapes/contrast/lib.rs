//! What this method does, in a sentence.
//!
//! d = mean(a of positive texts) − mean(a of negative texts), with a the activations at the output of a layer, averaged
//! over the answer. The run writes d as a steering vector; the weights stay as they are. Put a direction of your own
//! into `direction`.

use tunebox::contrast::Means;
use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
use tunebox::tensor::Dtype;

/// What people may set in `[method]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Options {
    /// The layers that get a direction, counted from 0; empty for the middle one.
    #[setting(default = [])]
    layers: Vec<u32>,
}

/// The means so far.
#[derive(Default)]
pub struct Contrast {
    layers: Vec<u32>,
    positive: Means,
    negative: Means,
}

impl Method for Contrast {
    type Settings = Options;

    fn init(settings: Options) -> Result<Self> {
        let middle = vec![hidden::layers() / 2];
        let layers = if settings.layers.is_empty() { middle } else { settings.layers };
        Ok(Self { layers, ..Self::default() })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        for (side, means) in [("positive", &mut self.positive), ("negative", &mut self.negative)] {
            let rows = batch.rows(side)?;
            if rows.count() > 0 {
                means.add(&hidden::capture(&policy(), &rows, &self.layers, Site::ResidualAfter, Token::TargetMean)?);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let (Some(positive), Some(negative)) = (self.positive.mean(), self.negative.mean()) else {
            return Err(Error::new("texts of both sides are needed; a run that was resumed has to start anew"));
        };
        let directions = direction(&positive, &negative).cast(Dtype::F32); // [layers, dimension]
        for (place, layer) in (0..).zip(&self.layers) {
            let own = directions.slice(0, place, 1).squeeze(0);
            hidden::publish(*layer, Site::ResidualAfter, Token::TargetMean, &own, 1.0)?;
        }
        metric("norm", directions.norm(-1).mean(All));
        Ok(())
    }
}

/// The direction of each layer from the means of both sides, all of them `[layers, dimension]`, `f64`.
fn direction(positive: &Tensor, negative: &Tensor) -> Tensor {
    positive - negative
}

method! {
    Contrast,
    shape: "contrast",
    metrics: ["norm"],
}
