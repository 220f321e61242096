//! A run whose hook for the learning rate takes long.

use std::time::Duration;

use crate::run_hooks::RunHooks;

/// Run hooks that wait before they return the learning rate, and keep all other defaults.
pub(super) struct Slow;

impl RunHooks for Slow {
    fn learning_rate(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(600));
        0.25
    }
}
