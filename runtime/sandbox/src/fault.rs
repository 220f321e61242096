//! Why a method ended: a limit, a trap, or a fault of the host's own, as one thing to tell a person.
//!
//! Imports end a method with a [`Cause`]; [`Stop`] adds which call it was, the step, and the place
//! in the method's source. The words are here; who prints them is not.

use wasmtime::component::ResourceTableError;
use wasmtime::{Trap, WasmBacktrace};

use crate::printable::printable;

/// The longest text of a method in an error, in bytes.
const TEXT_BYTES: usize = 400;

/// A call into a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Making the instance.
    Start,
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
}

impl Function {
    /// The function as WIT writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Init => "init",
            Self::Step => "step",
            Self::Finish => "finish",
            Self::SaveState => "save-state",
            Self::LoadState => "load-state",
        }
    }
}

/// What ended a method.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("it used up its time")]
    Time { used: f64, limit: f64, calls: u64 },
    #[error("it asked for more memory than it may have")]
    LinearMemory { wanted: u64, limit: u64 },
    #[error("it asked for larger tables than it may have")]
    Tables { wanted: u64, limit: u64 },
    #[error("it asked for more tensor bytes than it may hold")]
    DeviceBytes { wanted: u64, held: u64, limit: u64 },
    #[error("it holds more handles than it may")]
    Handles { limit: u64 },
    #[error("it called the host more often than it may")]
    HostCalls { limit: u64 },
    #[error("it asked for more tensor work than it may")]
    Work { limit: u64 },
    #[error("it built a longer chain of operations than a gradient may walk")]
    GraphDepth { limit: u32 },
    #[error("it gave back more state than a checkpoint takes")]
    State { bytes: u64, limit: u64 },
    #[error("it used a tensor that its scope had freed")]
    FreedHandle,
    #[error("it broke the contract: {0}")]
    Protocol(String),
    #[error("it ran out of stack")]
    Stack,
    #[error("it stopped: {0}")]
    Trap(String),
    #[error("the host failed: {0}")]
    Host(String),
}

impl From<ResourceTableError> for Cause {
    fn from(error: ResourceTableError) -> Self {
        match error {
            ResourceTableError::Full => Self::Handles { limit: 0 },
            error => Self::Protocol(error.to_string()),
        }
    }
}

impl Cause {
    /// The cause behind an error of the engine. `handles` is the limit that the engine does not tell.
    pub(crate) fn of(error: &wasmtime::Error, handles: u32) -> Self {
        let cause = match (error.downcast_ref::<Self>(), error.downcast_ref::<Trap>()) {
            (Some(cause), _) => cause.clone(),
            (None, Some(Trap::StackOverflow)) => Self::Stack,
            (None, Some(Trap::UnreachableCodeReached)) => {
                Self::Trap("it reached code that it calls unreachable".into())
            }
            (None, Some(trap)) => Self::Trap(trap.to_string()),
            // What is neither ours nor a trap of the code is the engine refusing a handle, list or text.
            (None, None) => Self::Protocol(printable(&error.root_cause().to_string(), TEXT_BYTES)),
        };
        match cause {
            Self::Handles { .. } => Self::Handles { limit: u64::from(handles) },
            cause => cause,
        }
    }

    /// What was used of what, where that can be said in numbers.
    fn used(&self) -> Option<String> {
        match self {
            Self::Time { used, limit, .. } => Some(format!("after {used:.1} s of {limit} s")),
            Self::LinearMemory { wanted, limit } => Some(format!("{} of {}", bytes(*wanted), bytes(*limit))),
            Self::DeviceBytes { wanted, held, limit } => {
                Some(format!("{} more than the {} held, of {}", bytes(*wanted), bytes(*held), bytes(*limit)))
            }
            Self::State { bytes: used, limit } => Some(format!("{} of {}", bytes(*used), bytes(*limit))),
            Self::Tables { wanted, limit } => Some(format!("{} entries of {}", grouped(*wanted), grouped(*limit))),
            Self::Handles { limit } => Some(format!("past {} handles", grouped(*limit))),
            Self::HostCalls { limit } => Some(format!("past {} calls", grouped(*limit))),
            Self::Work { limit } => Some(format!("past {} numbers", grouped(*limit))),
            Self::GraphDepth { limit } => Some(format!("past {} operations", grouped(u64::from(*limit)))),
            _ => None,
        }
    }

