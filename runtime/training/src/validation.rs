//! Scores of a run's validation data, which the method does not see.
//!
//! For answers: the mean negative log-likelihood of a target token; for pairs, of the chosen answer. For prompts: the
//! share of completions that pass the run's verifiers, or its environment.

mod history;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::random::Stream;
use tunebox_foundation::format::seven_digits;
use tunebox_model::generate::{Completion, Sampling};
use tunebox_model::tokenizer::Tokenizer;
use tunebox_model::{Policy, View};
use tunebox_sandbox::Question;

use crate::configuration::TrainTable;
use crate::data::{Dataset, collect_rows};
use crate::error::Error;
use crate::exact;
use crate::observer::Sample;
use crate::verifiers::{Answer, Verifiers, sample_of};
pub(crate) use history::ValidationHistory;
pub use history::{Score, Validation};

/// The least score of the first verifier with which a completion passes.
const PASS_SCORE: f32 = 0.5;

/// Returns the mean negative log-likelihood of a target token of each example's first side, in nats, over all target
/// tokens under the policy; 0 without targets. Scores `batch` examples at a time.
pub(crate) fn mean_loss(policy: &Policy, data: &Dataset, batch: usize) -> Result<f64, Error> {
    let (mut total, mut targets) = (0.0_f64, 0_usize);
    for examples in data.examples.chunks(batch) {
        let rows = collect_rows(examples.iter().map(|example| example.sides[0].clone()))?;
        targets += rows.targets();
        let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
        let logprobs = scored.tap(Tap::Logprob)?.flatten_all().and_then(|flat| flat.to_vec1::<f32>());
        let logprobs = logprobs.map_err(tunebox_compute::Error::from)?;
        total -= logprobs.iter().map(|value| f64::from(*value)).sum::<f64>();
    }
    Ok(total / targets.max(1) as f64)
}

/// How often completions of validation prompts pass.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PassRate {
    /// Share of the completions that pass.
    pub at_one: f64,
    /// Share of the prompts with at least one completion that passes.
    pub at_k: f64,
    /// Completions of each prompt.
    pub k: usize,
    /// Mean weighted reward of the completions that a verifier scored.
    #[serde(with = "exact")]
    pub reward: f64,
}

/// Generates `validate-completions` completions of every prompt at temperature 1 and scores them by the verifiers, as
/// [`score_completions`] does. Each has at most the tokens that the longest prompt of `data` leaves of the maximum
/// length. A completion passes if the first verifier, or without one the environment, gives it 0.5 or more. The same
/// seed samples with the same random numbers, so that two results differ by the weights alone.
///
/// # Errors
/// Those of [`Verifiers::generate`] and [`Verifiers::verdicts`], such as a verifier that fails on most completions.
pub(crate) fn pass_rate(
    policy: &Policy,
    data: &Dataset,
    verifiers: &mut Verifiers,
    train: &TrainTable,
) -> Result<PassRate, Error> {
    let (seed, completions) = (Stream::new(train.seed, "validation").next_u64(), train.validate_completions as usize);
    let sampling = Sampling { max_tokens: data.completion_room(), seed, completions, ..Sampling::default() };
    let completions = generate_completions(policy, data, &sampling, verifiers)?;
    Ok(score_completions(policy, &completions, data, verifiers)?.rate)
}

/// Generates `sampling.completions` completions of the first side of every example under the policy, in the order of
/// the examples; those of one prompt are adjacent. The environment among `verifiers`, if there is one, answers them,
/// unless an example has no question.
pub(crate) fn generate_completions(
    policy: &Policy,
    data: &Dataset,
    sampling: &Sampling,
    verifiers: &mut Verifiers,
) -> Result<Vec<Completion>, Error> {
    let prompts: Vec<Vec<u32>> = data.examples.iter().map(|example| example.sides[0].ids.clone()).collect();
    let questions: Option<Vec<&Question>> = data.examples.iter().map(|example| example.question.as_ref()).collect();
    let room = data.completion_room();
    verifiers.generate((policy, &View::Policy), &prompts, questions.as_deref(), (sampling, room))
}

