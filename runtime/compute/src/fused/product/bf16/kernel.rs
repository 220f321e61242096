//! One block of a product, whose sums are kept in registers while the depth is walked.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the processor's instruction takes vectors, which are made from plain numbers")
)]

use std::ops::Range;
use std::sync::LazyLock;

use half::bf16;

use super::amx::{self, TileRegisters};
use super::{DEPTH_UNIT, widen};
use crate::fused::prefetch::prefetch;
use crate::fused::product::Tile;
use crate::fused::simd::vectorize;

/// The most columns of a block, those of a panel.
pub(super) const COLUMNS: usize = 32;
/// The most rows of a block.
pub(super) const MOST_ROWS: usize = 32;
/// Numbers of a vector of AVX-512.
const LANES: usize = 16;

/// Sums of one block of a result; rows past those of the block are not used.
pub(super) type Sums = [[f32; COLUMNS]; MOST_ROWS];

/// Numbers of the `count` rows of the left operand that a block has. The rows start `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) numbers: &'a [bf16],
    pub(super) stride: usize,
    pub(super) count: usize,
}

/// Where the products of a block go: the numbers of `tile`, which has at most as many rows and columns as the block,
/// are overwritten by `factor` times the products, or these are added to them if `accumulate`. Products outside the
/// tile are dropped.
pub(super) struct Target<'a> {
    pub(super) tile: Tile<'a>,
    pub(super) accumulate: bool,
    pub(super) factor: f32,
}

impl Target<'_> {
    /// Stores the sums of a block.
    fn store(mut self, sums: &Sums) {
        for (row, sums) in (0..self.tile.rows()).zip(sums) {
            let (pairs, factor) = (self.tile.row(row).iter_mut().zip(sums), self.factor);
            if self.accumulate {
                vectorize!(pairs.for_each(|(number, sum)| *number = sum.mul_add(factor, *number)));
            } else {
                vectorize!(pairs.for_each(|(number, sum)| *number = sum * factor));
            }
        }
    }
}

/// How the sums of a block are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// `tdpbf16ps` of x86 processors (AMX): for each 32 numbers, one sum over the numbers of even index and one over
    /// those of odd index, which are added to each other and then to the block's sum.
    Tiles,
    /// `vdpbf16ps` of x86 processors (AVX-512 BF16): pair by pair, the later product of a pair first.
    Vectors,
    /// In f32 instructions, in the order of [`Kernel::Vectors`]. The bits are the same, except that `vdpbf16ps` takes
    /// numbers below 1.2e-38 for 0.
    Portable,
}

impl Kernel {
    /// The fastest kernel of this processor: tiles, else vectors, else the portable one. The first call finds it, and
    /// asks the system for the tile registers.
    pub(super) fn of_this_processor() -> Self {
        static KERNEL: LazyLock<Kernel> = LazyLock::new(|| match () {
            () if amx::request_tile_registers() => Kernel::Tiles,
            () if has_vectors() => Kernel::Vectors,
            () => Kernel::Portable,
        });
        *KERNEL
    }

    /// Whether this processor multiplies bf16 by this kernel faster than f32: with tiles always, with vectors on AMD's
    /// processors, and never with the portable kernel. Intel's start `vdpbf16ps` in every other cycle and two f32
    /// products in each: on a core of family 6 model 207, 86 GFLOP/s of bf16 and 173 of f32.
    pub(super) fn is_faster_than_f32(self) -> bool {
        match self {
            Self::Tiles => true,
            Self::Vectors => is_amd(),
            Self::Portable => false,
        }
    }

