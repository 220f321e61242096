//! Records where a method's time goes, for the Firefox Profiler: sampled call stacks, and every call to the host.
//!
//! A sample is a backtrace of wasmtime, taken when the ticker interrupts the method; unlike those of wasmtime's own
//! profiler, it has source lines. A method is interrupted in its own code alone: the time of a call to the host counts
//! for the function that made the call, and appears under the name of the host function among the markers.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, Frame as Shown, FrameFlags, FrameInfo, MarkerTiming, ProcessHandle, Profile,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};
use wasmtime::WasmBacktrace;

use crate::backtrace::{Frame, method_frames};
use crate::limits::TICK;

/// The most samples of a profile: more than an hour of them.
const MAX_SAMPLES: usize = 500_000;

/// The most calls to the host of a profile.
const MAX_CALLS: usize = 200_000;

/// The pause after a sample, as a multiple of the time that the sample took.
const PAUSE_FACTOR: u32 = 4;

/// The profile of a method, while it is recorded. Clones share the recording.
#[derive(Clone, Debug)]
pub struct Profiler(Arc<Mutex<Recording>>);

/// How many samples and calls a profile holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Samples of the method's functions.
    pub samples: usize,
    /// Calls to the host.
    pub calls: usize,
    /// Samples and calls that were too many to keep.
    pub left_out: usize,
}

impl Default for Profiler {
    /// Creates an empty profile that starts now.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Recording::new())))
    }
}

impl Profiler {
    /// Writes the profile recorded so far as JSON for <https://profiler.firefox.com>, and returns how many samples and
    /// calls it holds. Recording can go on.
    ///
    /// # Errors
    /// When `output` fails.
    pub fn write(&self, output: impl Write) -> io::Result<Recorded> {
        let recording = self.recording();
        serde_json::to_writer(output, &recording.profile)?;
        Ok(recording.recorded)
    }

    /// Sets the names of the profile's process and thread to `method`, the method's name.
    pub(crate) fn set_name(&self, method: &str) {
        let recording = &mut *self.recording();
        recording.profile.set_process_name(recording.process, method);
        recording.profile.set_thread_name(recording.thread, method);
    }

    /// Marks the start of a call into the method: the next sample stands for the time from now on, and the method's own
    /// seconds count from 0 again.
    pub(crate) fn begin_call(&self) {
        let mut recording = self.recording();
        (recording.last, recording.guest) = (Instant::now(), 0.0);
    }

    /// Records the call stack that `trace` captures. Does nothing, and does not call `trace`, during the pause after
    /// the last sample: four times as long as taking that sample took. `guest_seconds` is how long the method itself
    /// has computed in this call.
    pub(crate) fn record_sample(&self, guest_seconds: f64, trace: impl FnOnce() -> WasmBacktrace) {
        let (mut recording, begun) = (self.recording(), Instant::now());
        if begun < recording.next {
            return;
        }
        recording.add_sample(begun, guest_seconds, &method_frames(&trace()));
        recording.next = Instant::now() + begun.elapsed() * PAUSE_FACTOR;
    }

    /// Records a call to the host from `begun` until now, under the name `operation`. Past 200,000 calls only counts it
    /// as left out.
    pub(crate) fn record_host_call(&self, operation: &str, begun: Instant) {
        self.recording().add_host_call(operation, begun);
    }

    /// Locks the recording; a panic under the lock leaves it usable.
    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A profile under construction, with the state of its sampling.
#[derive(Debug)]
struct Recording {
    profile: Profile,
    process: ProcessHandle,
    thread: ThreadHandle,
    /// The category of functions that are not the author's: of the standard library, of the SDK, or without a known
    /// file.
    foreign: CategoryHandle,
    /// The category of functions that the method's author wrote.
    own: CategoryHandle,
    start: Instant,
    /// When the last sample was taken, or the call began.
    last: Instant,
    /// When the next sample may be taken.
    next: Instant,
    /// Seconds that the method itself had computed in this call at the last sample.
    guest: f64,
    recorded: Recorded,
}

impl Recording {
    /// Creates an empty profile of one process and thread, which starts now.
    fn new() -> Self {
        let (zero, start) = (Timestamp::from_nanos_since_reference(0), Instant::now());
        let mut profile = Profile::new("tunebox", SystemTime::now().into(), TICK.into());
        let process = profile.add_process("method", 1, zero);
        let thread = profile.add_thread(process, 1, zero, true);
        let foreign = profile.add_category("library", CategoryColor::Gray);
        let own = profile.add_category("method", CategoryColor::Blue);
        profile.set_symbolicated(true);
        let recorded = Recorded::default();
        Self { profile, process, thread, foreign, own, start, last: start, next: start, guest: 0.0, recorded }
    }

