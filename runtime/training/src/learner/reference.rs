//! A cache of the reference's log-probabilities by row. They never change, so a row that a run meets again needs no
//! second pass. The cache is in memory, and in a file of the run's folder for a resumed run.
//!
//! Only rows of the run's data are cached: generated rows are new every time. The log-probabilities of a row depend on
//! no other row of its pass, so they have the same bits as without the cache.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

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

/// The first bytes of the file; they name its layout.
const MAGIC: &[u8; 16] = b"tunebox-logprob1";

/// The most cached log-probabilities: 2^28 numbers of 4 bytes, 1 GiB.
const MAX_CACHED: usize = 1 << 28;

/// SHA-256 of the reference's identity, the tokens of a row and which of them are targets.
type Key = [u8; 32];

/// Cached log-probabilities of the targets of rows.
pub(crate) struct ReferenceCache {
    /// Names the reference, so that the file of another reference is not used.
    identity: String,
    /// The keys of the rows of the run's data; only these rows are cached.
    data: HashSet<Key>,
    /// Log-probabilities of the targets of a row, by the key of the row.
    cached: HashMap<Key, Vec<f32>>,
    /// How many more numbers may be cached.
    remaining: usize,
    /// Whether the cache differs from its file.
    changed: bool,
    /// Seconds in which rows were scored that were not cached.
    pub(crate) seconds: f64,
}

impl ReferenceCache {
    /// An empty cache that accepts only the rows of `data`. `identity` names the reference: the base model, and the
    /// adapter if one is continued.
    pub(crate) fn new(identity: String, data: &Dataset) -> Self {
        let mut cache = Self {
            identity,
            data: HashSet::new(),
            cached: HashMap::new(),
            remaining: MAX_CACHED,
            changed: false,
            seconds: 0.0,
        };
        let sides = data.examples.iter().flat_map(|example| &example.sides);
        cache.data = sides.map(|side| cache.row_key(&side.ids, &side.targets)).collect();
        cache
    }

    /// Returns the log-probabilities of the targets of rows under the reference, at temperature 1, as the tap
    /// `Logprob`: `f32` `[rows, width]` on the CPU, 0 where no target is. Takes cached rows from the cache; scores the
    /// others in one pass, whose time it adds to `seconds`, and caches those that [`ReferenceCache::insert`] accepts.
    pub(crate) fn score(&mut self, policy: &Policy, rows: &Arc<Rows>) -> Result<Scored, Error> {
        let (count, width) = (rows.count(), rows.width());
        let mut all = vec![0f32; count * width];
        let keys: Vec<Key> = rows.ids.iter().zip(&rows.targets).map(|(ids, marks)| self.row_key(ids, marks)).collect();
        let missing: Vec<usize> = (0..count).filter(|row| !self.cached.contains_key(&keys[*row])).collect();
        for (row, key) in keys.iter().enumerate() {
            if let Some(values) = self.cached.get(key) {
                set_targets(rows, row, values, &mut all[row * width..]);
            }
        }
        let begun = Instant::now();
        let found = score_rows(policy, rows, &missing)?;
        self.seconds += begun.elapsed().as_secs_f64();
        for (row, found) in missing.iter().zip(found) {
            set_targets(rows, *row, &found, &mut all[row * width..]);
            self.insert(keys[*row], found);
        }
        let logprob = Tensor::from_vec(all, (count, width), &Device::Cpu)?;
        let taps = Taps::from_iter([(Tap::Logprob, logprob)]);
        Ok(Scored::of_taps(View::Reference, Arc::clone(rows), taps, policy.generation()))
    }

    /// Caches the log-probabilities of the targets of the row with this key, and reduces `remaining` by their number.
    /// Does nothing if the row is not one of the data, there are more numbers than `remaining`, or a number is not
    /// finite.
    fn insert(&mut self, key: Key, values: Vec<f32>) {
        if values.len() <= self.remaining && self.data.contains(&key) && values.iter().all(|value| value.is_finite()) {
            self.remaining -= values.len();
            self.cached.insert(key, values);
            self.changed = true;
        }
    }

    /// The key of a row: SHA-256 of the reference's identity, then for each token its id (`u32`, little-endian) and a
    /// byte that is 1 for a target, else 0.
    fn row_key(&self, ids: &[u32], marks: &[bool]) -> Key {
        let mut digest = Sha256::new();
        digest.update(self.identity.as_bytes());
        for (id, mark) in ids.iter().zip(marks) {
            digest.update(id.to_le_bytes());
            digest.update([u8::from(*mark)]);
        }
        digest.finalize().into()
    }

    /// Loads the cache from its file in the run's folder `run`. Ignores a file that is missing, has more bytes than all
    /// rows of the data can need or that [`parse`] rejects, and rows that [`ReferenceCache::insert`] rejects, such as
    /// those of another reference: they are scored again.
    pub(crate) fn load(&mut self, run: &Path) {
        // The magic bytes; of each row a key and a length; the numbers; and the digest at the end.
        let most = MAGIC.len() + 36 * self.data.len() + 4 * MAX_CACHED + 32;
        let Ok(bytes) = files::read(&run.join(FILE), most as u64) else { return };
        for (key, values) in parse(&bytes).unwrap_or_default() {
            self.insert(key, values);
        }
        self.changed = false;
    }

    /// Writes the cache to its file in the run's folder `run`: [`MAGIC`]; for each row its key, the number of its
    /// targets (`u32`) and their log-probabilities (`f32`), little-endian; then the SHA-256 of all that. Does nothing
    /// if the cache has not changed since it was loaded or saved.
    pub(crate) fn save(&mut self, run: &Path) -> Result<(), files::FileError> {
        if !self.changed {
            return Ok(());
        }
        let mut bytes = MAGIC.to_vec();
        for (key, values) in &self.cached {
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

/// Parses the bytes of a cache file into its rows: key, and log-probabilities of the targets. `None` if the file does
/// not begin with [`MAGIC`], its digest is wrong or a row is cut.
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

/// Scores the rows with these indices under the reference in one pass at temperature 1; does no pass without indices.
/// Returns, for each index in order, the log-probabilities of the row's targets only.
fn score_rows(policy: &Policy, rows: &Rows, indices: &[usize]) -> Result<Vec<Vec<f32>>, Error> {
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, marks) = indices.iter().map(|row| (rows.ids[*row].clone(), rows.targets[*row].clone())).unzip();
    let part = Arc::new(Rows::new(ids, marks)?);
    let scored = policy.score(&View::Reference, &part, TapSet::default(), 1.0, false)?;
    let all = scored.tap(Tap::Logprob)?.to_vec2::<f32>()?;
    let targets = all.into_iter().zip(&part.targets).map(|(values, marks)| {
        values.into_iter().zip(marks).filter(|(_, mark)| **mark).map(|(value, _)| value).collect()
    });
    Ok(targets.collect())
}

/// Copies `values`, one for each target of row number `row`, to the positions of the targets in `into`, which begins
/// with that row. Other positions stay as they are.
fn set_targets(rows: &Rows, row: usize, values: &[f32], into: &mut [f32]) {
    let targets = rows.targets[row].iter().zip(into).filter(|(mark, _)| **mark);
    for ((_, number), value) in targets.zip(values) {
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
