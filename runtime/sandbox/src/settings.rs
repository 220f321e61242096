//! What a session is started with beside the method and the train state.

use crate::limits::Limits;
use crate::profile::Profiler;

/// Limits, seed and metric names of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings {
    /// What the method may use up.
    pub limits: Limits,
    /// The run's seed, from which the method's random sequences come.
    pub seed: u64,
    /// The metric names of the manifest.
    pub metric_names: Vec<String>,
    /// Records where the method's time goes.
    pub profiler: Option<Profiler>,
}
