//! A component that imports nothing: a verifier or an environment, which answer the host and cannot ask it for
//! anything.
//!
//! Each call has its own limits, the start of an instance included. A component that traps or takes too long gives no
//! answer; its instance is dropped and the next call gets a new one, so no state of it is left.

use std::time::{Duration, Instant};

use tunebox_foundation::explain::Explanation;
use wasmtime::component::InstancePre;
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::admission;
use crate::engine::Engine;
use crate::error::Error;
use crate::figures::{format_bytes, grouped};
use crate::instructions;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::printable::printable;
use crate::session::Value;

/// The longest text of such a component that a person gets to see, in bytes.
const MESSAGE_BYTES: usize = 400;

/// The most bytes that one call may hand to the host, such as the message with which the component refuses its
/// settings.
const MAX_TRANSFER_BYTES: usize = 1 << 20;

/// The limits of one call.
#[derive(Clone, Debug)]
pub(crate) struct CallLimits {
    /// Seconds, if instructions are not limited.
    pub(crate) seconds: f64,
    /// Instructions; 0 for no limit of them.
    pub(crate) instructions: u64,
    /// Bytes of all memories, tables and instances together.
    pub(crate) memory: u64,
}

/// A world of the contract whose components import nothing.
pub(crate) trait World: 'static {
    /// Its name in the contract and in messages.
    const NAME: &'static str;
    /// The interface that its components export.
    const EXPORT: &'static str;
    /// The functions of that interface, as messages list them.
    const FUNCTIONS: &'static str;
    /// A component whose exports were checked.
    type Pre: Clone;
    /// The exports of an instance.
    type Bound;
    /// The type of a setting's value.
    type Value: for<'a> From<&'a Value>;

    /// Checks the exports of a component. Errors: one is missing or has another type than in the world.
    fn check(instance_pre: InstancePre<CallState>) -> wasmtime::Result<Self::Pre>;

    /// Makes an instance in a store. Errors: its start traps or passes a limit of the store.
    fn instantiate(pre: &Self::Pre, store: &mut Store<CallState>) -> wasmtime::Result<Self::Bound>;

    /// Calls `init` with the settings. The inner error is the component's message; the outer one means that it trapped
    /// or passed a limit.
    fn init(
        bound: &Self::Bound,
        store: &mut Store<CallState>,
        settings: &[(String, Self::Value)],
    ) -> wasmtime::Result<Result<(), String>>;
}

/// A component that was admitted and compiled; nothing of it has run.
pub(crate) struct Isolated<W: World> {
    pub(crate) name: String,
    engine: wasmtime::Engine,
    pre: W::Pre,
    limits: CallLimits,
    /// The bytes that the host keeps for its instances, memories and tables excluded.
    instance_bytes: u64,
}

impl<W: World> Clone for Isolated<W> {
    fn clone(&self) -> Self {
        let Self { name, engine, pre, limits, instance_bytes } = self;
        let (name, engine, pre, limits) = (name.clone(), engine.clone(), pre.clone(), limits.clone());
        Self { name, engine, pre, limits, instance_bytes: *instance_bytes }
    }
}

impl<W: World> Isolated<W> {
    /// Checks a component against its world, at most `component_bytes` and the rules of a method's component, then
    /// compiles it or loads its code from the cache. Runs nothing of it. `name` names it in messages, escaped and cut
    /// at 200 bytes.
    ///
    /// # Errors
    /// Of the first check that fails: [`Error::TooLarge`], [`Error::IsolatedImports`], [`Error::Mismatch`],
    /// [`Error::Malformed`], or [`Error::NotAdmitted`], also if the process that compiles it fails or passes a limit.
    pub(crate) fn admit(
        engine: &Engine,
        bytes: &[u8],
        name: &str,
        component_bytes: usize,
        limits: CallLimits,
    ) -> Result<Self, Error> {
        let name = printable(name, 200);
        let instance_bytes = check_bytes::<W>(bytes, &name, component_bytes)?;
        let component = engine.compile(bytes, &name, &[])?;
        let linker = wasmtime::component::Linker::new(component.engine());
        let pre = linker.instantiate_pre(&component).and_then(W::check);
        let pre = pre.map_err(|error| Error::mismatch(&name, &error))?;
        Ok(Self { name, engine: component.engine().clone(), pre, limits, instance_bytes })
    }
}

