//! The arguments of the benchmark.

use std::collections::BTreeMap;

use super::Outcome;
use super::pair::Twin;

/// The variable that names a model where no argument does.
const MODEL: &str = "TUNEBOX_BENCH_MODEL";

/// What the benchmark takes.
pub(crate) const USAGE: &str = "cargo bench --workspace --bench twin -- [lora] [dpo] [--model MODEL] \
    [--pairs N] [--batch N] [--sequence N] [--rank N] [--json]";

/// What is measured, and how.
#[derive(Debug, PartialEq)]
pub(crate) struct Arguments {
    /// Methods and their twins.
    pub(crate) twins: Vec<Twin>,
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
    /// Parses the arguments of this process, with the model of `TUNEBOX_BENCH_MODEL` as the default.
    pub(crate) fn of_process() -> Outcome<Self> {
        Self::parse(std::env::args().skip(1), std::env::var(MODEL).ok())
    }

    /// Parses arguments; `model` is used if no `--model` is given. Without names of methods, both are measured. The
    /// default numbers of pairs, records and tokens depend on whether a model is given.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>, model: Option<String>) -> Outcome<Self> {
        let (mut twins, mut json, mut values) = (Vec::new(), false, BTreeMap::new());
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "lora" => twins.push(Twin::Lora),
                "dpo" => twins.push(Twin::Dpo),
                "--json" => json = true,
                "--model" | "--pairs" | "--batch" | "--sequence" | "--rank" => {
                    let value = words.next().ok_or_else(|| format!("`{word}` lacks its value; {USAGE}"))?;
                    values.insert(word, value);
                }
                _ => return Err(format!("`{word}` is not an argument; {USAGE}").into()),
            }
        }
        if twins.is_empty() {
            twins = vec![Twin::Lora, Twin::Dpo];
        }
        let model = values.remove("--model").or(model);
        let (pairs, batch, sequence) = if model.is_some() { (5, 4, 256) } else { (40, 12, 64) };
        let count = |word: &str, usual: usize| match values.get(word) {
            None => Ok(usual),
            Some(value) => value
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| format!("`{word}` is `{value}`; it must be a whole number above 0")),
        };
        Ok(Self {
            twins,
            pairs: count("--pairs", pairs)?,
            batch: count("--batch", batch)?,
            sequence: count("--sequence", sequence)?,
            rank: count("--rank", 16)?,
            model,
            json,
        })
    }
}
