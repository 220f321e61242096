//! wasmtime, set up for code that is not trusted, and methods compiled by it.
//!
//! Every feature that is not needed is off. A ticker thread interrupts running methods so that their
//! time limits are checked; it ends with the engine. Sessions set the limits of each store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::budget::Budget;
use tunebox_foundation::explain::Explanation;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, EngineWeak, OptLevel, WasmBacktraceDetails};

use crate::admission::{self, check_import};
use crate::bindings::{self, MethodPre};
use crate::compile::{CodeOptions, Compiler, Compiling};
use crate::error::Error;
use crate::grants::Grants;
use crate::guest::Guest;
use crate::instance::Instance;
use crate::limits::{Limits, TICK};
use crate::memory_images;
use crate::native::{Process, Twin};
use crate::printable::printable;
use crate::settings::SessionSettings;
use crate::state::{HostContext, HostContexts, State};
use crate::train_state::Shared;

/// The stack of a method, in bytes.
const GUEST_STACK: usize = 512 << 10;

/// Compiles and admits methods. A process has one engine, which clones share.
#[derive(Clone)]
pub struct Engine {
    engine: wasmtime::Engine,
    linker: Arc<Linker<State>>,
    compiler: Arc<Compiler>,
    /// Whether the components that are admitted next are not built in, and so compiled in a child process.
    untrusted: bool,
    /// How many components passed the checks and were then compiled or loaded from the cache.
    compiled: Arc<AtomicUsize>,
}

/// A method that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub struct Method {
    pub(crate) name: String,
    code: Code,
    imports: Vec<String>,
}

/// The code of a method that a session calls.
#[derive(Clone)]
enum Code {
    /// A component that is ready to be instantiated, and the bytes that the host keeps for its instances, memories and
    /// tables excluded.
    Component { instance_pre: MethodPre<State>, instance_bytes: u64 },
    /// A process that runs the source of the method; each session takes over another one.
    Process(Arc<StartProcess>),
}

/// Starts a process of a method, and waits until it is connected; `None` if there is no further one.
pub type StartProcess = dyn Fn() -> std::io::Result<Option<Twin>> + Send + Sync;

impl Method {
    /// Returns a method that runs as a process of its own, outside the sandbox, through the connection `twin`. It may
    /// call the interfaces in `imports`, given by full name. One session can use it; a later one gets [`Error::Over`].
    /// Checks neither `name` nor `imports`. Escapes `name` and cuts it at 200 bytes.
    #[must_use]
    pub fn native(name: &str, imports: Vec<String>, twin: Twin) -> Self {
        let once = Mutex::new(Some(twin));
        let take = move || Ok(once.lock().unwrap_or_else(PoisonError::into_inner).take());
        Self { name: printable(name, 200), code: Code::Process(Arc::new(take)), imports }
    }

    /// Returns a method that runs as a process of its own, outside the sandbox; `start` starts another one for each
    /// session. It may call the interfaces in `imports`, given by full name, which the run must grant. Escapes `name`
    /// and cuts it at 200 bytes.
    ///
    /// # Errors
    /// [`Error::NotGranted`] for an import that `grants` lacks.
    pub fn of_process(
        name: &str,
        imports: Vec<String>,
        grants: &Grants,
        start: Arc<StartProcess>,
    ) -> Result<Self, Error> {
        let name = printable(name, 200);
        imports.iter().try_for_each(|import| check_import(grants, import, &name))?;
        Ok(Self { name, code: Code::Process(start), imports })
    }

    /// Makes the object that a session calls: an empty store for the component, or a process. Runs nothing of the
    /// method but the start of a process. `budget` is the budget for the bytes that the method will hold on the host.
    ///
    /// Errors: [`Error::Over`] if an earlier session took the only process, [`Error::NotAdmitted`] if none starts.
    pub(crate) fn create_guest(
        &self,
        settings: SessionSettings,
        budget: Budget,
        train_state: Shared,
    ) -> Result<Box<dyn Guest>, Error> {
        match &self.code {
            Code::Component { instance_pre, instance_bytes } => {
                Ok(Box::new(Instance::new(instance_pre, *instance_bytes, State::new(settings, budget, train_state))))
            }
            Code::Process(start) => {
                let twin = start().map_err(|error| {
                    let what = format!("the process of `{}` does not start", self.name);
                    Error::NotAdmitted(Box::new(Explanation::new("sandbox", what).with_why(error.to_string())))
                })?;
                let twin = twin.ok_or_else(|| Error::Over { method: self.name.clone() })?;
                Ok(Box::new(Process::new(twin, &self.imports, State::new(settings, budget, train_state))))
            }
        }
    }

    /// Returns the full names of the interfaces that the method imports.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// Returns the method's name as messages show it: escaped and cut at 200 bytes.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Engine {
    /// Creates an engine that compiles in this process and caches no code. Starts its ticker thread, which ends when
    /// the engine is dropped.
    ///
    /// # Errors
    /// [`Error::Engine`] when wasmtime rejects this machine or the ticker's thread does not start.
    pub fn new() -> Result<Self, Error> {
        Self::with(Compiling::default())
    }

