//! A verifier: a component of the world `verifier`, which imports nothing and judges one completion in each call.
//!
//! Each verdict has its own limits, the start of an instance included. A verifier that traps or takes too long could not
//! judge; its instance is thrown away and the next call gets a new one, so nothing it did is left.

use std::time::{Duration, Instant};

use tunebox_foundation::explain::Explanation;
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::admission;
use crate::bindings::verifier::exports::tunebox::method::verify;
use crate::bindings::verifier::{Verifier as Bound, VerifierPre};
use crate::engine::Engine;
use crate::error::Error;
use crate::figures::{format_bytes, grouped};
use crate::instructions;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::printable::printable;
use crate::session::Value;

/// The interface that a verifier exports.
const VERIFY: &str = "verify";

/// The longest text of a verifier that a person gets to see, in bytes.
const MESSAGE_BYTES: usize = 400;

/// The most tables, memories and instances (each) of one verifier.
const MAX_PARTS: usize = 16;

/// The most bytes that one call of a verifier may hand to the host: the message with which it refuses its settings.
const MAX_TRANSFER_BYTES: usize = 1 << 20;

/// A verifier that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub struct Verifier {
    name: String,
    instance_pre: VerifierPre<VerifierState>,
    limits: Limits,
    /// The bytes that the host keeps for its instances, memories and tables excluded.
    instance_bytes: u64,
}

/// The outcome of one call of a verifier.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A finite number.
    Value(f32),
    /// No value: the verifier cannot judge this completion.
    Abstained,
    /// Why there is no finite number, escaped: the verifier trapped, took too long, or returned infinity or NaN.
    Failed(String),
}

impl Engine {
    /// Checks a component against the world `verifier` and its limits, then compiles it or loads its code from the cache.
    /// Runs nothing of it. `name` names the verifier in messages, escaped and cut at 200 bytes.
    ///
    /// # Errors
    /// Of the first check that fails: [`Error::TooLarge`], [`Error::VerifierImports`], [`Error::Mismatch`],
    /// [`Error::Malformed`], or [`Error::NotAdmitted`], also if the process that compiles it fails or passes a limit.
    pub fn admit_verifier(&self, bytes: &[u8], name: &str, limits: &Limits) -> Result<Verifier, Error> {
        let name = printable(name, 200);
        let instance_bytes = admit(bytes, &name, limits)?;
        let component = self.compile(bytes, &name, &[])?;
        let linker = wasmtime::component::Linker::new(component.engine());
        let instance_pre = linker.instantiate_pre(&component).and_then(VerifierPre::new);
        let instance_pre = instance_pre.map_err(|error| Error::mismatch(&name, &error))?;
        Ok(Verifier { name, instance_pre, limits: limits.clone(), instance_bytes })
    }
}

/// Checks a verifier before it is compiled: at most `verifier_component_bytes`, nothing that the contract excludes (the
/// rules of a method's component), no imports, and the export `verify`. Does not check types. Returns the bytes that
/// the host keeps for its instances, memories and tables excluded.
fn admit(bytes: &[u8], name: &str, limits: &Limits) -> Result<u64, Error> {
    let survey = admission::examine(bytes, name, limits.verifier_component_bytes)?;
    if let Some(import) = survey.imports.first() {
        return Err(Error::VerifierImports { verifier: name.to_owned(), import: printable(import, 200) });
    }
    if let Some(missing) = admission::missing_export(&survey, name, VERIFY)? {
        return Err(Explanation::new("sandbox", format!("`{name}` is no verifier"))
            .with_location(format!("export `{missing}`, missed before anything ran"))
            .with_why("the host calls `init` and `verify`; a training method goes to `[method]`")
            .with_hint(format!("`tunebox inspect {name}` shows what it offers"))
            .into());
    }
    Ok(survey.instance_bytes())
}

/// The data of a verifier's store: its memory with the limits, and when the present call must end.
struct VerifierState {
    memory: Memory,
    end: Option<Instant>,
}

/// A verifier with its settings and, between calls, its instance.
pub struct Judge {
    verifier: Verifier,
    settings: Vec<(String, verify::Value)>,
    instance: Option<(Store<VerifierState>, Bound)>,
}

impl Judge {
    /// Makes an instance of the verifier and calls its `init` with the settings, within the limits of one verdict:
    /// `verifier_seconds` or `verifier_instructions`, and `verifier_memory`. Every later instance gets the same
    /// settings.
    ///
    /// # Errors
    /// [`Error::Refused`] with the message that `init` returned; [`Error::NotAdmitted`] when the instance cannot be
    /// made within the limits, or `init` traps or passes a limit.
    pub fn new(verifier: Verifier, settings: &[(String, Value)]) -> Result<Self, Error> {
        let settings = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let mut judge = Self { verifier, settings, instance: None };
        judge.instance = Some(judge.create_instance(judge.deadline(None))?);
        Ok(judge)
    }

    /// Drops the instance with all that the verifier remembers. The next call makes a new one.
    pub fn forget(&mut self) {
        self.instance = None;
    }

