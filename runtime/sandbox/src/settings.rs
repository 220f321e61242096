//! The settings of a session, and the observer of its calls.

use std::fmt;
use std::sync::Arc;

use crate::fault::Function;
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
    /// Is called with the events of the method's calls as they happen.
    pub call_observer: Option<CallObserver>,
}

/// What happens in a call of the method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CallEvent<'a> {
    /// A call of this function begins, and may last so many seconds.
    Begun(Function, f64),
    /// The method logged this line, which is escaped. The report of the call has it again.
    Line(&'a str),
    /// The call has ended.
    Ended,
}

/// A function that is called at once with what happens in a call of the method.
#[derive(Clone)]
pub struct CallObserver(pub Arc<dyn Fn(CallEvent<'_>) + Send + Sync>);

impl fmt::Debug for CallObserver {
    /// Writes `CallObserver`, without the function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallObserver")
    }
}
