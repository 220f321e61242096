//! The rotation as one launch: a thread for a pair of features, or for eight.

use candle_core::Tensor;

use super::RopeTable;
use crate::accelerator::{Accelerator, Argument, Grid, arguments, extent, is_aligned, kernel};
use crate::error::Result;
use crate::fused::device::expect_type;
use crate::fused::host;
use crate::fused::indices::Indices;

const THREADS: u32 = 256;
/// Pairs that one thread turns where everything begins on a boundary of vectors.
const EIGHT: usize = 8;

/// Rotates each head of `x` by the position of its token on a device; a `sign` of −1 rotates back. Returns `x` itself
/// if there are no tokens or nothing is rotated.
pub(super) fn turned(
    device: &Accelerator,
    x: &Tensor,
    heads: usize,
    positions: &Indices,
    table: &RopeTable,
    sign: f32,
) -> Result<Tensor> {
    let act = expect_type(x, "x")?;
    let (tokens, features) = host::matrix(x, "x")?;
    if table.half == 0 || tokens == 0 {
        return Ok(x.clone());
    }
    let (half, head) = (table.half, features / heads);
    let (places, (cos, sin)) = (positions.on(x.device())?, table.on(x.device())?);
    let eights = [half, head].iter().all(|side| side.is_multiple_of(EIGHT)) && is_aligned(x);
    let (kernel, pieces) = if eights { (&kernel::ROPE_EIGHTS, half / EIGHT) } else { (&kernel::ROPE, half) };
    let blocks = extent(tokens * heads * pieces)?.div_ceil(THREADS);
    let stride = Argument::Long(features as u64);
    let arguments = arguments![
        x,
        &places,
        &cos,
        &sin,
        tokens,
        heads,
        head,
        half,
        stride,
        stride,
        table.positions(),
        sign,
        Argument::FaultWord,
        0u32
    ];
    device.compute(kernel, act, Grid::of(blocks, THREADS), x.dims(), &arguments)
}
