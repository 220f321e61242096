//! Launches of the attention kernels: those for CUDA's tensor cores where activations have 16 bits and the head size is
//! a multiple of 8, the plain kernels elsewhere, and always on Metal. Tile sizes are those of
//! `kernels/cuda/attention_sizes.cuh` and `attention_tiles.cu`.

use candle_core::{DType, Tensor};

use super::AttentionShape;
use crate::accelerator::kernel::{self, Kernel};
use crate::accelerator::{Accelerator, Argument, Build, Grid, arguments, extent, is_aligned};
use crate::error::{Error, Result};
use crate::fused::device::expect_type;
use crate::fused::segments::Segments;
use crate::fused::segments::device::Tiling;

/// The largest head size: a thread holds its share of a head's features in registers.
const WIDEST: usize = 256;
/// Head sizes up to this are rounded up to a multiple of 16 to compile the kernels, larger ones to a multiple of 32,
/// since two blocks share their features.
const WHOLE: usize = 128;
/// 16-bit numbers that one vector load reads.
const EIGHT: usize = 8;
/// Rows of a tile of the plain kernels, which use no tensor cores.
const PLAIN: usize = 32;
/// Rows of a tile of the plain gradient kernels on CUDA for more than [`FITTING`] features. Metal keeps [`PLAIN`] rows,
/// since it holds a piece of the features at a time.
const PLAIN_SMALL: usize = 16;
/// The largest head size for which four tiles of 32 rows fit into 99 KiB, the shared memory that every device has.
const FITTING: usize = 160;
/// If the kernel of dk and dv would have fewer blocks than this for each multiprocessor, several blocks share the query
/// heads of a group.
const BLOCKS: usize = 8;
/// Bytes at a multiple of which the tiles of warpgroups begin.
const ATOM: usize = 1024;
/// Pairs of a token and a head that one block of the kernel `attention_delta` handles.
const DELTAS: usize = 32;

/// Returns the constants that the attention kernels are compiled with: the activation type, the head size rounded up to
/// a multiple of 16, past [`WHOLE`] of 32, and `group`, the query heads of a key-value head (0 where no kernel needs
/// it).
///
/// # Errors
/// [`Error::Shape`] past [`WIDEST`] features.
pub(in crate::fused) fn build(act: DType, shape: &AttentionShape, group: u32) -> Result<Build> {
    if shape.head_dim > WIDEST {
        let found = shape.head_dim;
        return Err(Error::shape(format!("heads of {found} features; a device has kernels for {WIDEST} at most")));
    }
    let step = if shape.head_dim <= WHOLE { 16 } else { 32 };
    Ok(Build { act, head: extent(shape.head_dim.next_multiple_of(step))?, group })
}

/// Returns the window as kernels take it: 0 without a window, or if it hides none of `tokens` tokens.
pub(in crate::fused) fn window(shape: &AttentionShape, tokens: usize) -> Result<u32> {
    extent(shape.window.filter(|window| *window < tokens).unwrap_or(0))
}

/// Queues the forward kernel over `inputs`, which are q, k and v: the version for tensor cores if [`Layer::units`]
/// allows it, else the plain one. Returns the output, shaped like q, and log Σ exp, `[tokens, heads]` f32. The caller
/// has checked the shapes.
pub(super) fn attention(
    device: &Accelerator,
    inputs: [&Tensor; 3],
    segments: &Segments,
    shape: &AttentionShape,
) -> Result<(Tensor, Tensor)> {
    let layer = Layer::of(device, inputs, segments, shape)?;
    let [q, k, v] = inputs;
    let out = device.empty(q.dims(), layer.build.act)?;
    let lse = device.empty(&[segments.tokens(), shape.heads], DType::F32)?;
    let first = arguments![&out, &lse, q, k, v];
    let units = layer.units(&[&out]);
    let kernel = if units == Units::Plain { &kernel::ATTENTION_PLAIN } else { &kernel::ATTENTION };
    layer.launch(kernel, layer.forward_tiles(units), &first)?;
    Ok((out, lse))
}