/// Checks a component before it is compiled: at most `component_bytes`, nothing that the contract excludes (the rules
/// of a method's component), no imports, and the export of its world. Does not check types. Returns the bytes that the
/// host keeps for its instances, memories and tables excluded.
fn check_bytes<W: World>(bytes: &[u8], name: &str, component_bytes: usize) -> Result<u64, Error> {
    let survey = admission::examine(bytes, name, component_bytes)?;
    if let Some(import) = survey.imports.first() {
        let import = printable(import, 200);
        return Err(Error::IsolatedImports { world: W::NAME, component: name.to_owned(), import });
    }
    if let Some(missing) = admission::missing_export(&survey, name, W::EXPORT)? {
        return Err(Explanation::new("sandbox", format!("`{name}` is no {}", W::NAME))
            .with_location(format!("export `{missing}`, missed before anything ran"))
            .with_why(format!("the host calls {}; a training method goes to `[method]`", W::FUNCTIONS))
            .with_hint(format!("`tunebox inspect {name}` shows what it offers"))
            .into());
    }
    Ok(survey.instance_bytes())
}

/// The data of a store: its memory with the limits, and when the present call must end.
pub(crate) struct CallState {
    memory: Memory,
    end: Option<Instant>,
}

/// A component with its settings and, between calls, its instance.
pub(crate) struct Instances<W: World> {
    pub(crate) component: Isolated<W>,
    settings: Vec<(String, W::Value)>,
    instance: Option<(Store<CallState>, W::Bound)>,
}

impl<W: World> Instances<W> {
    /// Makes an instance and calls its `init` with the settings, within the limits of one call. Every later instance
    /// gets the same settings.
    ///
    /// # Errors
    /// [`Error::Refused`] with the message that `init` returned; [`Error::NotAdmitted`] when the instance cannot be
    /// made within the limits, or `init` traps or passes a limit.
    pub(crate) fn new(component: Isolated<W>, settings: &[(String, Value)]) -> Result<Self, Error> {
        let settings = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let mut instances = Self { component, settings, instance: None };
        instances.instance = Some(instances.create_instance(instances.deadline(None))?);
        Ok(instances)
    }

    /// Drops the instance with all that the component remembers. The next call makes a new one.
    pub(crate) fn drop_instance(&mut self) {
        self.instance = None;
    }

    /// Calls a function of the component by `call`. Makes an instance first if there is none, and drops it after a trap
    /// or timeout: all of this within the limits of one call, and not past `end`. The error is the cause, safe to show.
    pub(crate) fn call<R>(
        &mut self,
        end: Option<Instant>,
        call: impl FnOnce(&W::Bound, &mut Store<CallState>) -> wasmtime::Result<R>,
    ) -> Result<R, String> {
        let end = self.deadline(end);
        let (mut store, bound) = self.take_instance(end).map_err(|error| error.to_string())?;
        store.data_mut().end = end;
        store.set_epoch_deadline(1);
        let answer = call(&bound, &mut store).map_err(|error| self.describe_error(&error))?;
        self.instance = Some((store, bound));
        Ok(answer)
    }

    /// Takes the existing instance and resets its limit of instructions, or makes one within the limits and until
    /// `end`, as [`create_instance`](Self::create_instance) does. Returns the store and the instance in it. The caller
    /// puts it back for the next call.
    fn take_instance(&mut self, end: Option<Instant>) -> Result<(Store<CallState>, W::Bound), Error> {
        let Some((mut store, bound)) = self.instance.take() else { return self.create_instance(end) };
        let limited = instructions::set_limit(&mut store, self.component.limits.instructions);
        limited.map_err(|error| self.start_error(&error))?;
        Ok((store, bound))
    }