/// Completions that verifiers scored.
pub(crate) struct Scored<'a> {
    pub(crate) rate: PassRate,
    /// The completions of examples with a question.
    answers: Vec<Answer<'a>>,
    /// Their verdicts, `[completions][verifiers]`; NaN means no verdict.
    verdicts: Vec<Vec<f32>>,
    /// The name and the weight of every verifier.
    weights: Vec<(String, f32)>,
}

impl Scored<'_> {
    /// Whether a verifier gave a verdict on a completion, or there are no completions.
    pub(crate) fn has_verdict(&self) -> bool {
        self.verdicts.is_empty() || self.verdicts.iter().flatten().any(|verdict| !verdict.is_nan())
    }

    /// Every completion with its reward, for people.
    pub(crate) fn samples(&self, tokenizer: &Tokenizer) -> Result<Vec<Sample>, Error> {
        let both = self.answers.iter().zip(&self.verdicts);
        both.map(|(answer, verdicts)| Ok(sample_of(tokenizer, answer, verdicts, &self.weights)?)).collect()
    }
}

/// Scores completions by the verifiers and computes the pass rate. `completions` has the same number for each prompt of
/// `data`, those of one prompt adjacent. Leaves out completions of examples without a question. Adds the verdicts to
/// the verifiers' counts of the present step. Fails as [`Verifiers::verdicts`] does.
pub(crate) fn score_completions<'a>(
    policy: &Policy,
    completions: &'a [Completion],
    data: &'a Dataset,
    verifiers: &mut Verifiers,
) -> Result<Scored<'a>, Error> {
    let k = (completions.len() / data.examples.len().max(1)).max(1);
    let answers = completions.iter().enumerate().filter_map(|(number, completion)| {
        let question = data.examples[number / k].question.as_ref()?;
        let (ids, last_turn) = (completion.ids.as_slice(), completion.last_turn());
        Some(Answer { question, ids, last_turn, reward: completion.reward })
    });
    let (answers, weights) = (answers.collect::<Vec<_>>(), verifiers.names_and_weights());
    let verdicts = verifiers.verdicts(policy.ranks(), policy.model().tokenizer()?, &answers, None)?;
    let factors: Vec<f32> = weights.iter().map(|(_, weight)| *weight).collect();
    Ok(Scored { rate: compute_pass_rate(&verdicts, &factors, k), answers, verdicts, weights })
}

/// Computes the pass rate, rounded to seven significant digits. `verdicts` is `[completions][verifiers]`, the `k`
/// completions of a prompt adjacent; NaN means no verdict. A completion passes if its first verdict is at least
/// [`PASS_SCORE`]. `weights` are the verifiers' factors in the reward, which is Σ weight · verdict over the verdicts
/// that are not NaN. The mean reward is over the completions with such a verdict; 0 without any.
fn compute_pass_rate(verdicts: &[Vec<f32>], weights: &[f32], k: usize) -> PassRate {
    let passes: Vec<bool> =
        verdicts.iter().map(|row| row.first().is_some_and(|verdict| *verdict >= PASS_SCORE)).collect();
    let share = |count: usize, of: usize| seven_digits(count as f64 / of.max(1) as f64);
    let any = passes.chunks(k).filter(|group| group.contains(&true)).count();
    let judged = verdicts.iter().filter(|row| row.iter().any(|verdict| !verdict.is_nan()));
    let rewards: Vec<f64> = judged
        .map(|row| {
            let there = row.iter().zip(weights).filter(|(verdict, _)| !verdict.is_nan());
            there.map(|(verdict, weight)| f64::from(verdict * weight)).sum()
        })
        .collect();
    PassRate {
        at_one: share(passes.iter().filter(|pass| **pass).count(), passes.len()),
        at_k: share(any, passes.len().div_ceil(k)),
        k,
        reward: seven_digits(rewards.iter().sum::<f64>() / rewards.len().max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_passes_when_one_of_its_answers_does() {
        let verdicts = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [f32::NAN, f32::NAN]].map(Vec::from);
        let found = compute_pass_rate(&verdicts, &[1.0, 0.5], 2);

        assert_eq!(found, PassRate { at_one: 0.25, at_k: 0.5, k: 2, reward: 0.5 });
    }
}
