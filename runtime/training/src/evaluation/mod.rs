//! Evaluates a base model and the same model with an adapter on a data file.
//!
//! The shape of the records decides: answers are scored (`scores`), pairs compared (`scores` too), and completions of prompts
//! generated and scored (`completions`). No method runs.

mod completions;
mod scores;

use std::path::Path;

use serde::Serialize;
use tunebox_model::Policy;
use tunebox_model::chat::Answers;

pub use scores::{EvaluationSettings, Figure};

use crate::configuration::RunSettings;
use crate::data::{Dataset, Encoder, Reading, Shape};
use crate::error::Error;
use crate::plan::engine;
use crate::plan::verifiers::load_verifiers;
use crate::verifiers::Verifiers;

/// The result of an evaluation.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// The shape of the records, such as `a pair of answers`.
    pub shape: String,
    /// Number of records.
    pub records: usize,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// Evaluates a base model, and with `adapted` the same model with an adapter, on a JSONL file; the shape of its records
/// decides how. The verifiers of the run `rewards`, if given, score the completions of prompts.
///
/// # Errors
/// A file that cannot be read, and a failed pass through the model.
pub fn evaluate(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Path,
    settings: &EvaluationSettings,
    rewards: Option<&RunSettings>,
) -> Result<Evaluation, Error> {
    let mut verifiers = match rewards {
        Some(run) => Verifiers::open(&load_verifiers(run, &engine(run)?)?)?,
        None => Verifiers::default(),
    };
    let model = base.model();
    let length = settings.length.min(model.configuration.max_positions.max(2));
    // The label of an answer does not affect its likelihood, so such records are read as prompts with a completion.
    let wanted = Shape::all().filter(|shape| *shape != Shape::Unpaired).collect();
    let reading = Reading { wanted, length, skip_bad: false };
    let encoder =
        Encoder { tokenizer: model.tokenizer()?, template: model.template.as_ref(), answers: Answers::default() };
    let data = Dataset::read(data, &reading, &encoder)?;
    let figures = match data.shape.sides() {
        ["chosen", "rejected"] => scores::preference_figures(base, adapted, &data, settings)?,
        ["prompt"] => {
            scores::figures(base, adapted, |policy| completions::numbers(policy, &data, settings, &mut verifiers))?
        }
        _ => scores::figures(base, adapted, |policy| {
            Ok(scores::likelihood(&scores::score(policy, &data, 0, settings.batch)?))
        })?,
    };
    Ok(Evaluation { shape: data.shape.to_string(), records: data.examples.len(), figures })
}
