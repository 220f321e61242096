//! After a sample run: the same question answered before and after, and the held-out data measured.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tunebox_compute::Device;
use tunebox_model::chat::Message;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::{Model, Policy, PolicySettings, Source, View};
use tunebox_training::{Evaluation, EvaluationSettings, evaluate};

use super::super::eval;
use super::super::subject::base_of;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// A question that every sample run can be asked.
const QUESTION: &str = "What is the capital of Italy?";

/// Examples that are scored together.
const BATCH: usize = 16;

/// Shows the answers of the base and of what was trained, and how both do on data that nobody learned from.
pub(super) fn compare(terminal: Terminal, folder: &Path, held_out: Option<&Path>) -> Result<(), Failure> {
    let source = Source::open(&base_of(folder)?, true)?;
    let model = Arc::new(Model::open(&source, &Device::Cpu)?);
    let open = |adapter| Policy::open(Arc::clone(&model), adapter, PolicySettings::default());
    let (base, adapted) = (open(None)?, open(Some(folder))?);
    ask(terminal, &base, &adapted)?;
    let Some(held_out) = held_out else { return Ok(()) };
    let sampling = Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() };
    let settings = EvaluationSettings { length: 1024, batch: BATCH, sampling };
    let found: Evaluation = evaluate(&base, Some(&adapted), held_out, &settings)?;
    terminal.say("Held out", format!("{} records, each {}", found.records, found.shape));
    for line in eval::table(&found, true) {
        terminal.say("", line);
    }
    if terminal.json {
        terminal.object(json!({ "event": "evaluated", "data": held_out, "shape": found.shape, "records": found.records, "figures": found.figures }));
    }
    Ok(())
}

fn ask(terminal: Terminal, base: &Policy, adapted: &Policy) -> Result<(), Failure> {
    terminal.say("Asked", QUESTION);
    let (before, after) = (answer(base)?, answer(adapted)?);
    terminal.say("before", &before);
    terminal.say("after", &after);
    if terminal.json {
        terminal.object(json!({ "event": "asked", "question": QUESTION, "before": before, "after": after }));
    }
    Ok(())
}

fn answer(policy: &Policy) -> Result<String, Failure> {
    let tokenizer = policy.model().tokenizer()?;
    let text = policy.model().template()?.render(&[Message::new("user", QUESTION)], true, None)?;
    let prompt = tokenizer.encode(&text, false)?;
    let sampling = Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() };
    let completions = generate(policy, &View::Policy, &[prompt], &sampling, &mut |_, _| true)?;
    let ids = completions.first().map(|completion| completion.ids.as_slice()).unwrap_or_default();
    Ok(tokenizer.decode(ids, true)?.trim().to_owned())
}
