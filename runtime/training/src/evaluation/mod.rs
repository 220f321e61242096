//! How good a model is on a data file: base beside adapted, by what the records allow.
//!
//! Answers are scored (`likelihood`), pairs are compared (`preference`), prompts are answered and
//! the answers looked at (`answers`). Nothing here trains, and no method runs.

mod answers;
mod likelihood;
mod preference;

use std::path::Path;

use serde::Serialize;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_model::chat::Answers;
use tunebox_model::generate::Sampling;
use tunebox_model::{Policy, View};

use crate::configuration::RunSettings;
use crate::data::{Dataset, Encoder, Reading, Shape, rows};
use crate::error::Error;
use crate::plan::engine;
use crate::plan::verifiers::verifiers;
use crate::verifiers::Verifiers;

/// How a model is looked at.
#[derive(Debug, Clone)]
pub struct EvaluationSettings {
    /// Tokens of the longest example.
    pub length: usize,
    /// Examples that are scored together; changes memory, not results.
    pub batch: usize,
    /// How answers to prompts are written.
    pub sampling: Sampling,
}

/// One number about a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, such as `loss`.
    pub name: &'static str,
    /// Of the base model; none for numbers that compare with the base.
    pub base: Option<f64>,
    /// Of the model with its adapter; none where there is none.
    pub adapted: Option<f64>,
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// What the records are, such as `a pair of answers`.
    pub shape: String,
    /// Records that counted.
    pub records: usize,
    /// The numbers.
    pub figures: Vec<Figure>,
}

/// Evaluates a base model, and the same model with an adapter, on a JSONL file. Answers to prompts are
/// judged by the verifiers of `rewards`, if a run is given.
///
/// # Errors
/// When the file cannot be read or used, or a pass fails.
pub fn evaluate(
    base: &Policy,
    adapted: Option<&Policy>,
    data: &Path,
    settings: &EvaluationSettings,
    rewards: Option<&RunSettings>,
) -> Result<Evaluation, Error> {
    let mut verifiers = match rewards {
        Some(run) => Verifiers::open(&verifiers(run, &engine(run)?)?)?,
        None => Verifiers::default(),
    };
    let model = base.model();
    let length = settings.length.min(model.configuration.max_positions.max(2));
    // A label beside an answer changes nothing about how likely the answer is.
    let wanted = Shape::all().iter().copied().filter(|shape| *shape != Shape::Unpaired).collect();
    let reading = Reading { wanted, length, skip_bad: false };
    let encoder =
        Encoder { tokenizer: model.tokenizer()?, template: model.template.as_ref(), answers: Answers::default() };
    let data = Dataset::read(data, &reading, &encoder)?;
    let figures = match data.shape.sides() {
        ["chosen", "rejected"] => preference::figures(base, adapted, &data, settings)?,
        ["prompt"] => answers::figures(base, adapted, &data, settings, &mut verifiers)?,
        _ => likelihood::figures(base, adapted, &data, settings)?,
    };
    Ok(Evaluation { shape: data.shape.to_string(), records: data.examples.len(), figures })
}

/// What scoring says about the targets of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct RowScore {
    /// Σ log p(target).
    logprob: f64,
    /// Targets that were the model's first choice.
    first: f64,
    /// How many targets there are.
    targets: usize,
}

/// Scores one side of every example, in order.
fn score(policy: &Policy, data: &Dataset, side: usize, batch: usize) -> Result<Vec<RowScore>, Error> {
    let mut scores = Vec::with_capacity(data.examples.len());
    let taps = TapSet::of(&[Tap::TopOne]);
    for examples in data.examples.chunks(batch.max(1)) {
        let rows = rows(examples.iter().map(|example| example.sides[side].clone()))?;
        let scored = policy.score(&View::Policy, &rows, taps, 1.0, false)?;
        let logprobs = table(scored.tap(Tap::Logprob)?)?;
        let firsts = table(scored.tap(Tap::TopOne)?)?;
        for (number, example) in examples.iter().enumerate() {
            let sum = |rows: &[Vec<f32>]| rows.get(number).into_iter().flatten().map(|value| f64::from(*value)).sum();
            let targets = example.sides[side].target_count();
            scores.push(RowScore { logprob: sum(&logprobs), first: sum(&firsts), targets });
        }
    }
    Ok(scores)
}

fn table(tap: &tunebox_compute::Tensor) -> Result<Vec<Vec<f32>>, Error> {
    tap.to_vec2().map_err(|error| tunebox_compute::Error::from(error).into())
}

/// The mean of some numbers; not a number when there are none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}