    /// Creates an engine that caches compiled code, and compiles components that are not built in by a child process,
    /// as `compiling` says. Starts a ticker thread, which ends when the engine is dropped.
    ///
    /// # Errors
    /// [`Error::Engine`] when wasmtime rejects this machine or the ticker's thread does not start. Not for a cache
    /// folder that cannot be used: see [`Engine::warning`].
    pub fn with(compiling: Compiling) -> Result<Self, Error> {
        let failed = |error: wasmtime::Error| Error::Engine(format!("{error:#}"));
        let engine = wasmtime_engine(compiling.code).map_err(failed)?;
        let mut linker = Linker::new(&engine);
        bindings::Method::add_to_linker::<State, HostContexts>(&mut linker, |state| HostContext::new(state))
            .map_err(failed)?;
        let weak = engine.weak();
        std::thread::Builder::new()
            .name("tunebox-ticker".into())
            .spawn(move || run_ticker(&weak))
            .map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Self {
            engine,
            linker: Arc::new(linker),
            compiler: Arc::new(Compiler::new(compiling)),
            untrusted: false,
            compiled: Arc::default(),
        })
    }

    /// Returns a clone of the engine, sharing its cache and counters. If `untrusted`, the clone compiles components in
    /// a child process, where one is configured; otherwise it compiles in this process.
    #[must_use]
    pub fn for_untrusted(&self, untrusted: bool) -> Self {
        Self { untrusted, ..self.clone() }
    }

    /// Returns why the code cache cannot be used although a folder was named for it, as one line; `None` if it works or
    /// none was named. The engine then caches nothing.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.compiler.cache.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Checks a component against the contract, the grants and the limits, then compiles it or loads its code from the
    /// cache. Nothing of the component runs. `name` names the method in messages, escaped and cut at 200 bytes.
    ///
    /// # Errors
    /// Of the first check that fails: [`Error::TooLarge`], [`Error::NotGranted`], [`Error::Mismatch`],
    /// [`Error::Malformed`], or [`Error::NotAdmitted`], also if the process that compiles it fails or passes a limit.
    pub fn admit(&self, bytes: &[u8], name: &str, grants: &Grants, limits: &Limits) -> Result<Method, Error> {
        let name = printable(name, 200);
        let survey = admission::admit_without_types(bytes, &name, grants, limits)?;
        let component = self.compile(bytes, &name, &survey.imports)?;
        let instance_pre = self.linker.instantiate_pre(&component).and_then(MethodPre::new);
        let instance_pre = instance_pre.map_err(|error| Error::mismatch(&name, &error))?;
        let code = Code::Component { instance_pre, instance_bytes: survey.instance_bytes() };
        Ok(Method { name, code, imports: survey.imports })
    }

    /// Returns how many components passed the checks and were then compiled or loaded from the cache. Clones share the
    /// count.
    #[must_use]
    pub fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Loads the code of a component from the cache, or checks its types and compiles it. The component has passed all
    /// other checks, and `imports` are the full names of its imports. Does not check the types of a cached component
    /// again. Increments the count of [`Engine::compiled`] unless the check of the types fails, even if compiling then
    /// fails. Then creates the images of its memories ([`memory_images`]).
    pub(crate) fn compile(&self, bytes: &[u8], name: &str, imports: &[String]) -> Result<Component, Error> {
        let cached = self.compiler.load(&self.engine, bytes);
        if cached.is_none() {
            admission::check_types(bytes, imports, name)?;
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let component = cached.map_or_else(|| self.compiler.compile(&self.engine, bytes, name, self.untrusted), Ok)?;
        memory_images::create(&component).map_err(|error| {
            let what = format!("the initial memory of `{name}` could not be created");
            Explanation::new("sandbox", what).with_why(format!("{error:#}"))
        })?;
        Ok(component)
    }
}

/// Creates a wasmtime engine with the settings of the sandbox, without ticker and linker. `code` says whether
/// backtraces have source lines and whether code counts its instructions (wasmtime's fuel).
pub(crate) fn wasmtime_engine(code: CodeOptions) -> wasmtime::Result<wasmtime::Engine> {
    let details = if code.source_lines { WasmBacktraceDetails::Enable } else { WasmBacktraceDetails::Disable };
    wasmtime::Engine::new(wasmtime_config().wasm_backtrace_details(details).consume_fuel(code.count_instructions))
}

/// Returns the sandbox's wasmtime settings: a stack of 512 KiB; components, epoch interruption and NaN canonicalization
/// on; memory64, multi-memory, custom page sizes, wide arithmetic, function references, exceptions, garbage collection,
/// relaxed SIMD, tail calls and concurrency off.
fn wasmtime_config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .cranelift_opt_level(OptLevel::Speed)
        .concurrency_support(false)
        .max_wasm_stack(GUEST_STACK)
        .memory_init_cow(true)
        .wasm_component_model(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .wasm_tail_call(false)
        .wasm_function_references(false)
        .wasm_gc(false)
        .wasm_exceptions(false);
    config
}

/// Increments the engine's epoch every `TICK` until the engine is dropped.
fn run_ticker(engine: &EngineWeak) {
    loop {
        std::thread::sleep(TICK);
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}
