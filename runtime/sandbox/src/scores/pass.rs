//! One pass through the model for the rows of one or several scores: joins their rows, and splits the resulting taps.
//!
//! Both answers of a preference pair continue one prompt. Scored together, the prompt goes through the model once.

use std::collections::BTreeMap;
use std::sync::Arc;

use tunebox_compute::fused::{Tap, Taps};
use tunebox_compute::{DType, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Seeds, select_rows};
use tunebox_model::rows::Rows;

/// One finished forward pass: the model's result for the joined rows, and the scores that these rows belong to.
pub(crate) struct Pass {
    pub(crate) scored: Scored,
    parts: Vec<Part>,
}

/// The rows of one score record, as a part of a pass.
#[derive(Clone)]
pub(super) struct Part {
    /// The number of the score record.
    pub(super) score: u64,
    pub(super) rows: Arc<Rows>,
    /// The index of each of these rows among the joined rows of the pass.
    row_indices: Vec<u32>,
}

impl Part {
    /// Creates the part of the score record `score`. [`join_rows`] sets its row indices.
    pub(super) fn new(score: u64, rows: Arc<Rows>) -> Self {
        Self { score, rows, row_indices: Vec::new() }
    }
}

/// The most scores of one pass. A method has few sides, and the time limit is checked between passes.
const MAX_SCORES: usize = 8;

/// Returns how many of these scores, from the first on, share one pass: at least 1, at most `MAX_SCORES`, and only
/// while all their rows, padded to the widest, have at most twice as many elements as the rows of each score padded on
/// their own.
pub(super) fn count_joinable(parts: &[Part]) -> usize {
    let (mut rows, mut width, mut separate) = (0, 0, 0);
    let fits = |part: &&Part| {
        rows += part.rows.count();
        width = width.max(part.rows.width());
        separate += part.rows.count() * part.rows.width();
        rows * width <= 2 * separate
    };
    parts.iter().take(MAX_SCORES).take_while(fits).count().max(1)
}

/// Joins the rows of all parts in turn (the first row of each, then the second of each), so that answers to one prompt
/// are neighbors. A part whose rows are used up is skipped. Stores in each part, which has none yet, the indices of its
/// rows among the joined ones. Returns the rows of a single part as they are.
pub(super) fn join_rows(parts: &mut [Part]) -> Result<Arc<Rows>, Error> {
    if let [part] = parts {
        part.row_indices = (0..part.rows.count() as u32).collect();
        return Ok(Arc::clone(&part.rows));
    }
    let most = parts.iter().map(|part| part.rows.count()).max().unwrap_or(0);
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for row in 0..most {
        for part in parts.iter_mut() {
            let Some((own, marks)) = part.rows.ids.get(row).zip(part.rows.targets.get(row)) else { continue };
            part.row_indices.push(ids.len() as u32);
            ids.push(own.clone());
            targets.push(marks.clone());
        }
    }
    Ok(Arc::new(Rows::new(ids, targets)?))
}

impl Pass {
    /// Combines what the model returned for the joined rows with the scores that it belongs to.
    pub(super) fn new(scored: Scored, parts: Vec<Part>) -> Self {
        Self { scored, parts }
    }

    /// Returns the numbers of the scores that came from this pass.
    pub(super) fn scores(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.score)
    }

    /// Removes the taps from the pass and returns, for each score, its number and its taps `[rows, width]` of its own
    /// rows, cut to its own width. A second call finds none.
    pub(super) fn take_taps(&mut self) -> Result<Vec<(u64, Taps<Tensor>)>, Error> {
        let all = std::mem::take(&mut self.scored.taps);
        if let [part] = self.parts.as_slice() {
            return Ok(vec![(part.score, all)]);
        }
        let taps = |part: &Part| Ok((part.score, select_rows(&all, &part.row_indices, part.rows.width())?));
        self.parts.iter().map(taps).collect()
    }

    /// Joins the seeds of each score, by its number, into seeds for all rows of the pass. A seed is the gradient of a
    /// tap, `[rows, width]`; it is 0 in rows of a score that has none for the tap.
    pub(super) fn all_seeds(&self, seeds: &BTreeMap<u64, Seeds>) -> Result<Seeds, Error> {
        join_seeds(&self.parts.iter().collect::<Vec<_>>(), &self.scored.rows, seeds)
    }

    /// Whether every score of the pass has an entry in `seeds`, whose keys are the numbers of scores; an empty entry
    /// counts.
    pub(super) fn is_covered_by(&self, seeds: &BTreeMap<u64, Seeds>) -> bool {
        self.parts.iter().all(|part| seeds.contains_key(&part.score))
    }

    /// Returns the pass, without saved activations, for the rows of those scores only that have an entry in `seeds` (by
    /// the score's number), and the joined seeds of these rows. A backward pass over it recomputes the activations.
    pub(super) fn restrict_to(&self, seeds: &BTreeMap<u64, Seeds>) -> Result<(Scored, Seeds), Error> {
        let mut parts: Vec<Part> = self
            .parts
            .iter()
            .filter(|part| seeds.contains_key(&part.score))
            .map(|part| Part::new(part.score, Arc::clone(&part.rows)))
            .collect();
        let rows = join_rows(&mut parts)?;
        let joined = join_seeds(&parts.iter().collect::<Vec<_>>(), &rows, seeds)?;
        Ok((self.scored.of_rows(rows), joined))
    }
}

