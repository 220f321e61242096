//! After a sample run: the same question, answered before and after.

use std::path::Path;
use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_model::chat::Message;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::{Model, Policy, PolicySettings, Source, View};

use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// A question that every sample run can be asked.
const QUESTION: &str = "What is the capital of Italy?";

/// Shows the answers of the base and of what was trained.
pub(super) fn compare(terminal: Terminal, folder: &Path) -> Result<(), Failure> {
    let source = Source::open(&super::super::subject::base_of(folder)?, true)?;
    let model = Arc::new(Model::open(&source, &Device::Cpu)?);
    terminal.say("Asked", QUESTION);
    let mut answers = Vec::new();
    for (name, adapter) in [("before", None), ("after", Some(folder))] {
        let policy = Policy::open(Arc::clone(&model), adapter, PolicySettings::default())?;
        let text = answer(&policy)?;
        terminal.say(name, &text);
        answers.push(text);
    }
    if terminal.json {
        terminal.object(
            serde_json::json!({ "event": "asked", "question": QUESTION, "before": answers[0], "after": answers[1] }),
        );
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
