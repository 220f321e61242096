//! Segments as the attention kernels of a device read them: tiles of tokens, and for each the spans of rows that it is
//! multiplied with, the keys of a tile of queries or the queries of a tile of keys.
//!
//! A plan is made once for a size of tiles and uploaded in one piece; all layers of a pass use the same one. The
//! numbers are described in `kernels/attention.h`.

use std::sync::{Arc, PoisonError};

use candle_core::Tensor;

use super::{Segments, Span, split_at_multiples};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::fused::product::steps;

/// Numbers of a tile: its first position, its first row, its length, and the first and the number of its spans.
const PLACE: usize = 5;
/// Numbers of a span: its first position, its first row, its length.
const SPAN: usize = 3;

/// How sequences are cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fused) enum Tiling {
    /// Tiles of at most this many queries, cut at positions that are multiples of it. The spans of a tile are all that
    /// its sequence sees.
    Queries(usize),
    /// Tiles of at most this many keys. The spans of a tile are its sequence and all that continue it.
    Keys(usize),
}

/// The tiles of a batch on a device.
#[derive(Debug)]
pub(in crate::fused) struct Plan {
    /// How many tiles there are.
    pub(in crate::fused) count: u32,
    /// The tiles, `[count, 5]` u32.
    pub(in crate::fused) places: Tensor,
    /// The spans of all tiles, `[spans, 3]` u32: first position, first row, length.
    pub(in crate::fused) spans: Tensor,
}

/// A plan, and the tiling that it was made for.
pub(super) type CachedPlan = (Tiling, Arc<Plan>);

impl Segments {
    /// Returns the plan for a tiling on `device`, on which the tensor `like` is. Makes and uploads the plan on the
    /// first call for this tiling and device, and keeps it for later calls, also of clones of the segments. Locks the
    /// list of plans meanwhile. [`Error::Shape`] for 2³² tokens or more.
    pub(in crate::fused) fn plan(&self, device: &Accelerator, like: &Tensor, tiling: Tiling) -> Result<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |plan: &Plan| plan.places.device().same_device(like.device());
        if let Some((_, plan)) = plans.iter().find(|(made, plan)| *made == tiling && here(plan)) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(HostPlan::of(self, tiling)?.upload(device)?);
        plans.push((tiling, Arc::clone(&plan)));
        Ok(plan)
    }
}

/// A plan in the memory of the host: a [`PLACE`]-number entry for each tile, and the spans that the entries refer to.
#[derive(Debug, Default, PartialEq, Eq)]
struct HostPlan {
    places: Vec<[u32; PLACE]>,
    spans: Vec<[u32; SPAN]>,
}

impl HostPlan {
    /// Cuts all sequences into tiles and sorts them by work, the most first: tiles of queries by position, tiles of
    /// keys by the tokens that may attend to them. Ties keep the order of the sequences. Fails for 2³² tokens or more.
    fn of(segments: &Segments, tiling: Tiling) -> Result<Self> {
        // Positions and rows are counted in 32 bits; the last of a sequence is the largest of either.
        u32::try_from(segments.tokens()).map_err(|_| Error::shape("a batch of 2³² tokens is too long for a device"))?;
        let mut numbers = Self::default();
        for number in 0..segments.count() {
            numbers.add_sequence(segments, number, tiling);
        }
        // The longest first, so that no multiprocessor has a long one left at the end, when the others have no work.
        match tiling {
            Tiling::Queries(_) => numbers.places.sort_by_key(|place| std::cmp::Reverse(place[0])),
            Tiling::Keys(_) => {
                let spans = &numbers.spans;
                numbers.places.sort_by_key(|place| std::cmp::Reverse(count_following(place, spans)));
            }
        }
        Ok(numbers)
    }

    /// Adds the tiles and spans of the sequence with index `number`. Adds nothing for a sequence without tokens.
    fn add_sequence(&mut self, segments: &Segments, number: usize, tiling: Tiling) {
        let own = segments.span(number);
        let (met, tiles): (Vec<Span>, Vec<_>) = match tiling {
            Tiling::Queries(size) => (segments.path(number), split_at_multiples(own.positions(), size).collect()),
            Tiling::Keys(size) => (segments.family(number).collect(), steps(own.positions(), size).collect()),
        };
        if tiles.is_empty() {
            return;
        }
        let path = self.spans.len() as u32;
        let row = |span: &Span| [span.first as u32, span.rows.start as u32, span.rows.len() as u32];
        self.spans.extend(met.iter().filter(|span| !span.rows.is_empty()).map(row));
        let count = self.spans.len() as u32 - path;
        self.places.extend(tiles.into_iter().map(|positions| {
            let rows = own.rows_of(&positions);
            [positions.start as u32, rows.start as u32, rows.len() as u32, path, count]
        }));
    }

    /// Uploads tiles and spans in one copy; the plan's tensors are views of it.
    fn upload(self, device: &Accelerator) -> Result<Plan> {
        let (places, spans) = (self.places.len(), self.spans.len());
        let numbers = [self.places.into_flattened(), self.spans.into_flattened()].concat();
        let all = device.upload(&numbers, &[numbers.len()])?;
        Ok(Plan {
            count: places as u32,
            places: all.narrow(0, 0, places * PLACE)?.reshape((places, PLACE))?,
            spans: all.narrow(0, places * PLACE, spans * SPAN)?.reshape((spans, SPAN))?,
        })
    }
}

/// Counts the tokens at or after the first position of a tile of keys, `place`, in the tile's sequence and in those
/// that continue it. `spans` are the spans of all tiles.
fn count_following(place: &[u32; PLACE], spans: &[[u32; SPAN]]) -> u64 {
    let [first, _, _, path, count] = *place;
    let met = &spans[path as usize..(path + count) as usize];
    met.iter().map(|[begin, _, length]| u64::from((begin + length).saturating_sub(first.max(*begin)))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs a beginning of 5 tokens, a sequence of 4 and an empty one that continue it, and an unrelated one of 3.
    fn segments() -> Segments {
        Segments::branching(&[(5, None), (4, Some(0)), (0, Some(0)), (3, None)]).unwrap()
    }

    #[test]
    fn queries_are_cut_at_multiples_of_a_tile_and_meet_their_path() {
        let found = HostPlan::of(&segments(), Tiling::Queries(4)).unwrap();
        assert_eq!(found.spans, [[0, 0, 5], [0, 0, 5], [5, 5, 4], [0, 9, 3]]);
        let expected = [[8, 8, 1, 1, 2], [5, 5, 3, 1, 2], [4, 4, 1, 0, 1], [0, 0, 4, 0, 1], [0, 9, 3, 3, 1]];
        assert_eq!(found.places, expected);
    }

    #[test]
    fn keys_meet_their_family_and_those_that_most_queries_see_come_first() {
        let found = HostPlan::of(&segments(), Tiling::Keys(4)).unwrap();
        assert_eq!(found.spans, [[0, 0, 5], [5, 5, 4], [5, 5, 4], [0, 9, 3]]);
        assert_eq!(found.places, [[0, 0, 4, 0, 2], [4, 4, 1, 0, 2], [5, 5, 4, 2, 1], [0, 9, 3, 3, 1]]);
    }

    #[test]
    fn sequences_without_tokens_have_no_tiles() {
        assert_eq!(HostPlan::of(&Segments::new(&[0, 0]), Tiling::Queries(4)).unwrap(), HostPlan::default());
    }
}
