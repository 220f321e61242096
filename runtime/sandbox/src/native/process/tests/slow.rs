//! A run that takes its time to return its learning rate, and offers nothing else.

use std::time::Duration;

use crate::run_hooks::RunHooks;

/// Waits before it returns its learning rate.
pub(super) struct Slow;

impl RunHooks for Slow {
    fn learning_rate(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(600));
        0.25
    }
}
