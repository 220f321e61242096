//! Claims about the policy-gradient methods: their losses, gradients and metrics, and where they start.
//!
//! The numbers are rows of `golden/methods/grpo.jsonl`, made in f64 by `golden/policy_gradient.py`; here the
//! real components run inside the sandbox in a run whose completions, scores and rewards are given.
//! ℓ_old is what the first of two updates scores, ℓ what the second one does.

mod losses;
mod peer;
mod training;

use std::sync::Arc;

use serde_json::{Map, Value as Json};
use tunebox_model::rows::Rows;
use tunebox_package::{Reference, resolve_settings};
use tunebox_sandbox::{
    Batch, Engine, Error, Grants, Limits, Question, RunHooks, Session, SessionSettings, StepReport, TrainState,
};

use crate::support::golden::root;

/// A batch of prompts.
fn batch(prompts: Vec<Vec<u32>>) -> Batch {
    let (count, marks) = (prompts.len(), prompts.iter().map(|ids| vec![false; ids.len()]).collect());
    Batch {
        sides: vec![("prompt".into(), Arc::new(Rows::new(prompts, marks).unwrap()))],
        size: count as u32,
        window_size: count as u32,
        ends_window: true,
        questions: vec![Question::default(); count],
        ..Batch::default()
    }
}

/// A session of a method with its settings taken.
fn session<H: RunHooks>(
    method: &str,
    settings: &Map<String, Json>,
    train_state: TrainState<H>,
) -> Result<Session<H>, Error> {
    let package = Reference::parse(method, &root()).unwrap().open().unwrap();
    let settings = resolve_settings(&package.manifest, &toml::Table::try_from(settings).unwrap()).unwrap();
    let engine = Engine::new()?;
    let method = engine.admit(&package.bytes, method, &Grants::default(), &Limits::default())?;
    let own = SessionSettings { metric_names: package.manifest.metrics, ..SessionSettings::default() };
    let mut session = Session::start(&method, train_state, own)?;
    session.init(&settings)?;
    Ok(session)
}

fn with(settings: &Map<String, Json>, more: Json) -> Map<String, Json> {
    let mut settings = settings.clone();
    settings.extend(more.as_object().unwrap().clone());
    settings
}

/// The last value under a name: that of the last update.
fn metric(report: &StepReport, name: &str) -> f64 {
    let found = report.metrics.iter().rev().find(|(other, ..)| other == name);
    found.unwrap_or_else(|| panic!("no metric `{name}` in {:?}", report.metrics)).1
}
