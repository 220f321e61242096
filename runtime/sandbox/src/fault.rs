//! How a method ended, as one message for people: what, in which call, at which step, where in its source.
//!
//! Imports end a method with a [`Cause`]; [`Stop`] adds the rest. Nothing is printed here.

use std::borrow::Cow;

use tunebox_foundation::explain::{Exit, Explain};
use wasmtime::WasmBacktrace;

use crate::backtrace::{Frame, Place, author_place, build_trace, method_frames};
use crate::cause::Cause;
use crate::printable::printable;
use crate::refusal::{Denied, host_refused};

/// The longest text of a method in an error, in bytes.
const TEXT_BYTES: usize = 400;

/// A call into a method.
///
/// The first five are exports of the contract; a native twin names them by their discriminants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `init`.
    Init,
    /// `step`.
    Step,
    /// `finish`.
    Finish,
    /// `save-state`.
    SaveState,
    /// `load-state`.
    LoadState,
    /// Making the instance.
    Start,
    /// Between two calls, where a native process may send requests as well.
    Wait,
}

impl Function {
    /// Returns the call's name: that of the export in WIT, `start` for making the instance, `wait` between two calls.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Init => "init",
            Self::Step => "step",
            Self::Finish => "finish",
            Self::SaveState => "save-state",
            Self::LoadState => "load-state",
            Self::Wait => "wait",
        }
    }
}

/// The message and place that a method reported by `run.fault` before it trapped.
#[derive(Clone, Debug)]
pub(crate) struct GuestFault {
    pub(crate) message: String,
    pub(crate) place: Place,
}

impl GuestFault {
    /// Stores what a method reported: its message, escaped and cut at 400 bytes, and the place in its source, the file
    /// escaped and cut at 200 bytes.
    pub(crate) fn new(message: &str, file: &str, line: u32, column: u32) -> Self {
        let place = Place { file: printable(file, 200), line, column };
        Self { message: printable(message, TEXT_BYTES), place }
    }
}

/// The end of a method: what, in which call, at which step, where in its source.
#[derive(Debug, thiserror::Error, Explain)]
#[error("{}", self.headline())]
#[explain(
    category = self.category(),
    location = self.location_line(),
    why = self.why(),
    hint = self.hint(),
    trace = build_trace(frames),
    exit = if self.category() == "sandbox" { Exit::Sandbox } else { Exit::Usage }
)]
pub struct Stop {
    method: String,
    function: Function,
    /// The number of the step, from 1.
    step: u32,
    cause: Cause,
    /// The place in the method's source, if known.
    place: Option<Place>,
    /// The message that the method reported before a trap.
    message: Option<String>,
    /// The host's function that ran last.
    last: Option<&'static str>,
    /// The function of the host whose error the method ended with.
    refused_function: Option<&'static str>,
    frames: Vec<Frame>,
}

impl Stop {
    /// Creates a stop of `method` in `function` without source place and call stack. `step` counts from 1; `last` is
    /// the host function that was called last.
    pub(crate) fn new(method: &str, function: Function, step: u32, cause: Cause, last: Option<&'static str>) -> Self {
        let (method, frames) = (method.to_owned(), Vec::new());
        Self { method, function, step, cause, place: None, message: None, last, refused_function: None, frames }
    }

    /// If the method ended with a trap, adds the message and the place that the method reported before it. Also notes
    /// the host function whose error caused the trap: that of `denied`, the last error that the host returned in this
    /// call, if the message contains its text. Changes nothing for any other cause, or without a report.
    pub(crate) fn with_fault(mut self, fault: Option<GuestFault>, denied: Option<Denied>) -> Self {
        if let (Cause::Trap(_), Some(fault)) = (&self.cause, fault) {
            let denied = denied.filter(|denied| fault.message.contains(&denied.message));
            self.refused_function = denied.map(|denied| denied.function);
            (self.place, self.message) = (Some(fault.place), Some(fault.message));
        }
        self
    }

