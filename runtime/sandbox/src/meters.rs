//! What a method has used of its limits in one call: its own time, host calls, work, bytes read back.
//!
//! The clock runs only while the method itself computes: it stops when an import begins and goes
//! on when the import returns, so a slow device is never the method's fault.

use std::time::{Duration, Instant};

use crate::bindings::types::ErrorCode;
use crate::cause::Cause;
use crate::figures::grouped;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// Counters of the current call into the method.
#[derive(Debug)]
pub(crate) struct Meters {
    seconds: f64,
    max_calls: u64,
    max_work: u64,
    max_readback: u64,
    max_passes: u64,
    max_sampled: u64,
    max_verdicts: u64,
    guest: Duration,
    resumed: Option<Instant>,
    calls: u64,
    work: u64,
    readback: u64,
    passes: u64,
    sampled: u64,
    verdicts: u64,
    last: Option<&'static str>,
}

impl Meters {
    /// Counters at zero, with the clock stopped.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            seconds: limits.init_seconds,
            max_calls: limits.host_calls,
            max_work: limits.work,
            max_readback: limits.readback_bytes,
            max_passes: limits.passes,
            max_sampled: limits.sampled_tokens,
            max_verdicts: limits.verdicts,
            guest: Duration::ZERO,
            resumed: None,
            calls: 0,
            work: 0,
            readback: 0,
            passes: 0,
            sampled: 0,
            verdicts: 0,
            last: None,
        }
    }

    /// Sets all counters back for a call of at most `seconds`, and starts the clock.
    pub(crate) fn begin(&mut self, seconds: f64) {
        self.seconds = seconds;
        self.guest = Duration::ZERO;
        self.calls = 0;
        self.work = 0;
        self.readback = 0;
        self.passes = 0;
        self.sampled = 0;
        self.verdicts = 0;
        self.last = None;
        self.resume();
    }

    /// Stops the clock.
    pub(crate) fn pause(&mut self) {
        if let Some(resumed) = self.resumed.take() {
            self.guest += resumed.elapsed();
        }
    }

    /// Lets the clock run again.
    pub(crate) fn resume(&mut self) {
        self.resumed = Some(Instant::now());
    }

    /// Counts a call to the host and checks the limits of calls and time.
    pub(crate) fn enter(&mut self, function: &'static str) -> Result<(), Cause> {
        self.last = Some(function);
        self.calls += 1;
        if self.calls > self.max_calls {
            return Err(Cause::HostCalls { limit: self.max_calls });
        }
        self.check_time()
    }

    /// Counts work before it is done.
    pub(crate) fn work(&mut self, elements: u64) -> Result<(), Cause> {
        self.work = self.work.saturating_add(elements);
        if self.work > self.max_work { Err(Cause::Work { limit: self.max_work }) } else { Ok(()) }
    }

    /// Counts a pass through the model before it is made.
    pub(crate) fn pass(&mut self) -> Result<(), Cause> {
        self.passes += 1;
        if self.passes > self.max_passes { Err(Cause::Passes { limit: self.max_passes }) } else { Ok(()) }
    }

    /// Counts tokens before the model writes them, at their largest number.
    pub(crate) fn sample(&mut self, tokens: u64) -> Result<(), Cause> {
        self.sampled = self.sampled.saturating_add(tokens);
        if self.sampled > self.max_sampled { Err(Cause::Sampled { limit: self.max_sampled }) } else { Ok(()) }
    }

    /// Takes tokens back that were counted and not written.
    pub(crate) fn give_back(&mut self, tokens: u64) {
        self.sampled = self.sampled.saturating_sub(tokens);
    }

    /// Counts verdicts before they are asked for.
    pub(crate) fn judge(&mut self, verdicts: u64) -> Result<(), Cause> {
        self.verdicts = self.verdicts.saturating_add(verdicts);
        if self.verdicts > self.max_verdicts { Err(Cause::Verdicts { limit: self.max_verdicts }) } else { Ok(()) }
    }

    /// The most work of one call.
    pub(crate) fn max_work(&self) -> u64 {
        self.max_work
    }

    /// Counts bytes that the method reads; past the limit it gets an error and may go on without them.
    pub(crate) fn read_back(&mut self, bytes: u64) -> Result<(), Refusal> {
        let after = self.readback.saturating_add(bytes);
        if after > self.max_readback {
            let limit = grouped(self.max_readback);
            let message = format!("{} bytes more would pass the {limit} that a step may read back", grouped(bytes));
            return Err(Refusal::new(ErrorCode::OutOfBudget, message));
        }
        self.readback = after;
        Ok(())
    }

    /// Ends the method when it has computed for too long.
    pub(crate) fn check_time(&self) -> Result<(), Cause> {
        let used = self.guest_seconds();
        if used > self.seconds {
            return Err(Cause::Time { used, limit: self.seconds, calls: self.calls });
        }
        Ok(())
    }

    /// Seconds that the method itself has computed.
    pub(crate) fn guest_seconds(&self) -> f64 {
        let running = self.resumed.map_or(Duration::ZERO, |resumed| resumed.elapsed());
        (self.guest + running).as_secs_f64()
    }

    /// Calls to the host.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// The import that ran last, if any did.
    pub(crate) fn last(&self) -> Option<&'static str> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_host_is_not_the_methods() {
        let mut meters = Meters::new(&Limits::default());
        meters.begin(1.0);
        meters.pause();
        let before = meters.guest_seconds();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(meters.guest_seconds(), before);
    }

    #[test]
    fn one_call_past_the_limit_ends_the_method() {
        let mut meters = Meters::new(&Limits { host_calls: 2, ..Limits::default() });
        meters.begin(10.0);
        assert!(meters.enter("run.position").is_ok() && meters.enter("run.position").is_ok());
        assert!(matches!(meters.enter("run.position"), Err(Cause::HostCalls { limit: 2 })));
    }

    #[test]
    fn a_refused_read_back_takes_nothing_from_the_budget() {
        let mut meters = Meters::new(&Limits { readback_bytes: 8, ..Limits::default() });
        meters.begin(10.0);
        assert!(meters.read_back(12).is_err());
        assert!(meters.read_back(8).is_ok());
        assert!(meters.read_back(4).is_err());
    }
}
