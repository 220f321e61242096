//! The batch, as handles: ids, masks and lengths, never text (`wit/data.wit`).
//!
//! Position `t` of every per-token tensor belongs to token `t` itself, so nothing is ever shifted.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch) -> Result<()> {
//! let rows = batch.rows("example")?;
//! let (ids, mask) = (rows.ids(), rows.mask()); // [rows, width] each
//! let longest = rows.lengths().max(All); // targets of the longest answer
//! let share = rows.targets() as f32 / batch.window_targets("example")? as f32;
//! let weight = batch.column("weight")?.replace_non_finite(1.0); // [size], 1 where a record has none
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::data;
use crate::error::{certain, checked};
use crate::{Result, Tensor};

/// Token rows of one kind, padded on the right to the widest.
pub struct Rows(data::Rows);

impl Rows {
    pub(crate) fn handle(&self) -> &data::Rows {
        &self.0
    }

    pub(crate) fn from_handle(handle: data::Rows) -> Self {
        Self(handle)
    }

    /// Makes rows of your own tokens, such as a completion after another prompt: `ids` `u32`, `presence` (1 where there is
    /// a token, 0 in the padding after it) and `mask` (1 at targets) `f32`, all `[rows, width]`. Errors: another shape or
    /// element type; an id that is not in the vocabulary; a mask of other numbers than 0 and 1; an empty row, or one longer
    /// than the model takes; a token or a target in the padding.
    #[track_caller]
    pub fn new(ids: &Tensor, presence: &Tensor, mask: &Tensor) -> Result<Self> {
        checked(data::make_rows(ids.handle(), presence.handle(), mask.handle())).map(Self)
    }

    /// How many rows there are.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// The length of the longest row, prompt included.
    pub fn width(&self) -> u32 {
        self.0.width()
    }

    /// Token ids, `[rows, width]`, `u32`; 0 in the padding.
    #[track_caller]
    pub fn ids(&self) -> Tensor {
        Tensor::new(certain(self.0.ids()))
    }

    /// 1 where a token is a target, else 0: `[rows, width]`, `f32`.
    #[track_caller]
    pub fn mask(&self) -> Tensor {
        Tensor::new(certain(self.0.mask()))
    }

    /// 1 where there is a token, 0 in the padding: `[rows, width]`, `f32`.
    #[track_caller]
    pub fn presence(&self) -> Tensor {
        Tensor::new(certain(self.0.presence()))
    }

    /// Number of target tokens of each row, `[rows]`, `f32`; may be 0.
    #[track_caller]
    pub fn lengths(&self) -> Tensor {
        Tensor::new(certain(self.0.lengths()))
    }

    /// Number of target tokens of all rows together.
    pub fn targets(&self) -> u32 {
        self.0.targets()
    }

    /// These rows with every token that has a predecessor as a target: for losses that learn the
    /// prompt as well.
    #[track_caller]
    pub fn whole(&self) -> Rows {
        Rows(certain(self.0.whole()))
    }

    /// The tokens before each row's first target, as prompts to sample from; they have no targets. Errors: a row without a
    /// target.
    #[track_caller]
    pub fn prompts(&self) -> Result<Rows> {
        checked(self.0.prompts()).map(Rows)
    }

    /// The rows with these numbers, from 0, in the order of `numbers`. Errors: no number, more numbers than rows, or
    /// one past the last row.
    #[track_caller]
    pub fn select(&self, numbers: &[u32]) -> Result<Rows> {
        checked(self.0.select(numbers)).map(Rows)
    }
}

/// The records of one call of `step`: a micro-batch.
pub struct Batch<'step>(&'step data::Batch);

impl<'step> Batch<'step> {
    pub(crate) fn new(handle: &'step data::Batch) -> Self {
        Self(handle)
    }

    pub(crate) fn handle(&self) -> &data::Batch {
        self.0
    }

    /// The kinds of rows in the batch: `example`, or `chosen` and `rejected`, or `prompt`, …
    pub fn sides(&self) -> Vec<String> {
        self.0.sides()
    }

    /// The rows of one side. Errors: a side that the data shape lacks.
    #[track_caller]
    pub fn rows(&self, side: &str) -> Result<Rows> {
        checked(self.0.rows(side)).map(Rows)
    }

    /// How many records the batch holds.
    pub fn size(&self) -> u32 {
        self.0.size()
    }

    /// A numeric column of the records by name: `[size]`, `f32`, NaN where a record lacks it. Errors: `invalid-argument`
    /// for a name that no record of the data has.
    #[track_caller]
    pub fn column(&self, name: &str) -> Result<Tensor> {
        checked(self.0.column(name)).map(Tensor::new)
    }

    /// A column with a list of one number for each target token, such as recorded log-probabilities: `[rows, width]` of the
    /// side `example`, `f32`, 0 where the mask is 0, NaN where a record lacks the list. Errors: a name that no record has; a
    /// list of another length; data that is not supervised.
    #[track_caller]
    pub fn token_column(&self, name: &str) -> Result<Tensor> {
        checked(self.0.token_column(name)).map(Tensor::new)
    }

    /// The index of each record in the data, `[size]`, `u32`: the same in every epoch and in a resumed run.
    #[track_caller]
    pub fn record_indices(&self) -> Tensor {
        Tensor::new(certain(self.0.record_indices()))
    }

    /// Target tokens of the whole accumulation window on this side: the denominator that makes
    /// accumulation exact. At least 1.
    #[track_caller]
    pub fn window_targets(&self, side: &str) -> Result<u32> {
        checked(self.0.window_targets(side))
    }

    /// Tokens with a predecessor of the whole accumulation window on this side: the denominator for
    /// [`whole`](Rows::whole) rows. At least 1.
    #[track_caller]
    pub fn window_tokens(&self, side: &str) -> Result<u32> {
        checked(self.0.window_tokens(side))
    }

    /// Records of the whole accumulation window. At least 1.
    pub fn window_size(&self) -> u32 {
        self.0.window_size()
    }

    /// Whether this batch is the last of its accumulation window: after it the weights are updated.
    pub fn ends_window(&self) -> bool {
        self.0.ends_window()
    }
}
