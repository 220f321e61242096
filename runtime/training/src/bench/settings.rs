//! The settings of a benchmark.

use std::collections::BTreeSet;

use tunebox_compute::DType;

/// A part of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Training steps, compared with the speed of matrix products.
    Training,
    /// Scoring rows without training.
    Scoring,
    /// Generating completions, one and several at once.
    Generation,
    /// Opening the model; admitting, compiling and instantiating the method.
    StartUp,
    /// The cost of the sandbox in training steps, which are executed for it if training is not measured.
    Overhead,
}

/// The settings of a benchmark.
#[derive(Debug, Clone, Default)]
pub struct BenchSettings {
    /// The model: a folder, `.gguf` file, or hub name; the embedded sample if `None`.
    pub model: Option<String>,
    /// The type to which the model's weights are converted first; that of its files if `None`.
    pub dtype: Option<DType>,
    /// The phases to measure; all if empty.
    pub only: BTreeSet<Phase>,
    /// The method.
    pub method: String,
    /// Records in a step.
    pub batch: u32,
    /// Tokens of a row; for methods that learn from prompts, half of them are the prompt.
    pub sequence: u32,
    /// The rank of the adapter.
    pub rank: u32,
    /// Timed steps, after one that is not timed.
    pub steps: u32,
    /// Numbers of completions generated at once, one measurement each; at most [`tunebox_model::generate::BATCH`].
    pub prompts: Vec<u32>,
    /// Tokens of the prompt of such a completion.
    pub prompt_tokens: u32,
    /// Tokens of such a completion.
    pub new_tokens: u32,
    /// `cpu`, `cuda[:n]` or `metal`.
    pub device: String,
    /// Further settings of the run, such as `method.completions=8`.
    pub set: Vec<String>,
    /// Never fetch a model over the network.
    pub offline: bool,
    /// Allow a method that is not built in; it runs in this process.
    pub in_process: bool,
}

impl BenchSettings {
    /// Whether `only` lists a phase; true for every phase if `only` is empty.
    pub(super) fn is_measured(&self, phase: Phase) -> bool {
        self.only.is_empty() || self.only.contains(&phase)
    }
}
