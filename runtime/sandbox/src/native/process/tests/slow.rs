//! A learner that takes its time to say how fast it learns, and does nothing else.

use std::time::Duration;

use tunebox_compute::Device;

use crate::learner::{Editing, Learner, Sampling};

/// Waits before it says its rate.
pub(super) struct Slow;

impl Sampling for Slow {}

impl Editing for Slow {}

impl Learner for Slow {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn rate(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(600));
        0.25
    }

    fn generation(&self) -> u64 {
        0
    }
}