    /// The reason behind it, in one sentence.
    fn why(&self, last: Option<&'static str>) -> Option<String> {
        Some(match self {
            Self::Time { calls: 0, .. } => {
                "no call to the host came back in that time: the method itself was computing".into()
            }
            Self::Time { calls, .. } => {
                format!("the method itself was computing; the host's work in its {} calls does not count", grouped(*calls))
            }
            Self::LinearMemory { .. } => {
                "this is the memory for a method's own lists; tensors stay on the host and do not count".into()
            }
            Self::DeviceBytes { .. } => {
                "a tensor counts until its handle and every graph that leads through it are gone; an operation's temporaries count while it runs".into()
            }
            Self::Handles { .. } => "a handle counts until the method drops it, or its scope".into(),
            Self::HostCalls { .. } => "every call counts, however small; whole steps cross the wall, not loops".into(),
            Self::Work { .. } => "every number that an operation reads or writes counts".into(),
            Self::GraphDepth { .. } => "the gradient walks such a chain one operation after another".into(),
            Self::FreedHandle => "dropping a scope frees every tensor made since it was opened, but not the kept".into(),
            Self::Protocol(_) => "every handle, list and text that crosses the wall is checked".into(),
            Self::Stack => "functions that call one another too deeply, or for ever".into(),
            Self::Host(_) => format!("this is a fault of tunebox, not of the method; it was in `{}`", last.unwrap_or("start")),
            _ => return None,
        })
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        let (name, value) = match self {
            Self::Time { limit, .. } => ("step-seconds", format!("{}", (limit * 4.0).max(1.0))),
            Self::LinearMemory { limit, wanted } => ("linear-memory", doubled(*limit, *wanted)),
            Self::DeviceBytes { limit, wanted, held } => {
                ("device-bytes", doubled(*limit, wanted.saturating_add(*held)))
            }
            Self::Handles { limit } => ("handles", doubled(*limit, limit + 1)),
            Self::HostCalls { limit } => ("host-calls", doubled(*limit, limit + 1)),
            Self::Work { limit } => ("work", doubled(*limit, limit + 1)),
            Self::GraphDepth { .. } => return Some("its author can `detach` what needs no gradient".into()),
            Self::FreedHandle => return Some("its author can `keep` the tensor in the scope".into()),
            Self::Host(_) => return Some("please report it, with the method and `run.toml`".into()),
            _ => return None,
        };
        Some(format!("`--set limits.{name}={value}`, then `tunebox train run.toml --resume`"))
    }
}

/// A place in the source of a method, made safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// What a method said through `run.fault` before it trapped.
#[derive(Clone, Debug)]
pub(crate) struct GuestFault {
    pub(crate) message: String,
    pub(crate) place: Place,
}

impl GuestFault {
    /// Takes a method's words, made safe to show.
    pub(crate) fn new(message: &str, file: &str, line: u32, column: u32) -> Self {
        let place = Place { file: printable(file, 200), line, column };
        Self { message: printable(message, TEXT_BYTES), place }
    }
}

/// The end of a method: what, in which call, at which step, where in its source.
#[derive(Debug)]
pub struct Stop {
    method: String,
    function: Function,
    step: u32,
    cause: Cause,
    place: Option<Place>,
    message: Option<String>,
    last: Option<&'static str>,
    frames: Vec<String>,
}

impl Stop {
    /// A stop of `method` in `function`; `step` counts from 1.
    pub(crate) fn new(method: &str, function: Function, step: u32, cause: Cause) -> Self {
        let method = method.to_owned();
        Self { method, function, step, cause, place: None, message: None, last: None, frames: Vec::new() }
    }

