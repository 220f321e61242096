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
use tunebox_sandbox::{Batch, Engine, Error, Grants, Limits, Question, RunHooks, Session, TrainState};

use crate::support::golden_rows::{begin, package};

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
    let package = package(method);
    let method = Engine::new()?.admit(&package.bytes, method, &Grants::default(), &Limits::default())?;
    begin(&method, &package.manifest, settings, train_state)
}

fn with(settings: &Map<String, Json>, more: Json) -> Map<String, Json> {
    let mut settings = settings.clone();
    settings.extend(more.as_object().unwrap().clone());
    settings
}
