//! A verifier: the second world, a component that imports nothing and judges one completion a call.
//!
//! Each verdict has its own limits. A verifier that traps or takes too long could not judge; its
//! instance is thrown away and the next call gets a new one, so nothing it did is left.

use tunebox_foundation::explain::Explanation;
use wasmtime::{Store, StoreLimits, StoreLimitsBuilder, Trap};

use crate::admission;
use crate::bindings::verifier::exports::tunebox::method::verify;
use crate::bindings::verifier::{Verifier as Bound, VerifierPre};
use crate::engine::Engine;
use crate::error::Error;
use crate::figures::bytes;
use crate::limits::{TICK, VerifierLimits};
use crate::printable::printable;
use crate::session::Value;

/// The interface that a verifier exports.
const VERIFY: &str = "verify";

/// The longest text of a verifier that a person gets to see, in bytes.
const MESSAGE_BYTES: usize = 400;

/// Tables, memories and instances of one verifier.
const PARTS: usize = 16;

/// A verifier that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub struct Verifier {
    name: String,
    ready: VerifierPre<StoreLimits>,
    limits: VerifierLimits,
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A finite number.
    Value(f32),
    /// It says that this cannot be judged.
    Abstained,
    /// It trapped, took too long or gave no finite number: why, safe to show.
    Failed(String),
}

impl Engine {
    /// Checks a component against the world `verifier`, then compiles it. Nothing of it runs.
    ///
    /// # Errors
    /// Every refusal of [`Error`] that is found before anything runs.
    pub fn admit_verifier(&self, bytes: &[u8], name: &str, limits: &VerifierLimits) -> Result<Verifier, Error> {
        let name = printable(name, 200);
        admit(bytes, &name, limits)?;
        let component = self.compile(bytes, &name)?;
        let linker = wasmtime::component::Linker::new(component.engine());
        let ready = linker.instantiate_pre(&component).and_then(VerifierPre::new);
        let ready = ready.map_err(|error| Error::mismatch(&name, &error))?;
        Ok(Verifier { name, ready, limits: limits.clone() })
    }
}

/// Everything that is checked before compiling: size and form as of a method, no import, and the export `verify`.
fn admit(bytes: &[u8], name: &str, limits: &VerifierLimits) -> Result<(), Error> {
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
    admission::validate(bytes, name).map(drop)
}

/// A verifier with its settings, ready to be asked.
pub struct Judge {
    verifier: Verifier,
    settings: Vec<(String, verify::Value)>,
    alive: Option<(Store<StoreLimits>, Bound)>,
}

impl Judge {
    /// Makes an instance and gives it its settings, to see that it takes them.
    ///
    /// # Errors
    /// [`Error::Refused`] with its message, [`Error::NotAdmitted`] when its instance cannot be made.
    pub fn new(verifier: Verifier, settings: &[(String, Value)]) -> Result<Self, Error> {
        let settings = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let mut judge = Self { verifier, settings, alive: None };
        judge.alive = Some(judge.start()?);
        Ok(judge)
    }

    /// Throws the instance away: whatever a verifier remembers ends here.
    pub fn forget(&mut self) {
        self.alive = None;
    }

    /// Judges one completion. Total: whatever the verifier does, there is a verdict.
    pub fn verdict(&mut self, prompt: &str, completion: &str, answer: &str) -> Verdict {
        let (mut store, bound) = match self.alive.take().map_or_else(|| self.start(), Ok) {
            Ok(alive) => alive,
            Err(error) => return Verdict::Failed(error.to_string()),
        };
        store.set_epoch_deadline(self.ticks());
        match bound.tunebox_method_verify().call_verify(&mut store, prompt, completion, answer) {
            Ok(value) => {
                self.alive = Some((store, bound));
                match value {
                    Some(value) if value.is_finite() => Verdict::Value(value),
                    Some(value) => Verdict::Failed(format!("its verdict is {value}")),
                    None => Verdict::Abstained,
                }
            }
            Err(error) => Verdict::Failed(self.reason(&error)),
        }
    }

    fn start(&self) -> Result<(Store<StoreLimits>, Bound), Error> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(self.verifier.limits.verifier_memory)
            .table_elements(100_000)
            .memories(PARTS)
            .tables(PARTS)
            .instances(PARTS)
            .trap_on_grow_failure(true)
            .build();
        let mut store = Store::new(self.verifier.ready.engine(), limits);
        store.limiter(|limits| limits);
        store.epoch_deadline_trap();
        store.set_epoch_deadline(self.ticks());
        let bound = self.verifier.ready.instantiate(&mut store).map_err(|error| self.failed(&error))?;
        let answer = bound.tunebox_method_verify().call_init(&mut store, &self.settings);
        match answer.map_err(|error| self.failed(&error))? {
            Ok(()) => Ok((store, bound)),
            Err(message) => {
                let message = printable(&message, MESSAGE_BYTES);
                let (method, moment) = (self.verifier.name.clone(), "its settings".into());
                Err(Error::Refused { method, moment, message, denied: None })
            }
        }
    }

    fn ticks(&self) -> u64 {
        (self.verifier.limits.verifier_seconds / TICK.as_secs_f64()).ceil().max(1.0) as u64 + 1
    }

    fn failed(&self, error: &wasmtime::Error) -> Error {
        let what = format!("the verifier `{}` does not start: {}", self.verifier.name, self.reason(error));
        Explanation::new("sandbox", what).into()
    }

    fn reason(&self, error: &wasmtime::Error) -> String {
        let limits = &self.verifier.limits;
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => format!("it took longer than {} s", limits.verifier_seconds),
            Some(Trap::StackOverflow) => "it ran out of stack".into(),
            Some(Trap::UnreachableCodeReached) => "it gave up".into(),
            Some(trap) => trap.to_string(),
            None => {
                let cause = printable(&error.root_cause().to_string(), MESSAGE_BYTES);
                format!("{cause} (it may use {} of memory)", bytes(limits.verifier_memory as u64))
            }
        }
    }
}

impl From<&Value> for verify::Value {
    fn from(value: &Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Integer(*value),
            Value::Number(value) => Self::Number(*value),
            Value::Text(value) => Self::Text(value.clone()),
        }
    }
}
