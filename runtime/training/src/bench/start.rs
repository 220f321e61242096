//! The way to the first step: the model opened, the method checked, compiled and made an instance.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tunebox_compute::optimizer::{AdamW, AdamWSettings};
use tunebox_compute::schedule::Schedule;
use tunebox_model::{Model, Policy, PolicySettings};
use tunebox_package::{Package, Reference};
use tunebox_sandbox::{Compiling, Engine, Grants, Limits, Method, Session, SessionSettings};

use crate::error::Error;
use crate::learner::{LearningRate, RewardState, TrainState, Trainer};
use crate::plan::held;

/// How long a start takes.
#[derive(Debug, Clone, Serialize)]
pub struct StartUp {
    /// Seconds to open the model, its files being in memory already.
    pub open_seconds: f64,
    /// Seconds to check and compile the method.
    pub compile_seconds: f64,
    /// Seconds to check the method and find it compiled.
    pub cached_seconds: f64,
    /// Seconds to make an instance of the method that can be called.
    pub instantiate_seconds: f64,
}

/// Seconds that something took, and what it gave.
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(f64, T), Error> {
    let begun = Instant::now();
    let made = work()?;
    Ok((begun.elapsed().as_secs_f64(), made))
}

/// The package that a person named.
pub(super) fn method(name: &str) -> Result<Package, Error> {
    held(&Reference::parse(name, Path::new("."))?, Path::new("."))
}

/// Times the start of a method: anew, and with its code in a cache below `place`.
pub(super) fn measure(name: &str, model: &Arc<Model>, open_seconds: f64, place: &Path) -> Result<StartUp, Error> {
    let package = method(name)?;
    let compiling = Compiling { cache: Some(place.join("compiled")), ..Compiling::default() };
    let (compile_seconds, _) = admit(&package, &compiling)?;
    let (cached_seconds, admitted) = admit(&package, &compiling)?;
    let train_state = train_state(model)?;
    let (instantiate_seconds, _) = timed(|| Ok(Session::start(&admitted, train_state, SessionSettings::default())?))?;
    Ok(StartUp { open_seconds, compile_seconds, cached_seconds, instantiate_seconds })
}

fn admit(package: &Package, compiling: &Compiling) -> Result<(f64, Method), Error> {
    let grants = Grants::default().with("weights").with("text");
    // The engine is made once a process, whatever it runs.
    let engine = Engine::with(compiling.clone())?;
    timed(|| Ok(engine.admit(&package.bytes, &package.manifest.name, &grants, &Limits::default())?))
}

/// A train state without an adapter.
fn train_state(model: &Arc<Model>) -> Result<TrainState, Error> {
    let policy = Policy::open(Arc::clone(model), None, PolicySettings::default())?;
    let optimizer = AdamW::new(AdamWSettings::default(), policy.parameters())?;
    let schedule = Schedule::Constant;
    let rate = LearningRate { peak: 1e-4, schedule, warmup: 0, steps: 1, clip: 1.0, skip_non_finite: false };
    Ok(TrainState::new(policy, Trainer::new(optimizer, rate, RewardState::default())))
}
