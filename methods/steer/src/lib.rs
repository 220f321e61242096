//! Steering: computes a direction for each layer that separates two kinds of text, to add it during generation.
//!
//! For pairs with activations p and n at the output of a block: the mean of p − n (Rimsky et al. 2023), or the first
//! principal component of the differences, centered or not. The weights do not change; the artifact of the run is the
//! directions.

use std::ops::Range;

use tunebox::contrast;
use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
use tunebox::tensor::{self, Dtype};

/// Steering, and what people may set about it.
#[derive(Settings)]
pub struct Steering {
    /// How a direction is made of the differences: their `mean`; `pca`, their first principal component;
    /// `pca-centred`, the same after the mean was taken away, which is mostly about what else differs.
    #[setting(default = "mean")]
    direction: Direction,
    /// Which tokens are read: the `last` one, or the mean over the `answer`.
    #[setting(default = "answer")]
    read: Read,
    /// With `read = "last"`: so many tokens before the last one.
    #[setting(default = 0, low = 0, high = 64)]
    back: u32,
    /// The first layer with a direction, as a share of the depth.
    #[setting(default = 0.3, low = 0.0, high = 1.0)]
    from: f32,
    /// Where the layers with a direction end, likewise.
    #[setting(default = 0.7, above = 0.0, high = 1.0)]
    to: f32,
    /// Bring every direction to length 1; principal components have it already.
    #[setting(default = false)]
    unit: bool,
    /// What the directions are tried with, and what their file advises.
    #[setting(default = 1.0, above = 0.0, high = 1000.0)]
    coefficient: f32,
    /// Every so many batches one is kept out of the directions, to try them on; 0 keeps none, and so do prompts without
    /// answers.
    #[setting(default = 4, low = 0, high = 1000)]
    hold_out: u32,
}

#[derive(Choice, Clone, Copy, PartialEq)]
enum Direction {
    Mean,
    Pca,
    PcaCentred,
}

#[derive(Choice, Clone, Copy)]
enum Read {
    Last,
    Answer,
}

/// The differences so far, and the pairs kept out of them.
struct Steer {
    settings: Steering,
    layers: Range<u32>,
    steps: u32,
    differences: Vec<Tensor>, // [layers, pairs, dimension]
    held_out: Vec<[Rows; 2]>,
}

impl Method for Steer {
    type Settings = Steering;

    fn init(settings: Steering) -> Result<Self> {
        let layers = hidden::layers_between(settings.from, settings.to)?;
        Ok(Self { settings, layers, steps: 0, differences: Vec::new(), held_out: Vec::new() })
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        self.steps += 1;
        let (positive, negative) = (batch.rows("positive")?, batch.rows("negative")?);
        // What has no answer cannot become likelier.
        if positive.targets() > 0 && self.steps.is_multiple_of(self.settings.hold_out) {
            self.held_out.push([positive, negative]);
            return Ok(());
        }
        let layers: Vec<u32> = self.layers.clone().collect();
        let read = |rows: &Rows| hidden::capture(&policy(), rows, &layers, Site::ResidualAfter, self.token());
        self.differences.push(read(&positive)? - read(&negative)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.differences.is_empty() {
            return Err(Error::new("no pair was read: the run has no batch that is not kept out by `hold-out`"));
        }
        let differences = tensor::concat(&self.differences.iter().collect::<Vec<_>>(), 1); // [layers, pairs, dimension]
        let directions = self.estimate_directions(&differences); // [layers, dimension]
        let separation = contrast::separation(&differences, &directions);
        for (place, layer) in (0..).zip(self.layers.clone()) {
            let direction = directions.slice(0, place, 1).squeeze(0);
            hidden::publish(layer, Site::ResidualAfter, self.token(), &direction, self.settings.coefficient)?;
        }
        metric("separation", separation.mean(All));
        metric("norm", directions.norm(-1).mean(All));
        if self.held_out.is_empty() { Ok(()) } else { self.report_effect(&directions) }
    }

    fn load_state(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::new("the differences of the pairs so far are not saved: start the run anew, without `--resume`"))
    }
}

impl Steer {
    /// Estimates a direction `[dimension]` for each layer, towards the positive texts, from the differences `[layers,
    /// pairs, dimension]`: `[layers, dimension]`.
    fn estimate_directions(&self, differences: &Tensor) -> Tensor {
        let found = match self.settings.direction {
            Direction::Mean => differences.cast(Dtype::F64).mean(1).cast(Dtype::F32),
            Direction::Pca => contrast::principal(differences, false),
            Direction::PcaCentred => contrast::principal(differences, true),
        };
        let directions = contrast::majority(differences, &found);
        if self.settings.unit { &directions / directions.norm(Keep(-1)) } else { directions }
    }

    /// Logs how much likelier positive texts of the held-out pairs are than negative ones, with the directions added by
    /// five coefficients from −`coefficient` to `coefficient`. Reports the metric `effect`: the last value minus the
    /// first.
    fn report_effect(&self, directions: &Tensor) -> Result<()> {
        let mut ends = [0.0; 2];
        for share in [-1.0, -0.5, 0.0, 0.5, 1.0_f32] {
            let coefficient = share * self.settings.coefficient;
            let added = contrast::add_directions(directions, self.layers.clone(), coefficient)?;
            let ahead = contrast::lead(&self.held_out)?;
            drop(added);
            log(&format!("coefficient {coefficient:+.2}: positive texts ahead by {ahead:+.3} nats a token"));
            ends = [if share < -0.9 { ahead } else { ends[0] }, ahead];
        }
        metric("effect", ends[1] - ends[0]);
        Ok(())
    }

    /// The tokens whose activations are read.
    fn token(&self) -> Token {
        match self.settings.read {
            Read::Last => Token::FromEnd(self.settings.back),
            Read::Answer => Token::TargetMean,
        }
    }
}

method! {
    Steer,
    shape: "contrast",
    metrics: ["separation", "norm", "effect"],
    paper: "arXiv:2312.06681",
}
