//! What a method has used of its limits in one call: its own time, the host's time, calls, work, bytes read back.
//!
//! The method's clock runs only while the method itself computes: it stops when an import begins and goes
//! on when the import returns, so a slow device is never the method's fault. The host's clock runs in between.

use std::time::{Duration, Instant};

use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::error::Error as ComputeError;
use tunebox_compute::ops::{Cost, Meter};

use crate::cause::Cause;
use crate::costs;
use crate::figures::group_digits;
use crate::limits::Limits;
use crate::refusal::ErrorCode;
use crate::refusal::Refusal;
use crate::usage::{Counts, Slowest};

/// Counters of the current call into the method.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// How long the method itself may compute in this call; infinite for no limit.
    max_guest_seconds: f64,
    limits: Limits,
    /// The method's own time before `guest_started`.
    guest_time: Duration,
    /// The host's time in finished operations.
    host_time: Duration,
    /// When the method's clock was started; `None` while it is stopped.
    guest_started: Option<Instant>,
    /// When the host's clock was started; `None` while it is stopped.
    host_started: Option<Instant>,
    counts: Counts,
    /// The host function that was entered last.
    last_function: Option<&'static str>,
    /// The slowest finished host operation.
    slowest: Option<(&'static str, Duration)>,
}

impl Meters {
    /// Creates counters at zero with stopped clocks. Until [`begin`](Self::begin), the method's own time is limited to
    /// `init_seconds`.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { max_guest_seconds: limits.init_seconds, limits: limits.clone(), ..Self::default() }
    }

    /// Resets all counters for a call in which the method itself may compute for `seconds` (infinite for no limit), and
    /// starts its clock.
    pub(crate) fn begin(&mut self, seconds: f64) {
        *self = Self { max_guest_seconds: seconds, limits: std::mem::take(&mut self.limits), ..Self::default() };
        self.resume();
    }

    /// Stops the method's clock and starts the host's: the host works for the method.
    pub(crate) fn pause(&mut self) {
        let now = Instant::now();
        if let Some(resumed) = self.guest_started.take() {
            self.guest_time += now.saturating_duration_since(resumed);
        }
        self.host_started = Some(now);
    }

    /// Stops the host's clock and restarts the method's. Keeps the host operation that just ended, under the name of
    /// the function entered last, if it is the slowest of this call so far.
    pub(crate) fn resume(&mut self) {
        let now = Instant::now();
        if let Some(paused) = self.host_started.take() {
            let spent = now.saturating_duration_since(paused);
            self.host_time += spent;
            if let Some(name) = self.last_function
                && self.slowest.is_none_or(|(_, longest)| spent > longest)
            {
                self.slowest = Some((name, spent));
            }
        }
        self.guest_started = Some(now);
    }

    /// Excludes `spent`, the time that taking a sample for the profile took, from the method's time in this call. Does
    /// nothing while the method's clock is stopped.
    pub(crate) fn exclude_time(&mut self, spent: Duration) {
        self.guest_started = self.guest_started.map(|resumed| resumed + spent);
    }

    /// Returns the name and start of the host operation that runs now; `None` if the host is not at work. `calls` is
    /// the number of calls counted before the operation: if it is unchanged, the operation is a handle's `drop`, which
    /// is not counted.
    pub(crate) fn current_operation(&self, calls: u64) -> Option<(&'static str, Instant)> {
        // A drop is not counted.
        let name = if self.counts.host_calls == calls { Some("drop") } else { self.last_function };
        name.zip(self.host_started)
    }

    /// Returns the calls to the host that were counted in the current call of the method.
    pub(crate) fn host_calls(&self) -> u64 {
        self.counts.host_calls
    }

    /// Counts a call to the host function `function` and stores its name as the one entered last. Charges the fixed
    /// work of a call. Drops of handles do not use this. Errors: the cause that ends the method past the limit of
    /// calls, work or time.
    pub(crate) fn enter(&mut self, function: &'static str) -> Result<(), Cause> {
        self.last_function = Some(function);
        add_within_limit(&mut self.counts.host_calls, 1, self.limits.host_calls, |limit| Cause::HostCalls { limit })?;
        self.charge_work(costs::CALL_WORK)?;
        self.check_time()
    }

    /// Charges units of work of the host function that was entered last, each at the price in the function's row of the
    /// table of costs, 1 if the row has none. Called before the work is done; past the limit `work` ends the method.
    pub(crate) fn charge_units(&mut self, units: u64) -> Result<(), Cause> {
        let each = self.last_function.map_or(1, costs::unit_work);
        self.charge_work(units.saturating_mul(each))
    }

    /// Adds work that is already priced, in the unit of the limit `work`; past that limit ends the method.
    pub(crate) fn charge_work(&mut self, work: u64) -> Result<(), Cause> {
        add_within_limit(&mut self.counts.work, work, self.limits.work, |limit| Cause::Work { limit })
    }

    /// Counts one pass through the model and its multiply-adds, before the pass runs; past `passes` or `model_work`
    /// ends the method.
    pub(crate) fn count_pass(&mut self, multiply_adds: u64) -> Result<(), Cause> {
        add_within_limit(&mut self.counts.passes, 1, self.limits.passes, |limit| Cause::Passes { limit })?;
        self.count_multiply_adds(multiply_adds)
    }

    /// Counts multiply-adds of the model, before they are done; past `model_work` ends the method.
    pub(crate) fn count_multiply_adds(&mut self, multiply_adds: u64) -> Result<(), Cause> {
        let limit = self.limits.model_work;
        add_within_limit(&mut self.counts.model_work, multiply_adds, limit, |limit| Cause::ModelWork { limit })
    }

    /// Counts the most tokens that the model may write, before it writes them; past `sampled_tokens` ends the method.
    pub(crate) fn count_sampled_tokens(&mut self, tokens: u64) -> Result<(), Cause> {
        let limit = self.limits.sampled_tokens;
        add_within_limit(&mut self.counts.sampled_tokens, tokens, limit, |limit| Cause::Sampled { limit })
    }

    /// Subtracts `tokens`, which [`Meters::count_sampled_tokens`] counted and the model did not write, from the sampled
    /// tokens of this call.
    pub(crate) fn refund_sampled_tokens(&mut self, tokens: u64) {
        self.counts.sampled_tokens = self.counts.sampled_tokens.saturating_sub(tokens);
    }

    /// Sets the instructions that the method itself executed in the present call.
    pub(crate) fn set_instructions(&mut self, instructions: u64) {
        self.counts.instructions = instructions;
    }

    /// Counts verdicts of verifiers, before the verifiers are asked; past `verdicts` ends the method.
    pub(crate) fn count_verdicts(&mut self, verdicts: u64) -> Result<(), Cause> {
        add_within_limit(&mut self.counts.verdicts, verdicts, self.limits.verdicts, |limit| Cause::Verdicts { limit })
    }

    /// Counts bytes that the method reads back from the host. Past `readback_bytes` the method gets an `out-of-budget`
    /// error and nothing is counted.
    pub(crate) fn count_readback(&mut self, bytes: u64) -> Result<(), Refusal> {
        let after = self.counts.readback_bytes.saturating_add(bytes);
        if after > self.limits.readback_bytes {
            let limit = group_digits(self.limits.readback_bytes);
            let message =
                format!("{} bytes more would pass the {limit} that a step may read back", group_digits(bytes));
            return Err(Refusal::new(ErrorCode::OutOfBudget, message));
        }
        self.counts.readback_bytes = after;
        Ok(())
    }

    /// Returns [`Cause::Time`] if the method computed longer in this call than it may, or [`Cause::WallTime`] if the
    /// call lasts longer than `step_wall_seconds`; either ends the method. For a method whose own time has no limit,
    /// only the host's time counts against `step_wall_seconds`.
    pub(crate) fn check_time(&self) -> Result<(), Cause> {
        let used = self.guest_seconds();
        if used > self.max_guest_seconds {
            return Err(Cause::Time { used, limit: self.max_guest_seconds, calls: self.counts.host_calls });
        }
        let (wall, limit) = (self.wall_seconds(), self.limits.step_wall_seconds);
        if wall > limit { Err(Cause::WallTime { used: wall, limit }) } else { Ok(()) }
    }

    /// Checks that an operation which lasts up to `seconds` ends before the call has lasted `step_wall_seconds`. Called
    /// before operations that nothing interrupts; those of less than a tenth of a second always pass. Errors:
    /// [`Cause::LongOperation`].
    pub(crate) fn check_time_for(&self, seconds: f64) -> Result<(), Cause> {
        let limit = self.limits.step_wall_seconds;
        if seconds < 0.1 || self.wall_seconds() + seconds <= limit {
            return Ok(());
        }
        Err(Cause::LongOperation { seconds, limit })
    }

    /// Returns the time at which this call has lasted `step_wall_seconds`, if its clocks run on from now; now, if it
    /// has lasted that long already. `None` if an [`Instant`] cannot hold the time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let left = Duration::try_from_secs_f64(self.limits.step_wall_seconds - self.wall_seconds());
        Instant::now().checked_add(left.unwrap_or_default())
    }

    /// Returns the seconds of this call that count against `step_wall_seconds`, up to now: the host's time, including
    /// the running operation, plus the method's own time. Leaves the method's own time out if it has no limit.
    fn wall_seconds(&self) -> f64 {
        // One operation can run several deferred passes, so its time counts before it ends.
        let running = self.host_started.map_or(Duration::ZERO, |paused| paused.elapsed());
        // Counting unlimited guest time would make the wall limit a limit of that time.
        let own = if self.max_guest_seconds.is_finite() { self.guest_seconds() } else { 0.0 };
        own + (self.host_time + running).as_secs_f64()
    }

    /// Returns the seconds that the method itself has computed in this call, up to now.
    pub(crate) fn guest_seconds(&self) -> f64 {
        let running = self.guest_started.map_or(Duration::ZERO, |resumed| resumed.elapsed());
        (self.guest_time + running).as_secs_f64()
    }

    /// Returns what the current call has used so far. The host's time is that of finished operations.
    pub(crate) fn counts(&self) -> Counts {
        Counts { guest_seconds: self.guest_seconds(), host_seconds: self.host_time.as_secs_f64(), ..self.counts }
    }

    /// Returns the name and seconds of this call's slowest finished host operation; `None` without any.
    pub(crate) fn slowest(&self) -> Option<Slowest> {
        self.slowest.map(|(operation, spent)| Slowest { operation: operation.to_owned(), seconds: spent.as_secs_f64() })
    }

    /// Returns the host function that was entered last in this call, if any.
    pub(crate) fn last_function(&self) -> Option<&'static str> {
        self.last_function
    }
}

