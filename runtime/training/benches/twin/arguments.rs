//! The arguments of the benchmark.

use std::num::NonZeroUsize;

use clap::Parser;
use clap::builder::ArgPredicate::IsPresent;

/// What is measured, and how.
#[derive(Debug, Parser)]
#[command(about = "`cargo bench --workspace --bench twin -- [ARGUMENTS]`")]
pub(crate) struct Arguments {
    /// Methods that are measured beside their native twins.
    #[arg(value_parser = ["lora", "dpo"], default_values = ["lora", "dpo"])]
    pub(crate) methods: Vec<String>,
    /// A model; the tiny one of the sample without.
    #[arg(long, overrides_with = "model")]
    pub(crate) model: Option<String>,
    /// Pairs of steps that are timed, after one that is not.
    #[arg(long, default_value = "40", default_value_if("model", IsPresent, "5"))]
    pub(crate) pairs: NonZeroUsize,
    /// Records of a step.
    #[arg(long, default_value = "12", default_value_if("model", IsPresent, "4"))]
    pub(crate) batch: NonZeroUsize,
    /// Tokens of a row.
    #[arg(long, default_value = "64", default_value_if("model", IsPresent, "256"))]
    pub(crate) sequence: NonZeroUsize,
    /// The rank of the adapters.
    #[arg(long, default_value = "16")]
    pub(crate) rank: NonZeroUsize,
    /// Cargo passes this to every benchmark.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

impl Arguments {
    /// Parses arguments; `model` is used if no `--model` is given.
    pub(crate) fn parse_from_words(
        words: impl IntoIterator<Item = String>,
        model: Option<String>,
    ) -> Result<Self, clap::Error> {
        let model = model.into_iter().flat_map(|model| ["--model".to_owned(), model]);
        Self::try_parse_from(std::iter::once("twin".to_owned()).chain(model).chain(words))
    }
}