    /// Makes an instance within the limits and until `end` (`None` for no end), and calls `init` with the settings.
    /// Returns the store and the instance in it. Errors: [`Error::Refused`] if `init` returns a message,
    /// [`Error::NotAdmitted`] if it traps or the instance cannot be made.
    fn create_instance(&self, end: Option<Instant>) -> Result<(Store<CallState>, W::Bound), Error> {
        // As many memories, tables and instances as a method may have by default.
        let limits = Limits { linear_memory: self.component.limits.memory, ..Limits::default() };
        let mut store = Store::new(&self.component.engine, CallState { memory: Memory::new(&limits), end });
        store.limiter(|bounds| &mut bounds.memory);
        store.set_hostcall_fuel(MAX_TRANSFER_BYTES);
        store.epoch_deadline_callback(|store| {
            let is_late = store.data().end.is_some_and(|end| Instant::now() >= end);
            if is_late { Err(Trap::Interrupt.into()) } else { Ok(UpdateDeadline::Continue(1)) }
        });
        store.set_epoch_deadline(1);
        let bound = instructions::set_limit(&mut store, self.component.limits.instructions);
        let bound = bound.and_then(|()| store.data_mut().memory.reserve(self.component.instance_bytes));
        let bound = bound.and_then(|()| W::instantiate(&self.component.pre, &mut store));
        let bound = bound.map_err(|error| self.start_error(&error))?;
        let answer = W::init(&bound, &mut store, &self.settings);
        match answer.map_err(|error| self.start_error(&error))? {
            Ok(()) => Ok((store, bound)),
            Err(message) => {
                let message = printable(&message, MESSAGE_BYTES);
                let (method, moment) = (self.component.name.clone(), "for its settings".into());
                Err(Error::Refused { method, moment, message, denied: None })
            }
        }
    }

    /// Returns when a call that begins now must end: after its seconds, unless a limit of instructions takes their
    /// place; or at `end`, if that is sooner. `None` if neither limits the time.
    fn deadline(&self, end: Option<Instant>) -> Option<Instant> {
        let CallLimits { seconds, instructions, .. } = self.component.limits;
        let own = Duration::try_from_secs_f64(seconds).ok().filter(|_| instructions == 0);
        let own = own.and_then(|own| Instant::now().checked_add(own));
        own.into_iter().chain(end).min()
    }

    /// Builds the error for a component that does not start, with the reason that `error`, the engine's, gives.
    fn start_error(&self, error: &wasmtime::Error) -> Error {
        let (world, name) = (W::NAME, &self.component.name);
        let what = format!("the {world} `{name}` does not start: {}", self.describe_error(error));
        Explanation::new("sandbox", what).into()
    }

    /// Describes why a call ended: too many instructions, too slow, out of stack, another trap, or, for an error that
    /// is no trap, the engine's message, escaped and cut at 400 bytes, with the memory limit.
    fn describe_error(&self, error: &wasmtime::Error) -> String {
        let limits = &self.component.limits;
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => format!("it executed more than {} instructions", grouped(limits.instructions)),
            Some(Trap::Interrupt) => format!("it took longer than {} s", limits.seconds),
            Some(Trap::StackOverflow) => "it ran out of stack".into(),
            Some(Trap::UnreachableCodeReached) => "it gave up".into(),
            Some(trap) => trap.to_string(),
            None => {
                let cause = printable(&error.root_cause().to_string(), MESSAGE_BYTES);
                format!("{cause} (it may use {} of memory)", format_bytes(limits.memory))
            }
        }
    }
}

/// Converts a setting's value to the type that an interface of the contract declares for it.
macro_rules! convert_settings {
    ($interface:ty) => {
        impl From<&Value> for $interface {
            /// Converts a setting's value to the type of the interface.
            fn from(value: &Value) -> Self {
                match value {
                    Value::Boolean(value) => Self::Boolean(*value),
                    Value::Integer(value) => Self::Integer(*value),
                    Value::Number(value) => Self::Number(*value),
                    Value::Text(value) => Self::Text(value.clone()),
                    Value::Integers(values) => Self::Integers(values.clone()),
                    Value::Numbers(values) => Self::Numbers(values.clone()),
                    Value::Texts(values) => Self::Texts(values.clone()),
                }
            }
        }
    };
}

convert_settings!(crate::bindings::types::Value);
convert_settings!(crate::bindings::verifier::exports::tunebox::method::verify::Value);
convert_settings!(crate::bindings::environment::exports::tunebox::method::respond::Value);
