//! Log-probabilities of the reference, kept by content: they never change, so rows that a run meets again need no
//! second pass. In memory while the run lasts, and in one file of its folder for a run that is resumed.
//!
//! Only rows of the run's data are kept: what a model writes is new every time. What the engine says of a row depends
//! on no other row of its pass, so the numbers have the same bits as without the cache.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tunebox_compute::fused::{Tap, TapSet, Taps};
use tunebox_compute::{Device, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::{Policy, Scored, View};
use tunebox_model::rows::Rows;

use crate::data::Dataset;
use tunebox_foundation::files;

/// The file in the run's folder.
pub(crate) const FILE: &str = "reference.cache";

/// How the file begins; another layout begins otherwise.
const MAGIC: &[u8; 16] = b"tunebox-logprob1";

/// The most numbers that are kept: a gibibyte.
const MOST: usize = 1 << 28;

/// What a row is: the reference, its tokens and which of them are targets.
type Key = [u8; 32];

/// Kept log-probabilities.
pub(crate) struct ReferenceCache {
    /// Names the reference, so that a file is never taken for another's.
    identity: String,
    /// The rows that may come again.
    data: HashSet<Key>,
    kept: HashMap<Key, Vec<f32>>,
    /// How many numbers may be kept.
    room: usize,
    changed: bool,
}

impl ReferenceCache {
    /// A cache for the rows of some data. `identity` names the reference: base, and adapter if one is continued.
    pub(crate) fn new(identity: String, data: &Dataset) -> Self {
        let mut cache = Self { identity, data: HashSet::new(), kept: HashMap::new(), room: MOST, changed: false };
        let sides = data.examples.iter().flat_map(|example| &example.sides);
        cache.data = sides.map(|side| cache.key(&side.ids, &side.targets)).collect();
        cache
    }

    /// The log-probabilities of rows under the reference, at temperature 1.
    pub(crate) fn score(&mut self, policy: &Policy, rows: &Arc<Rows>) -> Result<Scored, Error> {
        let (count, width) = (rows.count(), rows.width());
        let mut all = vec![0f32; count * width];
        let keys: Vec<Key> = rows.ids.iter().zip(&rows.targets).map(|(ids, marks)| self.key(ids, marks)).collect();
        let missing: Vec<usize> = (0..count).filter(|row| !self.kept.contains_key(&keys[*row])).collect();
        for (row, key) in keys.iter().enumerate() {
            if let Some(kept) = self.kept.get(key) {
                place(rows, row, kept, &mut all[row * width..]);
            }
        }
        for (row, found) in missing.iter().zip(pass(policy, rows, &missing)?) {
            place(rows, *row, &found, &mut all[row * width..]);
            self.keep(keys[*row], found);
        }
        let logprob = Tensor::from_vec(all, (count, width), &Device::Cpu)?;
        let taps = Taps::from_iter([(Tap::Logprob, logprob)]);
        Ok(Scored::of_taps(View::Reference, Arc::clone(rows), taps, policy.generation()))
    }

    fn keep(&mut self, key: Key, values: Vec<f32>) {
        if values.len() <= self.room && self.data.contains(&key) && values.iter().all(|value| value.is_finite()) {
            self.room -= values.len();
            self.kept.insert(key, values);
            self.changed = true;
        }
    }

    fn key(&self, ids: &[u32], marks: &[bool]) -> Key {
        let mut digest = Sha256::new();
        digest.update(self.identity.as_bytes());
        for (id, mark) in ids.iter().zip(marks) {
            digest.update(id.to_le_bytes());
            digest.update([u8::from(*mark)]);
        }
        digest.finalize().into()
    }

    /// Takes what an earlier sitting of the run left. A file that is missing or broken is no loss: its rows are scored again.
    pub(crate) fn load(&mut self, run: &Path) {
        // Its beginning; of each row a key and a length; the numbers; and the sum at its end.
        let most = MAGIC.len() + 36 * self.data.len() + 4 * MOST + 32;
        let Ok(bytes) = files::read(&run.join(FILE), most as u64) else { return };
        for (key, values) in parse(&bytes).unwrap_or_default() {
            self.keep(key, values);
        }
        self.changed = false;
    }

    /// Writes what is kept into the run's folder if there is something new.
    pub(crate) fn save(&mut self, run: &Path) -> Result<(), files::FileError> {
        if !self.changed {
            return Ok(());
        }
        let mut bytes = MAGIC.to_vec();
        for (key, values) in &self.kept {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&u32::try_from(values.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let sum: [u8; 32] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&sum);
        files::write(&run.join(FILE), &bytes)?;
        self.changed = false;
        Ok(())
    }
}

/// The entries of a file; `None` for one that is not whole.
fn parse(bytes: &[u8]) -> Option<Vec<(Key, Vec<f32>)>> {
    let (body, sum) = bytes.split_last_chunk::<32>()?;
    if Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC.as_slice())?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_first_chunk::<32>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (values, after) =
            after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?.checked_mul(4)?)?;
        let number = |bytes: &[u8]| bytes.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
        entries.push((*key, values.chunks_exact(4).map(number).collect()));
        rest = after;
    }
    Some(entries)
}

/// The log-probabilities of the targets of some rows, in order, from one pass.
fn pass(policy: &Policy, rows: &Rows, places: &[usize]) -> Result<Vec<Vec<f32>>, Error> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, marks) = places.iter().map(|row| (rows.ids[*row].clone(), rows.targets[*row].clone())).unzip();
    let part = Arc::new(Rows::new(ids, marks)?);
    let scored = policy.score(&View::Reference, &part, TapSet::default(), 1.0, false)?;
    let all = scored.tap(Tap::Logprob)?.to_vec2::<f32>()?;
    let targets = all.into_iter().zip(&part.targets).map(|(values, marks)| {
        values.into_iter().zip(marks).filter(|(_, mark)| **mark).map(|(value, _)| value).collect()
    });
    Ok(targets.collect())
}

/// Puts the numbers of a row's targets in their places.
fn place(rows: &Rows, row: usize, values: &[f32], into: &mut [f32]) {
    let places = rows.targets[row].iter().zip(into).filter(|(mark, _)| **mark);
    for ((_, number), value) in places.zip(values) {
        *number = *value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_whole_gives_nothing() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[7; 32]);
        bytes.extend_from_slice(&2_u32.to_le_bytes());
        bytes.extend([1f32, -2.5].iter().flat_map(|value| value.to_le_bytes()));
        let sum: [u8; 32] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&sum);

        assert_eq!(parse(&bytes).unwrap(), [([7; 32], vec![1.0, -2.5])]);
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "cut to {length}");
        }
        bytes[60] ^= 1;
        assert!(parse(&bytes).is_none());
    }
}
