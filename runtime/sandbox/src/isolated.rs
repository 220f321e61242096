//! A component that imports nothing: a verifier or an environment, which answer the host and cannot ask it for
//! anything.
//!
//! Each call has its own limits, the start of an instance included. A component that traps or takes too long gives no
//! answer; its instance is dropped and the next call gets a new one, so no state of it is left.

use std::time::{Duration, Instant};

use tunebox_foundation::contract::{CONTRACT, PACKAGE};
use tunebox_foundation::explain::Explanation;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, Func, InstancePre, Lift, Linker, Lower, TypedFunc,
};
use wasmtime::{Store, Trap, UpdateDeadline, format_err};

use crate::admission;
use crate::bindings::types;
use crate::cause::Cause;
use crate::engine::Engine;
use crate::error::Error;
use crate::figures::{double_to_fit, format_bytes, group_digits};
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

/// A world of the contract whose components import nothing. They export `init` and another function, with which they
/// answer, in an interface that is called like this function.
pub(crate) struct World {
    /// Its name in the contract and in messages.
    pub(crate) name: &'static str,
    /// The name of the function that answers.
    pub(crate) function: &'static str,
    /// Checks the type of that function. Errors: it is not the one of the contract.
    pub(crate) check: fn(&Func, &Store<CallState>) -> wasmtime::Result<()>,
}

/// A component that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub(crate) struct Isolated {
    pub(crate) name: String,
    world: &'static World,
    pre: InstancePre<CallState>,
    /// The exports `init` and the function that answers.
    exports: [ComponentExportIndex; 2],
    limits: CallLimits,
    /// The bytes that the host keeps for its instances, memories and tables excluded.
    instance_bytes: u64,
}

impl Isolated {
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
        world: &'static World,
        (component_bytes, limits): (usize, CallLimits),
    ) -> Result<Self, Error> {
        let name = printable(name, 200);
        let instance_bytes = check_bytes(bytes, &name, world, component_bytes)?;
        let component = engine.compile(bytes, &name, &[])?;
        let found = Linker::new(component.engine()).instantiate_pre(&component);
        let found = found.and_then(|pre| Ok((pre, find_exports(&component, world)?)));
        let (pre, exports) = found.map_err(|error| Error::mismatch(&name, &error))?;
        Ok(Self { name, world, pre, exports, limits, instance_bytes })
    }
}

/// Finds the functions that a component of this world exports: `init` and the one that answers. Errors: one is missing.
fn find_exports(component: &Component, world: &World) -> wasmtime::Result<[ComponentExportIndex; 2]> {
    let interface = format!("{PACKAGE}/{}@{CONTRACT}", world.function);
    let exported = component.get_export_index(None, &interface);
    let exported = exported.ok_or_else(|| format_err!("no exported instance named `{interface}`"))?;
    let find = |name: &str| {
        let missing = || format_err!("instance export `{interface}` does not have export `{name}`");
        component.get_export_index(Some(&exported), name).ok_or_else(missing)
    };
    Ok([find("init")?, find(world.function)?])
}

/// Checks a component before it is compiled: at most `component_bytes`, nothing that the contract excludes (the rules
/// of a method's component), no imports, and the export of its world. Does not check types. Returns the bytes that the
/// host keeps for its instances, memories and tables excluded.
fn check_bytes(bytes: &[u8], name: &str, world: &World, component_bytes: usize) -> Result<u64, Error> {
    let survey = admission::examine(bytes, name, component_bytes)?;
    if let Some(import) = survey.imports.first() {
        let import = printable(import, 200);
        return Err(Error::IsolatedImports { world: world.name, component: name.to_owned(), import });
    }
    let function = world.function;
    if let Some(missing) = admission::missing_export(&survey, name, function)? {
        return Err(Explanation::new("sandbox", format!("`{name}` is no {}", world.name))
            .with_location(format!("export `{missing}`, missed before anything ran"))
            .with_why(format!("the host calls `init` and `{function}`; a training method goes to `[method]`"))
            .with_hint(format!("`tunebox inspect {name}` shows what it offers"))
            .into());
    }
    Ok(survey.instance_bytes())
}

/// The function `init` of an instance, which takes the settings and may return a message.
type Init<'a> = TypedFunc<(&'a Vec<(String, types::Value)>,), (Result<(), String>,)>;

/// The data of a store: its memory with the limits, and when the present call must end.
pub(crate) struct CallState {
    memory: Memory,
    end: Option<Instant>,
}

/// A component with its settings and, between calls, its instance.
pub(crate) struct Instances {
    component: Isolated,
    settings: Vec<(String, types::Value)>,
    /// A store, and the function of the instance in it that answers.
    instance: Option<(Store<CallState>, Func)>,
}

impl Instances {
    /// Makes an instance and calls its `init` with the settings, within the limits of one call. Every later instance
    /// gets the same settings.
    ///
    /// # Errors
    /// [`Error::Refused`] with the message that `init` returned; [`Error::NotAdmitted`] when the instance cannot be
    /// made within the limits, or `init` traps or passes a limit.
    pub(crate) fn new(component: Isolated, settings: &[(String, Value)]) -> Result<Self, Error> {
        let settings = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let mut instances = Self { component, settings, instance: None };
        instances.instance = Some(instances.create_instance(instances.deadline(None))?);
        Ok(instances)
    }

    /// Drops the instance with all that the component remembers. The next call makes a new one.
    pub(crate) fn drop_instance(&mut self) {
        self.instance = None;
    }