/// The budget of one tensor operation: the bytes of the session, and the work of the call. Operations of `compute`
/// state their cost before they do anything; it is charged here, or the operation fails.
#[derive(Debug)]
pub(crate) struct OperationBudget<'a> {
    /// The budget of bytes.
    pub(crate) budget: &'a Budget,
    /// The counters of work and time.
    pub(crate) meters: &'a mut Meters,
}

impl Meter for OperationBudget<'_> {
    /// Charges the operation's work, checks that it can end before the call has lasted `step_wall_seconds`, then
    /// reserves the bytes of its result and of its temporaries. Errors: `OutOfWork`, `OutOfTime`, `OutOfMemory`; the
    /// work stays charged.
    fn charge(&mut self, cost: Cost) -> Result<Reservation, ComputeError> {
        let limit = self.meters.limits.work;
        self.meters.charge_work(cost.work).map_err(|_| ComputeError::OutOfWork { work: cost.work, limit })?;
        let (seconds, limit) = (cost.seconds(), self.meters.limits.step_wall_seconds);
        self.meters.check_time_for(seconds).map_err(|_| ComputeError::OutOfTime { seconds, limit })?;
        self.budget.reserve(cost.bytes.saturating_add(cost.scratch))
    }

    /// Checks, before an operation of a backward pass, that the call's time is not up and that the operation can end
    /// before it is. Charges nothing. Errors: `OutOfTime`.
    fn continue_gradient(&mut self, cost: &Cost) -> Result<(), ComputeError> {
        let (seconds, limit) = (cost.seconds(), self.meters.limits.step_wall_seconds);
        let ended = self.meters.check_time().and_then(|()| self.meters.check_time_for(seconds));
        ended.map_err(|_| ComputeError::OutOfTime { seconds, limit })
    }
}

