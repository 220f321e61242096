//! What one call of `step` works on: created by the run, and given to the method as handles.

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
    /// Columns with a number for each target token, by name: the numbers of each row of the only side, NaN where
    /// absent, or what is wrong with the column of a record. Empty for data that is not supervised.
    pub token_columns: BTreeMap<String, Result<Vec<Vec<f32>>, String>>,
    /// The index of each record in the data of the run.
    pub indices: Vec<u32>,
    /// Number of target tokens in all micro-batches of the update (the accumulation window), by side.
    pub window_targets: BTreeMap<String, u32>,
    /// Number of tokens that are not the first of their row, in all micro-batches of the update, by side.
    pub window_tokens: BTreeMap<String, u32>,
    /// Number of records in all micro-batches of the update.
    pub window_size: u32,
    /// Whether the batch is the last micro-batch of its update.
    pub ends_window: bool,
    /// Each record as text, for verifiers and environments; the method never sees it. Empty if the data has no prompts
    /// to sample from.
    pub questions: Vec<Question>,
}

impl Batch {
    /// Returns the records as text if `prompts` are the rows of a side of this batch, one row for each record.
    /// Compares by identity: `None` for any other rows, equal copies included, and for a batch without questions.
    #[must_use]
    pub fn questions_of(&self, prompts: &Arc<Rows>) -> Option<&[Question]> {
        let own = self.sides.iter().any(|(_, rows)| Arc::ptr_eq(rows, prompts));
        (own && self.questions.len() == prompts.count()).then_some(self.questions.as_slice())
    }
}

/// A record as text, for the run's verifiers and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The prompt, or the last message of a conversation.
    pub prompt: String,
    /// Further fields of the record as text, such as `answer`.
    pub fields: BTreeMap<String, String>,
}