/// Queues the kernels of the gradients: first Σ dout·out, then dq, then dk and dv. Returns dq, dk and dv, given q, k
/// and v as `inputs`, dout (the gradient of the output), the output and log Σ exp. The caller has checked the shapes.
pub(super) fn attention_backward(
    device: &Accelerator,
    inputs: [&Tensor; 3],
    [dout, out, lse]: [&Tensor; 3],
    segments: &Segments,
    shape: &AttentionShape,
) -> Result<(Tensor, Tensor, Tensor)> {
    let layer = Layer::of(device, inputs, segments, shape)?;
    let [q, k, v] = inputs;
    let delta = layer.compute_delta(dout, out)?;
    let read = arguments![dout, q, k, v, lse, &delta];
    // New tensors are aligned.
    let units = layer.units(&[dout]);
    let dq = device.empty(q.dims(), layer.build.act)?;
    let kernel = if units == Units::Plain { &kernel::ATTENTION_PLAIN_DQ } else { &kernel::ATTENTION_DQ };
    layer.launch(kernel, layer.query_tiles(units), &[&[Argument::from(&dq)][..], &read].concat())?;
    if units != Units::Plain {
        let (dk, dv) = layer.key_gradients(units, &read)?;
        return Ok((dq, dk, dv));
    }
    let (dk, dv) = (device.empty(k.dims(), layer.build.act)?, device.empty(v.dims(), layer.build.act)?);
    let first = arguments![&dk, &dv];
    layer.launch(&kernel::ATTENTION_PLAIN_DKV, layer.key_tiles(units), &[&first[..], &read].concat())?;
    Ok((dq, dk, dv))
}

/// Returns how many query heads of a group one block of the kernel of dk and dv sums, the last block of a group maybe
/// fewer: as many as leave [`BLOCKS`] blocks for each multiprocessor, else 1. `tiles` is the number of tiles of keys
/// times that of key-value heads.
fn heads_of_block(group: usize, tiles: usize, processors: usize) -> usize {
    let enough = |share: &usize| tiles * group.div_ceil(*share) >= BLOCKS * processors;
    let most = (1..=group).rev().find(enough).unwrap_or(1);
    // Spreads the heads evenly over the same number of blocks.
    group.div_ceil(group.div_ceil(most))
}

/// The arguments that all launches over the tokens of a layer have in common.
struct Layer<'a> {
    device: &'a Accelerator,
    inputs: [&'a Tensor; 3],
    segments: &'a Segments,
    shape: &'a AttentionShape,
    build: Build,
}

/// The processor units that multiply in the attention kernels, which decide which kernel is launched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Units {
    /// Ordinary cores: any type, any head size.
    Plain,
    /// Tensor cores, for each warp by itself.
    Warps,
    /// Tensor cores, for four warps together: head sizes 64 and 128 on compute capability 9.0.
    Warpgroups,
}

/// The launch configuration of an attention kernel.
#[derive(Clone, Copy)]
struct Tiles {
    /// Whether a block has a tile of queries or of keys, and its rows.
    tiling: Tiling,
    /// Blocks for each tile: one for each head, or for each group of heads that a block sums, times the parts into
    /// which a head's features are split.
    heads: usize,
    parts: u32,
    threads: u32,
    /// Bytes of shared memory of a block.
    shared: usize,
}

