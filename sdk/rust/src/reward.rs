//! The run's verifiers (`wit/reward.wit`): the method gets numbers and never sees text.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch, completions: &Completions) -> Result<()> {
//! let verdicts = judge(batch, completions)?; // [rows, verifiers]
//! let judged = verdicts.is_finite();
//! let rewards = (&verdicts * weights()?).nansum(1); // [rows]
//! for (number, name) in tunebox::reward::verifiers().iter().enumerate() {
//!     let verdict = verdicts.slice(1, number as u32, 1).nanmean(All).item()?;
//!     log(&format!("{name}: {verdict:.3}"));
//! }
//! metric("unjudged", judged.logical_not().count(All));
//! # Ok(())
//! # }
//! ```

use crate::bindings::tunebox::method::reward;
use crate::error::checked;
use crate::sample::Completions;
use crate::{Batch, Result, Tensor};

/// The names of the run's verifiers, in the order of the columns of [`judge`].
pub fn verifiers() -> Vec<String> {
    reward::verifiers()
}

/// The weights of the run's verifiers in reward sums, `[verifiers]`; those of the model are in [`weights`](mod@crate::weights).
/// Errors: `unsupported` when the run lists none.
#[track_caller]
pub fn weights() -> Result<Tensor> {
    checked(reward::weights()).map(Tensor::new)
}

/// Judges completions of the batch's prompts: `[rows, verifiers]`, NaN where a verifier could not
/// judge. Costs one verifier call an entry.
/// Errors: completions of other prompts; `unsupported` when the run lists no verifier.
#[track_caller]
pub fn judge(batch: &Batch, completions: &Completions) -> Result<Tensor> {
    checked(reward::judge(batch.handle(), completions.handle())).map(Tensor::new)
}
