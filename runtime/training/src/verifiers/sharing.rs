//! Shares the work of verifiers and of sampling among the ranks of a run, and joins what each of them counted.

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tunebox_model::RankGroup;
use tunebox_sandbox::Verdict;

use super::Verifiers;
use crate::error::Error;

/// The results of a verifier or environment in one step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The verdicts.
    pub(super) values: Vec<f64>,
    /// Number of completions on which it failed.
    pub(super) failed: usize,
    /// Number of completions on which it abstained.
    pub(super) abstained: usize,
    /// The cause of the first failure.
    pub(crate) reason: Option<String>,
}

impl Counts {
    /// Adds the verdicts and failures that another rank counted. Keeps its own first cause of a failure, if it has one.
    fn merge(&mut self, other: Self) {
        self.values.extend(other.values);
        self.failed += other.failed;
        self.abstained += other.abstained;
        self.reason = self.reason.take().or(other.reason);
    }

    /// Adds a verdict to the counts; returns its value, or NaN if the verifier abstained or failed. Keeps the cause of
    /// the first failure.
    pub(crate) fn add(&mut self, verdict: Verdict) -> f32 {
        match verdict {
            Verdict::Value(value) => {
                self.values.push(f64::from(value));
                value
            }
            Verdict::Abstained => {
                self.abstained += 1;
                f32::NAN
            }
            Verdict::Failed(reason) => {
                self.failed += 1;
                self.reason.get_or_insert(reason);
                f32::NAN
            }
        }
    }
}

/// Computes results for `weights.len()` items, with the items divided among the ranks. `compute` gets the range of this
/// rank's items and returns their results in order, equally many for each item. Returns the results of all items, in
/// order, on every rank, and adds the counts of all ranks to the counts of `verifiers`. `weights` says how much work
/// each item is, and `purpose` names the exchange. Fails on every rank if one of them fails.
pub(super) fn share_work<T: Serialize + DeserializeOwned>(
    ranks: &RankGroup,
    purpose: &'static str,
    weights: &[usize],
    verifiers: &mut Verifiers,
    compute: impl FnOnce(&mut Verifiers, Range<usize>) -> Result<Vec<T>, Error>,
) -> Result<Vec<T>, Error> {
    if !ranks.are_several() {
        return compute(verifiers, 0..weights.len());
    }
    let before: Vec<Counts> = verifiers.counts_mut().map(std::mem::take).collect();
    let own = compute(verifiers, ranks.divide(weights)[ranks.position().0].clone());
    let both = verifiers.counts_mut().zip(before);
    let counted: Vec<Counts> = both.map(|(own, before)| std::mem::replace(own, before)).collect();
    let message = match &own {
        Ok(items) => postcard::to_stdvec(&(items, counted)).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let gathered = ranks.gather(purpose, message);
    own?;
    let mut all = Vec::with_capacity(weights.len());
    for message in gathered? {
        let wrong = |error| tunebox_model::Error::Argument(format!("a rank sent no result of `{purpose}`: {error}"));
        let (items, counted): (Vec<T>, Vec<Counts>) = postcard::from_bytes(&message).map_err(wrong)?;
        all.extend(items);
        verifiers.counts_mut().zip(counted).for_each(|(counts, more)| counts.merge(more));
    }
    let each = weights.len().max(1);
    if !all.len().is_multiple_of(each) {
        let what = format!("the ranks sent {} results of `{purpose}` for {} items", all.len(), weights.len());
        return Err(tunebox_model::Error::Argument(what).into());
    }
    Ok(all)
}
