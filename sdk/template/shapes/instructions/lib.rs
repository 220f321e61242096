//! What this method does, in a sentence.
//!
//! d = mean(a of harmful texts) − mean(a of harmless texts), with a the activations at the output of a layer,
//! at the last token. The run writes d as a steering vector; the weights stay as they are. Put a direction
//! of your own into `direction`.

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
pub struct Instructions {
    layers: Vec<u32>,
    harmful: Means,
    harmless: Means,
}

impl Method for Instructions {
    type Settings = Options;

    fn init(settings: Options) -> Result<Self> {
        let middle = vec![hidden::layers() / 2];
        let layers = if settings.layers.is_empty() { middle } else { settings.layers };
        Ok(Self { layers, ..Self::default() })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        for (side, means) in [("harmful", &mut self.harmful), ("harmless", &mut self.harmless)] {
            let rows = batch.rows(side)?;
            if rows.count() > 0 {
                means.add(&hidden::capture(&policy(), &rows, &self.layers, Site::ResidualAfter, Token::FromEnd(0))?);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let (Some(harmful), Some(harmless)) = (self.harmful.mean(), self.harmless.mean()) else {
            return Err(Error::new("texts of both sides are needed; a run that was resumed has to start anew"));
        };
        let directions = direction(&harmful, &harmless).cast(Dtype::F32); // [layers, dimension]
        for (place, layer) in (0..).zip(&self.layers) {
            let own = directions.slice(0, place, 1).squeeze(0);
            hidden::publish(*layer, Site::ResidualAfter, Token::FromEnd(0), &own, 1.0)?;
        }
        metric("norm", directions.norm(-1).mean(All));
        Ok(())
    }
}

/// The direction of each layer from the means of both sides, all of them `[layers, dimension]`, `f64`.
fn direction(harmful: &Tensor, harmless: &Tensor) -> Tensor {
    harmful - harmless
}

method! {
    Instructions,
    shape: "instructions",
    metrics: ["norm"],
}
