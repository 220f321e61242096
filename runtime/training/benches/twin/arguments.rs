//! What a person asks the benchmark for.

use super::Outcome;
use super::pair::Twin;

/// The variable that names a model where no argument does.
const MODEL: &str = "TUNEBOX_BENCH_MODEL";

/// What the benchmark takes.
pub(crate) const USAGE: &str = "cargo bench --workspace --bench twin -- [lora] [dpo] [start-up] [--model MODEL] \
    [--pairs N] [--batch N] [--sequence N] [--rank N] [--json]";

/// What is measured, and how.
#[derive(Debug, PartialEq)]
pub(crate) struct Arguments {
    /// Methods and their twins.
    pub(crate) twins: Vec<Twin>,
    /// Whether starting the built-in methods is timed.
    pub(crate) start_up: bool,
    /// A model; the tiny one of the sample without.
    pub(crate) model: Option<String>,
    /// Pairs of steps that are timed, after one that is not.
    pub(crate) pairs: usize,
    /// Records of a step.
    pub(crate) batch: usize,
    /// Tokens of the longest row.
    pub(crate) sequence: usize,
    /// The rank of the adapters.
    pub(crate) rank: usize,
    /// Lines of JSON instead of text.
    pub(crate) json: bool,
}

impl Arguments {
    /// Those of this process.
    pub(crate) fn of_process() -> Outcome<Self> {
        Self::parse(std::env::args().skip(1), std::env::var(MODEL).ok())
    }

    /// Reads words; sizes that are not given are those of a short run on the model at hand.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>, model: Option<String>) -> Outcome<Self> {
        let (mut twins, mut start_up, mut json, mut model) = (Vec::new(), false, false, model);
        let (mut pairs, mut batch, mut sequence, mut rank) = (None, None, None, None);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` lacks its value; {USAGE}"));
            match word.as_str() {
                // Cargo says so to every benchmark.
                "--bench" => {}
                "lora" => twins.push(Twin::Lora),
                "dpo" => twins.push(Twin::Dpo),
                "start-up" => start_up = true,
                "--json" => json = true,
                "--model" => model = Some(value()?),
                "--pairs" => pairs = Some(count(&word, &value()?)?),
                "--batch" => batch = Some(count(&word, &value()?)?),
                "--sequence" => sequence = Some(count(&word, &value()?)?),
                "--rank" => rank = Some(count(&word, &value()?)?),
                _ => return Err(format!("`{word}` is not an argument; {USAGE}").into()),
            }
        }
        if twins.is_empty() && !start_up {
            (twins, start_up) = (vec![Twin::Lora, Twin::Dpo], true);
        }
        let usual = if model.is_some() { (5, 4, 256) } else { (40, 12, 64) };
        Ok(Self {
            twins,
            start_up,
            model,
            pairs: pairs.unwrap_or(usual.0),
            batch: batch.unwrap_or(usual.1),
            sequence: sequence.unwrap_or(usual.2),
            rank: rank.unwrap_or(16),
            json,
        })
    }
}

fn count(word: &str, value: &str) -> Outcome<usize> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("`{word}` is `{value}`; it must be a whole number above 0").into()),
    }
}
