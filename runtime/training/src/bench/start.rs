//! Measures the start of a run: opening the model; admitting, compiling and instantiating the method.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tunebox_model::{Model, Policy, PolicySettings};
use tunebox_package::{Package, Reference};
use tunebox_sandbox::{Compiling, Engine, Grants, Limits, Method, Session, SessionSettings};

use crate::error::Error;
use crate::learner::bench_train_state;
use crate::plan::open_package;

/// How long a start takes.
#[derive(Debug, Clone, Serialize)]
pub struct StartUp {
    /// Seconds to open the model, with its files in the page cache.
    pub open_seconds: f64,
    /// Seconds to admit and compile the method.
    pub compile_seconds: f64,
    /// Seconds to admit the method with its compiled code in the cache.
    pub cached_seconds: f64,
    /// Seconds to instantiate the method.
    pub instantiate_seconds: f64,
}

/// Executes `work`; returns the seconds that it took and its result, or its error.
pub(super) fn measure_seconds<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(f64, T), Error> {
    let begun = Instant::now();
    let made = work()?;
    Ok((begun.elapsed().as_secs_f64(), made))
}

/// Opens the package of a method by its built-in name, its name in the store or its path, relative to the current
/// folder.
pub(super) fn open_method(name: &str) -> Result<Package, Error> {
    open_package(&Reference::parse(name, Path::new("."))?, Path::new("."))
}

/// Measures the start of a method: compiling it, admitting it from a cache of compiled code below `folder`, and
/// instantiating it. `name` is the method's name or path. `open_seconds` is put into the result unchanged.
pub(super) fn measure_start(
    name: &str,
    model: &Arc<Model>,
    open_seconds: f64,
    folder: &Path,
) -> Result<StartUp, Error> {
    let package = open_method(name)?;
    let compiling = Compiling { cache: Some(folder.join("compiled")), ..Compiling::default() };
    let (compile_seconds, _) = measure_admission(&package, &compiling)?;
    let (cached_seconds, admitted) = measure_admission(&package, &compiling)?;
    let policy = Policy::open(Arc::clone(model), None, PolicySettings::default())?;
    let train_state = bench_train_state(policy)?;
    let (instantiate_seconds, _) =
        measure_seconds(|| Ok(Session::start(&admitted, train_state, SessionSettings::default())?))?;
    Ok(StartUp { open_seconds, compile_seconds, cached_seconds, instantiate_seconds })
}

/// Admits and compiles a method with every interface granted. Returns the seconds that it took, without creating the
/// engine, and the method.
fn measure_admission(package: &Package, compiling: &Compiling) -> Result<(f64, Method), Error> {
    let grants = Grants::default().with("weights").with("text");
    // A process creates its engine once, so that is not timed.
    let engine = Engine::with(compiling.clone())?;
    measure_seconds(|| Ok(engine.admit(&package.bytes, &package.manifest.name, &grants, &Limits::default())?))
}