/// Adds `more` to a count, saturating. Errors: `cause(limit)` if the count then exceeds the limit; the count stays
/// raised.
fn add_within_limit(count: &mut u64, more: u64, limit: u64, cause: fn(u64) -> Cause) -> Result<(), Cause> {
    *count = count.saturating_add(more);
    if *count > limit { Err(cause(limit)) } else { Ok(()) }
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
        meters.resume();
        assert!(meters.counts().host_seconds >= 0.02);
    }

    #[test]
    fn excluded_time_is_not_counted() {
        let mut meters = Meters::new(&Limits::default());
        meters.begin(1.0);
        std::thread::sleep(Duration::from_millis(20));
        meters.exclude_time(Duration::from_secs(60));
        assert_eq!(meters.guest_seconds(), 0.0);
        assert_eq!(meters.counts().host_seconds, 0.0);
    }

    #[test]
    fn an_operation_under_way_has_its_own_name_and_a_drop_not_that_of_the_one_before() {
        let mut meters = Meters::new(&Limits::default());
        meters.begin(1.0);
        meters.pause();
        meters.enter("model.score").unwrap();
        assert_eq!(meters.current_operation(0).unwrap().0, "model.score");
        assert_eq!(meters.current_operation(1).unwrap().0, "drop");
    }

    #[test]
    fn the_host_may_not_work_for_ever_in_one_call_of_a_method() {
        let mut meters = Meters::new(&Limits { step_wall_seconds: 0.01, ..Limits::default() });
        meters.begin(60.0);
        meters.pause();
        assert!(meters.enter("sample.generate").is_ok());
        std::thread::sleep(Duration::from_millis(20));
        meters.resume();
        meters.pause();
        assert!(matches!(meters.enter("model.policy"), Err(Cause::WallTime { .. })));
        assert_eq!(meters.slowest().unwrap().operation, "sample.generate");
    }

    #[test]
    fn a_method_without_a_limit_of_its_own_time_is_not_ended_by_it() {
        let limits = Limits { step_wall_seconds: 0.01, ..Limits::default() };
        for (seconds, goes_on) in [(f64::INFINITY, true), (60.0, false)] {
            let mut meters = Meters::new(&limits);
            meters.begin(seconds);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(meters.check_time().is_ok(), goes_on);
        }
    }

    #[test]
    fn one_call_past_the_limit_ends_the_method() {
        let mut meters = Meters::new(&Limits { host_calls: 2, ..Limits::default() });
        meters.begin(10.0);
        assert!(meters.enter("run.position").is_ok() && meters.enter("run.position").is_ok());
        assert!(matches!(meters.enter("run.position"), Err(Cause::HostCalls { limit: 2 })));
    }

    #[test]
    fn work_is_priced_by_the_row_of_the_function() {
        let mut meters = Meters::new(&Limits { work: 100_000, ..Limits::default() });
        meters.begin(10.0);
        meters.enter("text.encode").unwrap();
        meters.charge_units(90).unwrap();
        assert_eq!(meters.counts().work, 90_000 + costs::CALL_WORK);
        assert!(matches!(meters.charge_units(10), Err(Cause::Work { limit: 100_000 })));
    }

    #[test]
    fn passes_count_by_their_number_and_by_their_size() {
        let mut meters = Meters::new(&Limits { passes: 2, model_work: 1_000, ..Limits::default() });
        meters.begin(10.0);
        meters.count_pass(900).unwrap();
        assert!(matches!(meters.count_pass(101), Err(Cause::ModelWork { limit: 1_000 })));
        assert!(matches!(meters.count_pass(0), Err(Cause::Passes { limit: 2 })));
    }

    #[test]
    fn a_refused_read_back_takes_nothing_from_the_budget() {
        let mut meters = Meters::new(&Limits { readback_bytes: 8, ..Limits::default() });
        meters.begin(10.0);
        assert!(meters.count_readback(12).is_err());
        assert!(meters.count_readback(8).is_ok());
        assert!(meters.count_readback(4).is_err());
    }
}