    /// Adds a sample at time `now` with these frames, innermost first. Its weight is the time since the last sample in
    /// sampling intervals, rounded, at least 1. `guest_seconds` is how long the method itself has computed in this call
    /// so far; its growth since the last sample is the processor time of this one. Past `MAX_SAMPLES` only counts the
    /// sample as left out.
    fn add_sample(&mut self, now: Instant, guest_seconds: f64, functions: &[Frame]) {
        if self.recorded.samples == MAX_SAMPLES {
            self.recorded.left_out += 1;
            return;
        }
        let outermost_first: Vec<FrameInfo> = functions.iter().rev().map(|frame| self.frame_info(frame)).collect();
        let stack = self.profile.intern_stack_frames(self.thread, outermost_first.into_iter());
        // A sample stands for all ticks since the last one: the ticker may have waited for the host.
        let ticks = now.saturating_duration_since(self.last).as_secs_f64() / TICK.as_secs_f64();
        let computed = Duration::try_from_secs_f64(guest_seconds - self.guest).unwrap_or_default();
        let weight = ticks.round().clamp(1.0, f64::from(i32::MAX)) as i32;
        self.profile.add_sample(self.thread, self.timestamp(now), stack, computed.into(), weight);
        (self.last, self.guest) = (now, guest_seconds);
        self.recorded.samples += 1;
    }

    /// Adds a marker for a call to the host from `begun` until now. Past `MAX_CALLS` only counts the call as left out.
    fn add_host_call(&mut self, operation: &str, begun: Instant) {
        if self.recorded.calls == MAX_CALLS {
            self.recorded.left_out += 1;
            return;
        }
        let timing = MarkerTiming::Interval(self.timestamp(begun), self.timestamp(Instant::now()));
        let marker = HostCall(self.profile.intern_string(operation));
        self.profile.add_marker(self.thread, timing, marker);
        self.recorded.calls += 1;
    }

    /// Converts a frame to the profile's form: its text as a label, in the category of the author's functions or in
    /// that of all others.
    fn frame_info(&mut self, frame: &Frame) -> FrameInfo {
        let name = self.profile.intern_string(&frame.text());
        let category = if frame.is_author_code() { self.own } else { self.foreign };
        FrameInfo { frame: Shown::Label(name), category_pair: category.into(), flags: FrameFlags::empty() }
    }

    /// Returns the time since the start of the profile; 0 for a moment before it.
    fn timestamp(&self, moment: Instant) -> Timestamp {
        let nanoseconds = moment.saturating_duration_since(self.start).as_nanos();
        Timestamp::from_nanos_since_reference(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// The marker of a call to the host, with the name of the host function.
#[derive(Debug)]
struct HostCall(StringHandle);

impl StaticSchemaMarker for HostCall {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "host-call";
    const DESCRIPTION: Option<&'static str> = Some("A call of the method to the host");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[];

    /// Returns the operation's name, which the viewer shows on the marker.
    fn name(&self, _: &mut Profile) -> StringHandle {
        self.0
    }

    /// Returns the category `Other`.
    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    /// Returns the operation's name; not called, since the marker has no fields.
    fn string_field_value(&self, _: u32) -> StringHandle {
        self.0
    }

    /// Returns 0; not called, since the marker has no fields.
    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtrace::Place;
    use crate::compile::CodeOptions;
    use crate::engine::wasmtime_engine;

    fn frame(name: &str, line: u32) -> Frame {
        Frame { name: name.into(), place: Some(Place { file: "src/lib.rs".into(), line, column: 1 }) }
    }

    fn written(profiler: &Profiler) -> (Recorded, serde_json::Value) {
        let mut bytes = Vec::new();
        let told = profiler.write(&mut bytes).unwrap();
        (told, serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn a_profile_holds_functions_with_their_lines_and_the_hosts_operations() {
        let profiler = Profiler::default();
        profiler.set_name("calm");
        profiler.begin_call();
        let begun = profiler.recording().start;
        let functions = [frame("calm::log_ratio", 52), frame("calm::step", 38)];
        profiler.recording().add_sample(begun + 3 * TICK, 0.001, &functions);
        profiler.record_host_call("model.score", begun);
        let (told, json) = written(&profiler);
        assert_eq!(told, Recorded { samples: 1, calls: 1, left_out: 0 });
        let text = json.to_string();
        for wanted in ["calm::log_ratio at src/lib.rs:52", "calm::step at src/lib.rs:38", "model.score", "host-call"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert_eq!(json["threads"][0]["name"], "calm");
        assert_eq!(json["threads"][0]["samples"]["length"], 1);
        assert_eq!(json["threads"][0]["samples"]["weight"][0], 3);
    }

    #[test]
    fn a_sample_that_cost_much_is_followed_by_a_pause() {
        let (profiler, cost) = (Profiler::default(), Duration::from_millis(20));
        let store = wasmtime::Store::new(&wasmtime_engine(CodeOptions::default()).unwrap(), ());
        let begun = Instant::now();
        profiler.record_sample(0.0, || {
            std::thread::sleep(cost);
            WasmBacktrace::force_capture(&store)
        });
        assert!(profiler.recording().next >= begun + cost + PAUSE_FACTOR * cost);

        profiler.recording().next = begun + Duration::from_secs(60);
        profiler.record_sample(0.0, || unreachable!("no trace is taken"));
        assert_eq!(written(&profiler).0.samples, 1);
    }
}
