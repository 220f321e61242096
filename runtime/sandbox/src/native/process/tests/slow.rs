//! A learner that takes its time to say how fast it learns, and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use tunebox_compute::Device;
use tunebox_compute::fused::TapSet;
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;

use crate::learner::{Absent, Editing, Learner, Sampling};

/// Waits before it says its rate.
#[derive(Default)]
pub(super) struct Slow(Absent);

impl Sampling for Slow {}

impl Editing for Slow {}

impl Learner for Slow {
    fn device(&self) -> &Device {
        self.0.device()
    }

    fn score(&mut self, view: &View, rows: &Arc<Rows>, taps: TapSet, heat: f32, keep: bool) -> Result<Scored, Error> {
        self.0.score(view, rows, taps, heat, keep)
    }

    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        self.0.backward(scored, seeds)
    }

    fn snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.0.snapshot(name)
    }

    fn has_reference(&self) -> bool {
        false
    }

    fn update(&mut self) -> Result<f32, Error> {
        self.0.update()
    }

    fn rate(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(600));
        0.25
    }

    fn position(&self) -> u32 {
        0
    }

    fn planned(&self) -> u32 {
        0
    }

    fn generation(&self) -> u64 {
        0
    }

    fn has_accumulated(&self) -> bool {
        false
    }
}