/// Joins the seeds of each part, by its score's number, into seeds for the joined `rows`: `[rows, width]`, `f32`, 0
/// where a part has no seed for a tap. A tap for which no part has a seed gets none. Returns the seeds of a single part
/// as they are.
fn join_seeds(parts: &[&Part], rows: &Rows, seeds: &BTreeMap<u64, Seeds>) -> Result<Seeds, Error> {
    if let [part] = parts {
        return Ok(seeds.get(&part.score).cloned().unwrap_or_default());
    }
    let mut joined = Seeds::default();
    for tap in Tap::ALL {
        let own: Vec<Option<&Tensor>> =
            parts.iter().map(|part| seeds.get(&part.score).and_then(|seeds| seeds.get(tap))).collect();
        let Some(device) = own.iter().flatten().map(|seed| seed.device()).next() else { continue };
        let mut all = vec![0f32; rows.count() * rows.width()];
        for (part, seed) in parts.iter().zip(&own) {
            let Some(seed) = seed else { continue };
            for (index, values) in part.row_indices.iter().zip(seed.to_dtype(DType::F32)?.to_vec2::<f32>()?) {
                let row = all.chunks_exact_mut(rows.width().max(1)).nth(*index as usize);
                row.into_iter().flatten().zip(values).for_each(|(to, value)| *to = value);
            }
        }
        joined.insert(tap, Tensor::from_vec(all, (rows.count(), rows.width()), device)?);
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use tunebox_compute::Device;

    use super::*;

    fn part(score: u64, lengths: &[usize]) -> Part {
        let ids = lengths.iter().map(|length| vec![score as u32; *length]).collect();
        let targets = lengths.iter().map(|length| vec![true; *length]).collect();
        Part::new(score, Arc::new(Rows::new(ids, targets).unwrap()))
    }

    #[test]
    fn scores_go_together_while_padding_costs_no_more_than_they_do() {
        assert_eq!(count_joinable(&[part(1, &[5, 4]), part(2, &[7, 3]), part(3, &[6])]), 3);
        // Two hundred short rows beside a long one would become two hundred long ones.
        assert_eq!(count_joinable(&[part(1, &[2; 200]), part(2, &[900]), part(3, &[2; 9])]), 1);
        assert_eq!(count_joinable(&(0..20).map(|score| part(score, &[3])).collect::<Vec<_>>()), MAX_SCORES);
        assert_eq!(count_joinable(&[part(1, &[900]), part(2, &[2])]), 2);
    }

    #[test]
    fn rows_of_the_same_number_become_neighbors() {
        let mut parts = [part(1, &[2, 3]), part(2, &[4, 1, 2])];
        let rows = join_rows(&mut parts).unwrap();
        assert_eq!(rows.ids.iter().map(|ids| ids[0]).collect::<Vec<_>>(), [1, 2, 1, 2, 2]);
        assert_eq!((parts[0].row_indices.clone(), parts[1].row_indices.clone()), (vec![0, 2], vec![1, 3, 4]));
    }

    #[test]
    fn seeds_stand_where_their_rows_went_and_0_where_there_are_none() {
        let mut parts = [part(1, &[2, 1]), part(2, &[3])];
        let rows = join_rows(&mut parts).unwrap();
        let seed = |tap, values: Vec<f32>, shape| {
            Seeds::from_iter([(tap, Tensor::from_vec(values, shape, &Device::Cpu).unwrap())])
        };
        let seeds = BTreeMap::from([
            (1, seed(Tap::Logprob, vec![1.0, 2.0, 3.0, 0.0], (2, 2))),
            (2, seed(Tap::Entropy, vec![4.0, 5.0, 6.0], (1, 3))),
        ]);
        let joined = join_seeds(&parts.iter().collect::<Vec<_>>(), &rows, &seeds).unwrap();
        let values = |tap| joined.get(tap).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(values(Tap::Logprob), [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]]);
        assert_eq!(values(Tap::Entropy), [[0.0, 0.0, 0.0], [4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]);
        assert_eq!(joined.iter().count(), 2);
    }
}
