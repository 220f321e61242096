//! What a session is started with, apart from the method and the train state.

use std::fmt;
use std::sync::Arc;

use crate::limits::Limits;
use crate::profile::Profiler;

/// Limits, seed and metric names of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings {
    /// The limits of the method.
    pub limits: Limits,
    /// The run's seed, from which the method's random sequences come.
    pub seed: u64,
    /// The metric names of the manifest.
    pub metric_names: Vec<String>,
    /// Whether the method updates the parameters itself, as its manifest says.
    pub updates_itself: bool,
    /// The profile that records where the method's time goes, if there is one.
    pub profiler: Option<Profiler>,
    /// Called when a call of the method begins and ends.
    pub call_observer: Option<CallObserver>,
}

/// A function that is called with the seconds that a call of the method may last when the call begins, and with `None` when
/// it has ended.
#[derive(Clone)]
pub struct CallObserver(pub Arc<dyn Fn(Option<f64>) + Send + Sync>);

impl fmt::Debug for CallObserver {
    /// Writes `CallObserver`, without the function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallObserver")
    }
}