    /// The numbers of rows that a block can have, the largest first, in a product of `columns` columns. Vectors keep
    /// the sums of 28 · 16 or 14 · 32 numbers in 28 of their 32 registers.
    fn heights(self, columns: usize) -> &'static [usize] {
        match self {
            Self::Tiles => &[MOST_ROWS],
            Self::Vectors if columns <= LANES => &[28, 8],
            Self::Vectors | Self::Portable => &[14, 8, 4],
        }
    }

    /// Cuts `rows` rows of a product of `columns` columns into blocks. Returns the rows that each block covers, and the
    /// number of rows that the kernel reads for it, which is larger for a block at the end.
    pub(super) fn blocks(self, rows: usize, columns: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let (heights, mut start) = (self.heights(columns), 0);
        std::iter::from_fn(move || {
            let left = rows.checked_sub(start).filter(|left| *left > 0)?;
            let height = heights.iter().copied().find(|height| *height <= left + 1).or(heights.last().copied())?;
            let block = start..start + height.min(left);
            start = block.end;
            Some((block, height))
        })
    }

    /// The number of a row's numbers that the kernel reads at a time: [`DEPTH_UNIT`] with tiles, else 2. A row whose
    /// depth is no multiple of that must be followed by zeros.
    pub(super) fn depth_unit(self) -> usize {
        if self == Self::Tiles { DEPTH_UNIT } else { 2 }
    }

    /// Prepares the calling thread for [`multiply`](Self::multiply), until the result is dropped: configures the tile
    /// registers. Returns `None` and does nothing for the other kernels.
    pub(super) fn prepare(self) -> Option<TileRegisters> {
        (self == Self::Tiles).then(TileRegisters::configure)
    }

    /// Multiplies one block: as many rows as [`blocks`](Self::blocks) said with the columns of a panel, 2 · `pairs`
    /// numbers deep. A panel has [`COLUMNS`] `u32` of two bf16 numbers for each pair. The caller holds the result of
    /// [`prepare`](Self::prepare). Panics if the rows or the panel are too short.
    pub(super) fn multiply(self, rows: Rows<'_>, panel: &[u32], pairs: usize, mut target: Target<'_>) {
        let numbers = (2 * pairs).next_multiple_of(self.depth_unit());
        assert!((rows.count - 1) * rows.stride + numbers <= rows.numbers.len(), "numbers of a block's rows");
        // What is added to is often not in the cache any more.
        (0..target.tile.rows()).for_each(|row| prefetch(bytemuck::cast_slice(target.tile.row(row))));
        #[cfg(target_arch = "x86_64")]
        if self == Self::Vectors {
            // SAFETY: the processor has AVX-512 F and BF16, and `count` rows have been checked.
            return unsafe {
                match (rows.count, target.tile.columns() <= LANES) {
                    (28, _) => multiply_by_vectors::<28, 1>(rows, panel, pairs, target),
                    (8, true) => multiply_by_vectors::<8, 1>(rows, panel, pairs, target),
                    (14, _) => multiply_by_vectors::<14, 2>(rows, panel, pairs, target),
                    (8, false) => multiply_by_vectors::<8, 2>(rows, panel, pairs, target),
                    (4, _) => multiply_by_vectors::<4, 2>(rows, panel, pairs, target),
                    (count, _) => unreachable!("a block of {count} rows"),
                }
            };
        }
        let mut sums = [[0.0; COLUMNS]; MOST_ROWS];
        match self {
            Self::Tiles => amx::sum(rows, panel, numbers / DEPTH_UNIT, &mut sums),
            _ => vectorize!(portable(rows, panel, pairs, &mut sums)),
        }
        target.store(&sums);
    }
}

/// Whether the CPU has AVX-512 with products of bf16.
pub(super) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Whether AMD made the CPU.
fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::x86_64::__cpuid(0).ebx == u32::from_le_bytes(*b"Auth");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Multiplies `ROWS` rows with the first `VECTORS` · [`LANES`] columns of a panel, `pairs` pairs of numbers deep, by
/// `vdpbf16ps`. Panics if the panel is too short.
///
/// # Safety
/// The processor must have AVX-512 F and BF16, and `ROWS` rows 2 · `pairs` numbers each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn multiply_by_vectors<const ROWS: usize, const VECTORS: usize>(
    rows: Rows<'_>,
    panel: &[u32],
    pairs: usize,
    mut target: Target<'_>,
) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps,
        _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    };
    const { assert!(VECTORS * LANES <= COLUMNS) };
    let start = rows.numbers.as_ptr();
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    for (pair, columns) in panel[..pairs * COLUMNS].as_chunks::<COLUMNS>().0.iter().enumerate() {
        // SAFETY: the pairs of a panel are two vectors, and every pattern of bits is 32 numbers in bf16.
        let columns: [__m512bh; VECTORS] = std::array::from_fn(|vector| unsafe {
            std::mem::transmute(_mm512_loadu_si512(columns.as_ptr().cast::<__m512i>().add(vector)))
        });
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `pair` is below `pairs`, so both numbers are in their row; the bits are as above.
            let number: __m512bh = unsafe {
                let pair = start.add(row * rows.stride + 2 * pair).cast::<i32>();
                std::mem::transmute(_mm512_set1_epi32(pair.read_unaligned()))
            };
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = _mm512_dpbf16_ps(*sum, number, columns);
            }
        }
    }
    let factor = _mm512_set1_ps(target.factor);
    for (row, sums) in (0..target.tile.rows()).zip(sums) {
        for (numbers, sum) in target.tile.row(row).chunks_mut(LANES).zip(sums) {
            let (mask, start) = (u16::MAX >> (LANES - numbers.len()), numbers.as_mut_ptr());
            // SAFETY: the mask leaves out the lanes past the numbers.
            unsafe {
                let result = match target.accumulate {
                    true => _mm512_fmadd_ps(sum, factor, _mm512_maskz_loadu_ps(mask, start)),
                    false => _mm512_mul_ps(sum, factor),
                };
                _mm512_mask_storeu_ps(start, mask, result);
            }
        }
    }
}

/// Overwrites the first rows of `sums`, as many as `rows` has, by the products of these rows with a panel, `pairs`
/// pairs of numbers deep, in f32 instructions: for each pair adds the product of the second number, then that of the
/// first. Panics if a row is too short.
#[inline(always)]
pub(super) fn portable(rows: Rows<'_>, panel: &[u32], pairs: usize, sums: &mut Sums) {
    for (row, sums) in sums[..rows.count].iter_mut().enumerate() {
        let row = rows.numbers[row * rows.stride..][..2 * pairs].as_chunks::<2>().0;
        let mut here = [0f32; COLUMNS];
        for (pair, columns) in row.iter().zip(panel.as_chunks::<COLUMNS>().0) {
            let [first, second] = pair.map(widen);
            for (sum, column) in here.iter_mut().zip(columns) {
                let [above, below] = [f32::from_bits(column << 16), f32::from_bits(column & 0xffff_0000)];
                *sum = first.mul_add(above, second.mul_add(below, *sum));
            }
        }
        *sums = here;
    }
}