    /// The same with the import that ran last.
    pub(crate) fn after(mut self, last: Option<&'static str>) -> Self {
        self.last = last;
        self
    }

    /// The same with what the method said itself, which explains only its own traps.
    pub(crate) fn said(mut self, fault: Option<GuestFault>) -> Self {
        if let (Cause::Trap(_), Some(fault)) = (&self.cause, fault) {
            (self.place, self.message) = (Some(fault.place), Some(fault.message));
        }
        self
    }

    /// The same with the call stack of the method, if the error has one.
    pub(crate) fn traced(mut self, error: &wasmtime::Error) -> Self {
        let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return self };
        for frame in trace.frames() {
            let name = frame
                .func_name()
                .map_or_else(|| format!("function {}", frame.func_index()), |name| printable(name, 200));
            let place = frame.symbols().iter().find_map(|symbol| {
                let file = printable(symbol.file()?, 200);
                Some(Place { file, line: symbol.line()?, column: symbol.column().unwrap_or(1) })
            });
            self.frames.push(match &place {
                Some(place) => format!("{name} at {}:{}", place.file, place.line),
                None => name,
            });
            self.place = self.place.or(place);
        }
        self
    }

    /// The call that the method was in.
    pub fn function(&self) -> Function {
        self.function
    }

    /// The update that was being made, from 1.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The functions of the method that were running, innermost first; for `--verbose`.
    pub fn frames(&self) -> &[String] {
        &self.frames
    }

    /// Whether the host, not the method, is at fault.
    pub fn is_host_fault(&self) -> bool {
        matches!(self.cause, Cause::Host(_))
    }

    fn moment(&self) -> String {
        match self.function {
            Function::Step => format!("at step {}", self.step),
            function => format!("in `{}`", function.name()),
        }
    }

    pub(crate) fn what(&self) -> String {
        let (method, moment) = (&self.method, self.moment());
        match (&self.cause, &self.message) {
            (Cause::Trap(_), Some(message)) => format!("`{method}` gave up {moment}: {message}"),
            (Cause::Trap(trap), None) => format!("`{method}` stopped {moment}: {trap}"),
            (Cause::Host(message), _) => format!("the host failed under `{method}` {moment}: {message}"),
            (Cause::Protocol(message), _) => format!("`{method}` broke the contract {moment}: {message}"),
            (cause, _) => format!("`{method}` {} {moment}", cause.to_string().trim_start_matches("it ")),
        }
    }

    pub(crate) fn place(&self) -> String {
        let function = format!("in `{}`", self.function.name());
        let mut parts = Vec::new();
        parts.extend(self.place.as_ref().map(|at| format!("{}:{}:{}", at.file, at.line, at.column)));
        parts.push(function);
        match self.cause.used() {
            Some(used) => parts.push(used),
            None if self.function == Function::Step => parts.push(format!("step {}", self.step)),
            None => {}
        }
        parts.join(", ")
    }

    pub(crate) fn why(&self) -> Option<String> {
        match (&self.cause, &self.message) {
            (Cause::Trap(_), Some(_)) => Some("the method ended itself; its own words are above".into()),
            (Cause::Trap(_), None) => Some(self.last.map_or_else(
                || "it made no call to the host before".into(),
                |last| format!("its last call to the host was `{last}`"),
            )),
            (cause, _) => cause.why(self.last),
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match (&self.cause, self.function) {
            (Cause::Time { limit, .. }, function) if !matches!(function, Function::Step | Function::Finish) => {
                Some(format!("`--set limits.init-seconds={}`", (limit * 4.0).max(1.0)))
            }
            (cause, _) => cause.hint(),
        }
    }
}

/// A number of bytes in the unit that reads best.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} bytes"),
    }
}

/// A number with a comma between every three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A limit that would have been enough, by doubling the one that was not.
fn doubled(limit: u64, needed: u64) -> String {
    let mut larger = limit.max(1);
    while larger < needed {
        match larger.checked_mul(2) {
            Some(twice) => larger = twice,
            None => return u64::MAX.to_string(),
        }
    }
    larger.to_string()
}