impl<'a> Layer<'a> {
    /// Collects the arguments of a layer; `inputs` are q, k and v. Returns an error if q is not f32 or bf16 or a head
    /// has more than [`WIDEST`] features. Does not check that k and v have the type of q, as they must.
    fn of(
        device: &'a Accelerator,
        inputs: [&'a Tensor; 3],
        segments: &'a Segments,
        shape: &'a AttentionShape,
    ) -> Result<Self> {
        let act = expect_type(inputs[0], "q")?;
        Ok(Self { device, inputs, segments, shape, build: build(act, shape, 0)? })
    }

    /// The head size that the module is compiled for: `head_dim` rounded up.
    fn features(&self) -> usize {
        self.build.head as usize
    }

    /// Chooses the units that the kernels multiply with. Tensor cores are used on CUDA, in 16 bits, with a head size
    /// that is a multiple of [`EIGHT`], a scale above 0, and q, k, v and the tensors `more` aligned for vector loads:
    /// by warpgroups if the device has them and the head size is rounded up to 64 or 128, else by single warps. The
    /// scale must be above 0 because these kernels search for the largest product q·k instead of the largest score.
    fn units(&self, more: &[&Tensor]) -> Units {
        let cores = self.build.act != DType::F32
            && self.inputs[0].device().is_cuda()
            && self.shape.head_dim.is_multiple_of(EIGHT)
            && self.shape.scale > 0.0
            && self.inputs.iter().chain(more).all(|tensor| is_aligned(tensor));
        match cores {
            false => Units::Plain,
            true if self.device.driver.has_warpgroups() && [64, WHOLE].contains(&self.features()) => Units::Warpgroups,
            true => Units::Warps,
        }
    }

    /// Returns the rows of a tile of a block of warpgroups, which have 64 each, and the threads of the block.
    fn warpgroup_tile(&self) -> (usize, u32) {
        if self.features() <= 64 { (64, 128) } else { (128, 256) }
    }

    /// Returns tile sizes, threads and shared memory of the forward kernel.
    fn forward_tiles(&self, units: Units) -> Tiles {
        let features = self.features();
        let (queries, threads, shared) = match units {
            Units::Plain => (PLAIN, 256, 4 * (2 * PLAIN * (features + 1) + PLAIN * (PLAIN + 1))),
            Units::Warps => {
                let queries = if features <= WHOLE { 128 } else { 64 };
                let keys = if features <= 80 || features == WHOLE { 64 } else { 32 };
                (queries, 128, 2 * (features + 8) * (queries + 2 * keys))
            }
            Units::Warpgroups => {
                let ((queries, threads), keys) = (self.warpgroup_tile(), if features <= 64 { 64 } else { 128 });
                (queries, threads, 2 * features * (queries + 4 * keys) + ATOM)
            }
        };
        Tiles { tiling: Tiling::Queries(queries), heads: self.shape.heads, parts: 1, threads, shared }
    }

    /// Returns tile sizes, threads and shared memory of the kernel of dq.
    fn query_tiles(&self, units: Units) -> Tiles {
        let features = self.features();
        let (queries, threads, shared) = match units {
            Units::Plain => self.plain_gradient_tiles(),
            Units::Warps => (64, 128, 4 * (features + 8) * (64 + if features <= WHOLE { 64 } else { 32 })),
            Units::Warpgroups => {
                let (queries, threads) = self.warpgroup_tile();
                (queries, threads, 4 * features * (queries + 2 * 64) + ATOM)
            }
        };
        Tiles { tiling: Tiling::Queries(queries), heads: self.shape.heads, parts: 1, threads, shared }
    }

    /// Returns tile sizes, threads and shared memory of the kernel of dk and dv.
    fn key_tiles(&self, units: Units) -> Tiles {
        let features = self.features();
        let queries = match features {
            ..=64 | WHOLE => 64,
            ..256 => 32,
            _ => 16,
        };
        let (keys, threads, shared) = match units {
            Units::Plain => self.plain_gradient_tiles(),
            Units::Warps => (64, 128, 4 * (features + 8) * (64 + queries) + 8 * queries),
            Units::Warpgroups => {
                let (keys, threads) = self.warpgroup_tile();
                (keys, threads, 4 * features * (keys + 2 * queries) + 16 * queries + ATOM)
            }
        };
        let parts = if units == Units::Warps && features > WHOLE { 2 } else { 1 };
        Tiles { tiling: Tiling::Keys(keys), heads: self.shape.kv_heads, parts, threads, shared }
    }

    /// Returns, for the gradient kernels without tensor cores, the rows of a tile, the threads of a block, and the
    /// bytes of shared memory of a block.
    fn plain_gradient_tiles(&self) -> (usize, u32, usize) {
        let features = self.features();
        let small = features > FITTING && self.inputs[0].device().is_cuda();
        let tile = if small { PLAIN_SMALL } else { PLAIN };
        (tile, 256, 4 * (4 * tile * (features + 1) + 2 * tile * (tile + 1)))
    }

    /// Queues the kernel of dk and dv for tensor cores and returns both. `read` are the arguments that it reads, from
    /// dout on. Where few blocks would have work, each sums a part of a group's query heads, and the parts are added in
    /// order.
    fn key_gradients(&self, units: Units, read: &[Argument<'_>]) -> Result<(Tensor, Tensor)> {
        let (device, [_, k, v], act, tokens) = (self.device, self.inputs, self.build.act, self.segments.tokens());
        let mut tiles = self.key_tiles(units);
        let group = self.shape.group();
        let count = self.segments.plan(device, k, tiles.tiling)?.count as usize;
        // A block of more threads counts as several.
        let blocks = count * self.shape.kv_heads * tiles.threads as usize / 128;
        let share = heads_of_block(group, blocks, device.driver.processors() as usize);
        if share == group || tokens == 0 {
            let (dk, dv) = (device.empty(k.dims(), act)?, device.empty(v.dims(), act)?);
            let first = arguments![&dk, &dv, None, group, tokens];
            self.launch(&kernel::ATTENTION_DKV, tiles, &[&first[..], read].concat())?;
            return Ok((dk, dv));
        }
        let (shares, numbers) = (group.div_ceil(share), 2 * k.elem_count());
        tiles.heads = self.shape.kv_heads * shares;
        let parts = device.empty(&[shares, numbers], DType::F32)?;
        let first = arguments![None, None, &parts, share, tokens];
        self.launch(&kernel::ATTENTION_DKV, tiles, &[&first[..], read].concat())?;
        let sums = device.empty(&[numbers], DType::F32)?;
        let arguments = arguments![&sums, &parts, shares, numbers, 0f32, 1f32];
        let grid = Grid::of(extent(numbers.div_ceil(256))?, 256);
        device.launch(&kernel::ADD_PARTS, DType::F32, grid, &arguments)?;
        let both = device.cast(&sums, act)?;
        let half = |start| -> Result<Tensor> { Ok(both.narrow(0, start, numbers / 2)?.reshape(k.dims())?) };
        Ok((half(0)?, half(numbers / 2)?))
    }

    /// Queues computing Σ dout·out of every token and head, and returns it, `[tokens, heads]` f32.
    fn compute_delta(&self, dout: &Tensor, out: &Tensor) -> Result<Tensor> {
        let (tokens, heads) = (self.segments.tokens(), self.shape.heads);
        let arguments = arguments![dout, out, tokens, heads, self.shape.head_dim];
        let grid = Grid::of(extent((tokens * heads).div_ceil(DELTAS))?, 256);
        self.device.compute(&kernel::ATTENTION_DELTA, self.build, grid, &[tokens, heads], &arguments)
    }

    /// Queues a kernel over the tiles of all sequences. Its arguments are `first`, then the tile tables, the row
    /// strides of q, k and v, and the sizes and options of the layer (a soft cap of 0 and a window of 0 mean none).
    /// Makes and uploads the tile tables if this tiling has none yet. Does nothing if there are no tokens.
    fn launch(&self, kernel: &Kernel, tiles: Tiles, first: &[Argument<'_>]) -> Result<()> {
        if self.segments.tokens() == 0 {
            return Ok(());
        }
        let shape = self.shape;
        let plan = self.segments.plan(self.device, self.inputs[0], tiles.tiling)?;
        let stride = |tensor: &Tensor| Argument::Long(tensor.dims().last().copied().unwrap_or(0) as u64);
        let ([q, k, v], cap) = (self.inputs.map(stride), shape.soft_cap.unwrap_or(0.0));
        let (AttentionShape { heads, head_dim, scale, .. }, window) = (*shape, window(shape, self.segments.tokens())?);
        let last = arguments![&plan.places, &plan.spans, q, k, v, heads, shape.group(), head_dim, scale, cap, window];
        let blocks = (plan.count, extent(tiles.heads)?, tiles.parts);
        let grid = Grid::cube(blocks, tiles.threads, extent(tiles.shared)?);
        self.device.launch(kernel, self.build, grid, &[first, &last].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::heads_of_block;

    #[test]
    fn a_block_sums_as_many_heads_as_leave_every_multiprocessor_its_blocks() {
        // 8 rows of 2,048 tokens on an H200: 8B has 256 tiles and 8 key-value heads, 0.5B has 2 of these and groups of
        // 7.
        assert_eq!(heads_of_block(4, 256 * 8, 132), 4);
        assert_eq!(heads_of_block(7, 256 * 2, 132), 3);
        assert_eq!(heads_of_block(4, 64 * 8, 132), 1);
        assert_eq!(heads_of_block(4, 176 * 2, 132), 1);
        assert_eq!(heads_of_block(6, 352, 132), 2);
        assert_eq!(heads_of_block(1, 1, 132), 1);
    }
}
