//! How well the model foretells data that it never learns from.
//!
//! The mean negative log-likelihood of a target token, through the policy; for pairs, of the
//! better answer. Nothing of it reaches the method.

use std::sync::Arc;

use tunebox_compute::fused::TapSet;
use tunebox_model::rows::Rows;
use tunebox_model::{Policy, View};

use crate::data::Dataset;
use crate::error::Error;

/// Scores a data set; `batch` examples at a time.
pub(crate) fn validate(policy: &Policy, data: &Dataset, batch: usize) -> Result<f64, Error> {
    let (mut total, mut targets) = (0.0_f64, 0_usize);
    for examples in data.examples.chunks(batch) {
        let ids = examples.iter().map(|example| example.sides[0].ids.clone()).collect();
        let marks = examples.iter().map(|example| example.sides[0].targets.clone()).collect();
        let rows = Arc::new(Rows::new(ids, marks)?);
        targets += rows.targets();
        let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
        let logprobs = scored.taps.logprob.flatten_all().and_then(|flat| flat.to_vec1::<f32>());
        let logprobs = logprobs.map_err(tunebox_compute::Error::from)?;
        total -= logprobs.iter().map(|value| f64::from(*value)).sum::<f64>();
    }
    Ok(total / targets.max(1) as f64)
}
