//! How long it takes until a built-in method can be called: compiled anew, found in the cache, made an instance.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tunebox_model::Model;
use tunebox_package::builtin;
use tunebox_sandbox::{Compiling, Engine, Grants, Limits, Session, SessionSettings};

use super::Outcome;
use super::learner::train_state;
use super::statistics::Spread;

/// Times of each kind.
const TIMES: usize = 5;

/// Milliseconds of one method, medians.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) method: &'static str,
    pub(crate) bytes: usize,
    /// Admission and compiling.
    pub(crate) cold_milliseconds: f64,
    /// Admission, and the code out of the cache.
    pub(crate) cached_milliseconds: f64,
    /// An instance, ready for its first call.
    pub(crate) instance_milliseconds: f64,
}

/// Every built-in method.
pub(crate) fn all(model: &Arc<Model>, place: &Path) -> Outcome<Vec<Start>> {
    let kept = Compiling { cache: Some(place.join("compiled")), ..Compiling::default() };
    builtin::list().iter().map(|method| one(method, model, &kept)).collect()
}

fn one(method: &'static builtin::Builtin, model: &Arc<Model>, kept: &Compiling) -> Outcome<Start> {
    admit(method, kept)?;
    let (mut cold, mut cached, mut instance) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        cold.push(admit(method, &Compiling::default())?.0);
        let (milliseconds, admitted) = admit(method, kept)?;
        cached.push(milliseconds);
        let train_state = train_state(Arc::clone(model), 1)?;
        let begun = Instant::now();
        let session = Session::start(&admitted, train_state, SessionSettings::default())?;
        instance.push(1e3 * begun.elapsed().as_secs_f64());
        drop(session);
    }
    let median = |times: Vec<f64>| Spread::of(times).median;
    Ok(Start {
        method: method.name,
        bytes: method.bytes.len(),
        cold_milliseconds: median(cold),
        cached_milliseconds: median(cached),
        instance_milliseconds: median(instance),
    })
}

/// Milliseconds until a method is admitted and compiled, by an engine that is there already.
fn admit(method: &builtin::Builtin, compiling: &Compiling) -> Outcome<(f64, tunebox_sandbox::Method)> {
    let engine = Engine::with(compiling.clone())?;
    let grants = Grants::default().with("weights").with("text");
    let begun = Instant::now();
    let admitted = engine.admit(method.bytes, method.name, &grants, &Limits::default())?;
    Ok((1e3 * begun.elapsed().as_secs_f64(), admitted))
}
