//! Completions of a step to show, with their verdicts.

use tunebox_foundation::format::seven_digits;
use tunebox_model::tokenizer::Tokenizer;

use super::Answer;
use crate::answers::cut_text;
use crate::observer::Sample;

/// How many prompts [`pick_samples`] takes.
const SHOWN_PROMPTS: usize = 2;

/// Picks completions to show: for each of the first two prompts the one with the highest reward and the one with the
/// lowest, the first of equals; one of a prompt whose completions have equal rewards. `groups` gives the index of each
/// completion's prompt, `verdicts` is `[completions][verifiers]`, NaN for no verdict, and `weights` has the name and
/// the weight of every verifier. Fails if tokens cannot be decoded.
pub(crate) fn pick_samples(
    tokenizer: &Tokenizer,
    answers: &[Answer<'_>],
    groups: &[u32],
    verdicts: &[Vec<f32>],
    weights: &[(String, f32)],
) -> Result<Vec<Sample>, tunebox_model::Error> {
    let reward = |row: usize| reward_of(&verdicts[row], weights);
    let mut prompts: Vec<u32> = Vec::new();
    for group in groups {
        if prompts.len() < SHOWN_PROMPTS && !prompts.contains(group) {
            prompts.push(*group);
        }
    }
    let mut rows = Vec::new();
    for prompt in prompts {
        let mut own: Vec<usize> = (0..answers.len()).filter(|row| groups[*row] == prompt).collect();
        // Stable, so that the first of equals comes first; without a verdict last.
        own.sort_by(|one, other| reward(*other).unwrap_or(f64::MIN).total_cmp(&reward(*one).unwrap_or(f64::MIN)));
        rows.extend(own.first());
        rows.extend(own.last().filter(|last| reward(**last) != reward(own[0])));
    }
    rows.into_iter().map(|row: usize| sample_of(tokenizer, &answers[row], &verdicts[row], weights)).collect()
}

/// The weighted sum of the verdicts on a completion, rounded to seven significant digits; `None` if no verifier gave
/// one. `verdicts` has NaN for no verdict, and `weights` the name and the weight of every verifier.
fn reward_of(verdicts: &[f32], weights: &[(String, f32)]) -> Option<f64> {
    let given = verdicts.iter().zip(weights).filter(|(verdict, _)| !verdict.is_nan());
    let parts: Vec<f64> = given.map(|(verdict, (_, weight))| f64::from(verdict * weight)).collect();
    (!parts.is_empty()).then(|| seven_digits(parts.iter().sum()))
}

/// Builds what is shown of a completion: its prompt and text, cut to a length for display, its reward ([`reward_of`]),
/// and the verdicts that are not NaN, by name. `verdicts` and `weights` are in one order. Fails if tokens cannot be
/// decoded.
pub(crate) fn sample_of(
    tokenizer: &Tokenizer,
    answer: &Answer<'_>,
    verdicts: &[f32],
    weights: &[(String, f32)],
) -> Result<Sample, tunebox_model::Error> {
    let given = verdicts.iter().zip(weights).filter(|(verdict, _)| !verdict.is_nan());
    Ok(Sample {
        prompt: cut_text(&answer.question.prompt),
        completion: cut_text(&tokenizer.decode(answer.ids, true)?),
        reward: reward_of(verdicts, weights),
        verdicts: given.map(|(verdict, (name, _))| (name.clone(), f64::from(*verdict))).collect(),
    })
}