    /// Adds the method's call stack, if the error has a backtrace. Sets the place to the author's innermost line unless
    /// the method reported one.
    pub(crate) fn with_trace(mut self, error: &wasmtime::Error) -> Self {
        let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return self };
        self.frames = method_frames(backtrace);
        self.place = self.place.or_else(|| author_place(&self.frames));
        self
    }

    /// Returns the call in which the method was.
    pub fn function(&self) -> Function {
        self.function
    }

    /// Returns the number of the run's step in which the method ended, from 1; outside of `step`, that of the next
    /// step.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Whether the host or its device is at fault, not the method: for a panic or failure of the host, a device that is
    /// full or stopped, and a thread that did not start.
    pub fn is_host_fault(&self) -> bool {
        matches!(self.cause, Cause::Host(_) | Cause::Device { .. })
    }

    /// Returns the category of the message: that of the device's error if a device failed, else `sandbox`.
    fn category(&self) -> Cow<'static, str> {
        if let Cause::Device { area, .. } = &self.cause { area.clone() } else { "sandbox".into() }
    }

    /// Names the call in a sentence: `at step 3`, or `` in `init` `` for the other calls.
    fn moment(&self) -> String {
        match self.function {
            Function::Step => format!("at step {}", self.step),
            function => format!("in `{}`", function.name()),
        }
    }

    /// Returns the first line of the message: the method, the cause and the call. A trap shows the message that the
    /// method reported; if that is an error of the host, the line says that the host refused the function.
    fn headline(&self) -> String {
        let (method, moment) = (&self.method, self.moment());
        match (&self.cause, &self.message) {
            (Cause::Trap(_), Some(message)) => match self.refused_function {
                Some(function) => host_refused(function, method, &moment, message),
                None => format!("`{method}` {} {moment}: {message}", self.trap_verb()),
            },
            (Cause::Trap(trap), None) => format!("`{method}` stopped {moment}: {trap}"),
            (Cause::Host(message), _) => format!("the host failed under `{method}` {moment}: {message}"),
            (Cause::Device { what, .. }, _) => format!("{what}, under `{method}` {moment}"),
            (Cause::Protocol(message), _) => format!("`{method}` broke the contract {moment}: {message}"),
            (cause, _) => format!("`{method}` {} {moment}", cause.to_string().trim_start_matches("it ")),
        }
    }

    /// Returns the words for a trap of the method in its language: `raised an exception` if the file of the source
    /// place ends in `.py`, else `panicked`.
    fn trap_verb(&self) -> &'static str {
        let is_python = self.place.as_ref().is_some_and(|place| place.file.ends_with(".py"));
        if is_python { "raised an exception" } else { "panicked" }
    }

    /// Returns the location line, its parts joined by commas: the source place if known, the function, then the cause's
    /// own location, such as the used part of a limit, or else `step N` if the call was `step`.
    fn location_line(&self) -> String {
        let function = format!("in `{}`", self.function.name());
        let mut parts = Vec::new();
        parts.extend(self.place.as_ref().map(|at| format!("{}:{}:{}", at.file, at.line, at.column)));
        parts.push(function);
        match self.cause.location() {
            Some(used) => parts.push(used),
            None if self.function == Function::Step => parts.push(format!("step {}", self.step)),
            None => {}
        }
        parts.join(", ")
    }

    /// Returns the explanation: for a trap without a message, the last call to the host; for a trap with one, `None`;
    /// for a fault of the host, that it is none of the method; else the cause's own reason. For a method that computed
    /// too long at an unknown place, also names the option that records a profile.
    fn why(&self) -> Option<String> {
        let why = match (&self.cause, &self.message) {
            (Cause::Trap(_), Some(_)) => None,
            (Cause::Trap(_), None) => Some(self.last.map_or_else(
                || "it made no call to the host before".into(),
                |last| format!("its last call to the host was `{last}`"),
            )),
            (Cause::Host(_), _) => {
                let last = self.last.unwrap_or("start");
                Some(format!("this is a fault of tunebox, not of the method; it was in `{last}`"))
            }
            (cause, _) => cause.why(),
        };
        match (&self.cause, &self.place) {
            (Cause::Time { .. }, None) => why.map(|why| {
                let built = "for a method of your own that `tunebox build --debug` built";
                format!("{why}; `--in-process --guest-profile FILE` names its functions, {built}")
            }),
            _ => why,
        }
    }

    /// Suggests a setting under which the method would not have passed its limit, such as `limits.handles=32768`; see
    /// [`Cause::sufficient_setting`]. For a method that computed too long in a call other than `step` and `finish`, the
    /// setting is `limits.init-seconds`. `None` for a cause that no setting changes.
    pub(crate) fn sufficient_setting(&self) -> Option<String> {
        match (&self.cause, self.function) {
            (Cause::Time { limit, .. }, function) if !matches!(function, Function::Step | Function::Finish) => {
                Some(format!("limits.init-seconds={}", (limit * 4.0).max(1.0)))
            }
            (cause, _) => cause.sufficient_setting(),
        }
    }

    /// Returns the advice: the setting that suffices ([`sufficient_setting`](Self::sufficient_setting)), else the
    /// cause's hint, if any.
    fn hint(&self) -> Option<String> {
        match self.sufficient_setting() {
            Some(setting) => Some(format!("`--set {setting}` allows it more")),
            None => self.cause.hint(),
        }
    }
}
