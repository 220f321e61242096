//! What one call of `step` works on, made by the run and shown to the method as handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_model::rows::Rows;

/// One micro-batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token rows by side, such as `example`, or `chosen` and `rejected`.
    pub sides: Vec<(String, Arc<Rows>)>,
    /// How many records the batch holds.
    pub size: u32,
    /// Numeric columns by name: one number a record, NaN where absent.
    pub columns: BTreeMap<String, Vec<f32>>,
    /// Target tokens of the whole accumulation window, by side.
    pub window_targets: BTreeMap<String, u32>,
    /// Tokens with a predecessor of the whole accumulation window, by side.
    pub window_tokens: BTreeMap<String, u32>,
    /// Records of the whole accumulation window.
    pub window_size: u32,
    /// What verifiers may know of each record; the method never sees it. Empty for data without prompts to answer.
    pub questions: Vec<Question>,
}

/// A record as text, for the run's verifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// What was asked: the prompt, or the last message of a conversation.
    pub prompt: String,
    /// Further fields of the record as text, such as `answer`.
    pub fields: BTreeMap<String, String>,
}