    /// Has the component answer `question`, the parameters of its function. Makes an instance first if there is none,
    /// and drops it after a trap or timeout: all of this within the limits of one call, and not past `end`. The error
    /// is the cause, safe to show.
    pub(crate) fn call<P, R>(&mut self, question: P, end: Option<Instant>) -> Result<R, String>
    where
        P: ComponentNamedList + Lower,
        (R,): ComponentNamedList + Lift,
    {
        let end = self.deadline(end);
        let (mut store, function) = self.take_instance(end).map_err(|error| error.to_string())?;
        store.data_mut().end = end;
        store.set_epoch_deadline(1);
        let answer = function.typed::<P, (R,)>(&store).and_then(|typed| typed.call(&mut store, question));
        let (answer,) = answer.map_err(|error| self.describe_error(&error))?;
        self.instance = Some((store, function));
        Ok(answer)
    }

    /// Takes the existing instance and resets its limit of instructions, or makes one within the limits and until
    /// `end`, as [`create_instance`](Self::create_instance) does. Returns the store and the function that answers. The
    /// caller puts them back for the next call.
    fn take_instance(&mut self, end: Option<Instant>) -> Result<(Store<CallState>, Func), Error> {
        let Some((mut store, function)) = self.instance.take() else { return self.create_instance(end) };
        let limited = instructions::set_limit(&mut store, self.component.limits.instructions);
        limited.map_err(|error| self.start_error(&error))?;
        Ok((store, function))
    }

    /// Makes an instance within the limits and until `end` (`None` for no end), and calls `init` with the settings.
    /// Returns the store and the function that answers. Errors: [`Error::Refused`] if `init` returns a message,
    /// [`Error::NotAdmitted`] if it traps or the instance cannot be made.
    fn create_instance(&self, end: Option<Instant>) -> Result<(Store<CallState>, Func), Error> {
        // As many memories, tables and instances as a method may have by default.
        let limits = Limits { linear_memory: self.component.limits.memory, ..Limits::default() };
        let mut store = Store::new(self.component.pre.engine(), CallState { memory: Memory::new(&limits), end });
        store.limiter(|bounds| &mut bounds.memory);
        store.set_hostcall_fuel(MAX_TRANSFER_BYTES);
        store.epoch_deadline_callback(|store| {
            let is_late = store.data().end.is_some_and(|end| Instant::now() >= end);
            if is_late { Err(Trap::Interrupt.into()) } else { Ok(UpdateDeadline::Continue(1)) }
        });
        store.set_epoch_deadline(1);
        let answer = self.instantiate(&mut store).and_then(|(init, function)| {
            let (answer,) = init.call(&mut store, (&self.settings,))?;
            Ok(answer.map(|()| function))
        });
        match answer.map_err(|error| self.start_error(&error))? {
            Ok(function) => Ok((store, function)),
            Err(message) => {
                let message = printable(&message, MESSAGE_BYTES);
                let (method, moment) = (self.component.name.clone(), "for its settings".into());
                Err(Error::Refused { method, moment, message, denied: None })
            }
        }
    }

    /// Makes an instance in a store. Returns its functions `init` and the one that answers. Errors: its start traps or
    /// passes a limit of the store, or one of them has another type than in the contract.
    fn instantiate(&self, store: &mut Store<CallState>) -> wasmtime::Result<(Init<'_>, Func)> {
        let Isolated { world, pre, exports: [init, answer], limits, instance_bytes, .. } = &self.component;
        instructions::set_limit(store, limits.instructions)?;
        store.data_mut().memory.reserve(*instance_bytes)?;
        let instance = pre.instantiate(&mut *store)?;
        let init = instance.get_typed_func(&mut *store, init)?;
        let missing = || format_err!("failed to find function export");
        let function = instance.get_func(&mut *store, answer).ok_or_else(missing)?;
        (world.check)(&function, store)?;
        Ok((init, function))
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
        let (world, name) = (self.component.world.name, &self.component.name);
        let what = format!("the {world} `{name}` does not start: {}", self.describe_error(error));
        Explanation::new("sandbox", what).into()
    }

    /// Describes why a call ended, and for a passed limit the setting that suffices: too many instructions, too slow,
    /// too much memory, out of stack, another trap, or, for an error that is no trap, the engine's message, escaped and
    /// cut at 400 bytes, with the memory limit.
    fn describe_error(&self, error: &wasmtime::Error) -> String {
        let Isolated { limits, world, .. } = &self.component;
        let allow =
            |limit: &str, value: String| format!("`--set limits.{}-{limit}={value}` allows it more", world.name);
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => {
                let enough = allow("instructions", limits.instructions.saturating_mul(2).to_string());
                format!("it executed more than {} instructions; {enough}", group_digits(limits.instructions))
            }
            Some(Trap::Interrupt) => {
                let enough = allow("seconds", (limits.seconds * 4.0).max(1.0).to_string());
                format!("it took longer than {} s; {enough}", limits.seconds)
            }
            Some(Trap::StackOverflow) => "it ran out of stack".into(),
            Some(Trap::UnreachableCodeReached) => {
                "it gave up, as after a panic in Rust or an exception in Python; its own tests show where".into()
            }
            Some(trap) => trap.to_string(),
            None => {
                let cause = printable(&error.root_cause().to_string(), MESSAGE_BYTES);
                let cause = format!("{cause} (it may use {} of memory)", format_bytes(limits.memory));
                match error.downcast_ref::<Cause>() {
                    Some(Cause::LinearMemory { wanted, limit }) => {
                        format!("{cause}; {}", allow("memory", double_to_fit(*limit, *wanted)))
                    }
                    _ => cause,
                }
            }
        }
    }
}

impl From<&Value> for types::Value {
    /// Converts a setting's value to the type of the contract. The interfaces of all worlds have the same one.
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
