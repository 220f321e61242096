//! Answers of the model under training to a few prompts of the run's own data, for its report: before the first step
//! and after the last.

use std::time::{Duration, Instant};

use tunebox_foundation::printable::printable_except;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::tokenizer::Tokenizer;
use tunebox_model::{Policy, View};

use crate::data::{Dataset, Example};
use crate::error::Error;
use crate::observer::Answered;

/// The most tokens of an answer.
pub(crate) const MAX_TOKENS: usize = 48;

/// The most bytes of a text that is shown to people.
const MAX_TEXT: usize = 2_000;

/// The number of prompts.
const MAX_PROMPTS: usize = 3;

/// The fewest and the most tokens of a prompt: a text without a prompt begins with one token, and a long prompt costs
/// time.
const PROMPT_TOKENS: std::ops::RangeInclusive<usize> = 2..=256;

/// How many records are looked through for prompts.
const MAX_RECORDS: usize = 1_000;

/// The time after which no answer is continued.
const TIME: Duration = Duration::from_secs(20);

/// Generates greedy answers to at most 3 prompts of 2 to 256 tokens from the first 1000 records of `data`. An answer
/// has at most [`MAX_TOKENS`] tokens, and no answer is continued after 20 seconds. Returns each prompt with the answer
/// of the model and the answer of the data. Returns an empty list if no record has such a prompt or the model has no
/// tokenizer.
///
/// # Errors
/// A failed generation, and tokens that cannot be decoded.
pub(crate) fn answer_prompts(policy: &Policy, data: &Dataset) -> Result<Vec<Answered>, Error> {
    let Ok(tokenizer) = policy.model().tokenizer() else { return Ok(Vec::new()) };
    let room = policy.model().configuration.max_positions.saturating_sub(1);
    let chosen: Vec<(&[u32], &Example)> = data.examples.iter().take(MAX_RECORDS).filter_map(prompt_of).collect();
    let fits = |prompt: &&(&[u32], &Example)| PROMPT_TOKENS.contains(&prompt.0.len()) && prompt.0.len() < room;
    let chosen: Vec<_> = chosen.iter().filter(fits).take(MAX_PROMPTS).collect();
    let prompts: Vec<Vec<u32>> = chosen.iter().map(|(ids, _)| ids.to_vec()).collect();
    let sampling = Sampling { temperature: 0.0, max_tokens: MAX_TOKENS, ..Sampling::default() };
    let begun = Instant::now();
    let completions = generate(policy, &View::Policy, &prompts, &sampling, &mut |_, _| begun.elapsed() < TIME)?;
    let answered = |((ids, example), completion): (&&(&[u32], &Example), &tunebox_model::generate::Completion)| {
        let answer = tokenizer.decode(&completion.ids, true)?;
        let wanted = expected_answer(tokenizer, ids.len(), example)?;
        let prompt = match &example.question {
            Some(question) => question.prompt.clone(),
            None => without_roles(tokenizer.decode(ids, true)?.trim()).to_owned(),
        };
        Ok(Answered { prompt: cut_text(&prompt), wanted, answer: cut_text(answer.trim()) })
    };
    chosen.iter().zip(&completions).map(answered).collect()
}

/// The tokens of an example's first side before the first target (all tokens if none is a target), with the example.
/// `None` for an example without sides.
fn prompt_of(example: &Example) -> Option<(&[u32], &Example)> {
    let side = example.sides.first()?;
    let end = side.targets.iter().position(|is_target| *is_target).unwrap_or(side.ids.len());
    Some((&side.ids[..end], example))
}

/// Returns the answer that the data has for a prompt, cut to 2,000 bytes: the field `answer` of a record with a
/// question, else the text of the example's first side after its first `prompt_length` tokens. `None` if there is no
/// answer or only white space.
fn expected_answer(tokenizer: &Tokenizer, prompt_length: usize, example: &Example) -> Result<Option<String>, Error> {
    let text = match &example.question {
        Some(question) => question.fields.get("answer").cloned().unwrap_or_default(),
        None => tokenizer.decode(&example.sides[0].ids[prompt_length..], true)?,
    };
    Ok(Some(cut_text(text.trim())).filter(|text| !text.is_empty()))
}

/// Removes the roles that chat templates write around a prompt of one message, each on a line: `user` at the beginning,
/// and `assistant` or `model` at the end. Returns the prompt unchanged unless both are there.
fn without_roles(prompt: &str) -> &str {
    let inner = ["\nassistant", "\nmodel"].into_iter().find_map(|role| prompt.strip_suffix(role));
    inner.and_then(|inner| inner.strip_prefix("user\n")).map_or(prompt, str::trim)
}

/// Cuts a text after 2,000 bytes, and replaces characters that are unsafe to show, except line ends and tabs.
pub(crate) fn cut_text(text: &str) -> String {
    printable_except(text, MAX_TEXT, &['\n', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_around_one_message_are_left_out_and_others_stay() {
        assert_eq!(without_roles("user\nWhat?\nassistant"), "What?");
        for whole in ["What?", "system\nBe kind.\nuser\nWhat?\nassistant", "user\nWhat?"] {
            assert_eq!(without_roles(whole), whole);
        }
    }
}