    /// Judges one completion, given prompt and expected answer. Makes an instance first if there is none, and drops it
    /// after a trap or timeout: all of this within `verifier_seconds`, or `verifier_instructions` if that is not 0, and not
    /// past `end`. Every failure, an infinite value or NaN included, is a [`Verdict::Failed`].
    pub fn verdict(&mut self, prompt: &str, completion: &str, answer: &str, end: Option<Instant>) -> Verdict {
        let end = self.deadline(end);
        let (mut store, bound) = match self.take_instance(end) {
            Ok(instance) => instance,
            Err(error) => return Verdict::Failed(error.to_string()),
        };
        store.data_mut().end = end;
        store.set_epoch_deadline(1);
        match bound.tunebox_method_verify().call_verify(&mut store, prompt, completion, answer) {
            Ok(value) => {
                self.instance = Some((store, bound));
                match value {
                    Some(value) if value.is_finite() => Verdict::Value(value),
                    Some(value) => Verdict::Failed(format!("its verdict is {value}")),
                    None => Verdict::Abstained,
                }
            }
            Err(error) => Verdict::Failed(self.describe_error(&error)),
        }
    }

    /// Takes the existing instance out of this judge and resets its limit of instructions, or makes one within the
    /// limits and until `end`, as [`create_instance`](Self::create_instance) does. Returns the store and the instance
    /// in it. The caller puts it back for the next call.
    fn take_instance(&mut self, end: Option<Instant>) -> Result<(Store<VerifierState>, Bound), Error> {
        let Some((mut store, bound)) = self.instance.take() else { return self.create_instance(end) };
        let limited = instructions::set_limit(&mut store, self.verifier.limits.verifier_instructions);
        limited.map_err(|error| self.start_error(&error))?;
        Ok((store, bound))
    }

    /// Makes an instance within the limits and until `end` (`None` for no end), and calls `init` with the settings.
    /// Returns the store and the instance in it. Errors: [`Error::Refused`] if `init` returns a message,
    /// [`Error::NotAdmitted`] if it traps or the instance cannot be made.
    fn create_instance(&self, end: Option<Instant>) -> Result<(Store<VerifierState>, Bound), Error> {
        let memory = self.verifier.limits.verifier_memory as u64;
        let limits = Limits {
            linear_memory: memory,
            memories: MAX_PARTS,
            tables: MAX_PARTS,
            instances: MAX_PARTS,
            ..Limits::default()
        };
        let mut store =
            Store::new(self.verifier.instance_pre.engine(), VerifierState { memory: Memory::new(&limits), end });
        store.limiter(|bounds| &mut bounds.memory);
        store.set_hostcall_fuel(MAX_TRANSFER_BYTES);
        store.epoch_deadline_callback(|store| {
            let is_late = store.data().end.is_some_and(|end| Instant::now() >= end);
            if is_late { Err(Trap::Interrupt.into()) } else { Ok(UpdateDeadline::Continue(1)) }
        });
        store.set_epoch_deadline(1);
        let bound = instructions::set_limit(&mut store, self.verifier.limits.verifier_instructions);
        let bound = bound.and_then(|()| store.data_mut().memory.reserve(self.verifier.instance_bytes));
        let bound = bound.and_then(|()| self.verifier.instance_pre.instantiate(&mut store));
        let bound = bound.map_err(|error| self.start_error(&error))?;
        let answer = bound.tunebox_method_verify().call_init(&mut store, &self.settings);
        match answer.map_err(|error| self.start_error(&error))? {
            Ok(()) => Ok((store, bound)),
            Err(panic_message) => {
                let message = printable(&panic_message, MESSAGE_BYTES);
                let (method, moment) = (self.verifier.name.clone(), "for its settings".into());
                Err(Error::Refused { method, moment, message, denied: None })
            }
        }
    }

    /// Returns when a verdict that begins now must end: after `verifier_seconds`, unless `verifier_instructions` is not
    /// 0 and takes its place; or at `end`, if that is sooner. `None` if neither limits the time.
    fn deadline(&self, end: Option<Instant>) -> Option<Instant> {
        let Limits { verifier_seconds, verifier_instructions, .. } = self.verifier.limits;
        let own = Duration::try_from_secs_f64(verifier_seconds).ok().filter(|_| verifier_instructions == 0);
        let own = own.and_then(|own| Instant::now().checked_add(own));
        own.into_iter().chain(end).min()
    }

    /// Builds the error for a verifier that does not start, with the reason that `error`, the engine's, gives.
    fn start_error(&self, error: &wasmtime::Error) -> Error {
        let what = format!("the verifier `{}` does not start: {}", self.verifier.name, self.describe_error(error));
        Explanation::new("sandbox", what).into()
    }

    /// Describes why a call ended: too many instructions, too slow, out of stack, another trap, or, for an error that
    /// is no trap, the engine's message, escaped and cut at 400 bytes, with the memory limit.
    fn describe_error(&self, error: &wasmtime::Error) -> String {
        let limits = &self.verifier.limits;
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => {
                format!("it executed more than {} instructions", grouped(limits.verifier_instructions))
            }
            Some(Trap::Interrupt) => format!("it took longer than {} s", limits.verifier_seconds),
            Some(Trap::StackOverflow) => "it ran out of stack".into(),
            Some(Trap::UnreachableCodeReached) => "it gave up".into(),
            Some(trap) => trap.to_string(),
            None => {
                let cause = printable(&error.root_cause().to_string(), MESSAGE_BYTES);
                format!("{cause} (it may use {} of memory)", format_bytes(limits.verifier_memory as u64))
            }
        }
    }
}

impl From<&Value> for verify::Value {
    /// Converts a setting's value to the type of the world `verifier`.
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
