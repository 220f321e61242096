//! The sums of one block of a product, kept in registers while the depth is walked.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the processor's instruction takes vectors, which are made from plain numbers")
)]

use std::sync::LazyLock;

use half::bf16;

use super::amx::{self, TileRegisters};
use super::{DEPTH_UNIT, widen};
use crate::fused::simd::vectorize;

/// Columns of a block.
pub(super) const COLUMNS: usize = 32;
/// Rows of a block whose sums fill 28 of 32 vector registers.
const VECTOR_ROWS: usize = 14;
/// The most rows that a block has.
pub(super) const MOST_ROWS: usize = 32;

/// Sums of one block of a result; rows past those of the kernel are not used.
pub(super) type Sums = [[f32; COLUMNS]; MOST_ROWS];

/// Numbers of a block's rows of the left operand. The rows start `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) numbers: &'a [bf16],
    pub(super) stride: usize,
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

    /// The rows of a block: [`MOST_ROWS`] with tiles, else [`VECTOR_ROWS`].
    pub(super) fn rows(self) -> usize {
        if self == Self::Tiles { MOST_ROWS } else { VECTOR_ROWS }
    }

    /// The number of a row's numbers that the kernel reads at a time: [`DEPTH_UNIT`] with tiles, else 2. A row whose
    /// depth is no multiple of that must be followed by zeros.
    pub(super) fn depth_unit(self) -> usize {
        if self == Self::Tiles { DEPTH_UNIT } else { 2 }
    }

    /// Prepares the calling thread for [`sum`](Self::sum), until the result is dropped: configures the tile registers.
    /// Returns `None` and does nothing for the other kernels.
    pub(super) fn prepare(self) -> Option<TileRegisters> {
        (self == Self::Tiles).then(TileRegisters::configure)
    }

    /// Overwrites `sums` by the products of a block: of [`rows`](Self::rows) rows with the [`COLUMNS`] columns of a
    /// panel, 2 · `pairs` numbers deep. A panel has a `u32` of two bf16 numbers for each pair and column. The caller
    /// holds the result of [`prepare`](Self::prepare). Panics if the rows are too short.
    pub(super) fn sum(self, rows: Rows<'_>, panel: &[u32], pairs: usize, sums: &mut Sums) {
        let numbers = (2 * pairs).next_multiple_of(self.depth_unit());
        assert!((self.rows() - 1) * rows.stride + numbers <= rows.numbers.len(), "numbers of a block's rows");
        match self {
            Self::Tiles => amx::sum(rows, panel, numbers / DEPTH_UNIT, sums),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX-512 F and BF16, and the rows have been checked.
            Self::Vectors => unsafe { sum_by_vectors(rows, panel, pairs, sums) },
            _ => vectorize!(portable(rows, panel, pairs, sums)),
        }
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

/// Overwrites the first [`VECTOR_ROWS`] rows of `to` by the products of as many rows with a panel, `pairs` pairs of
/// numbers deep, by `vdpbf16ps`. Panics if the panel is too short.
///
/// # Safety
/// The processor must have AVX-512 F and BF16, and [`VECTOR_ROWS`] rows 2 · `pairs` numbers each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn sum_by_vectors(rows: Rows<'_>, panel: &[u32], pairs: usize, to: &mut Sums) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    };
    let start = rows.numbers.as_ptr();
    let mut sums = [[_mm512_setzero_ps(); 2]; VECTOR_ROWS];
    for (pair, columns) in panel[..pairs * COLUMNS].as_chunks::<COLUMNS>().0.iter().enumerate() {
        // SAFETY: 32 pairs are two vectors, and every pattern of bits is 32 numbers in bf16.
        let columns: [__m512bh; 2] = unsafe {
            let start = columns.as_ptr().cast::<__m512i>();
            [0, 1].map(|half| std::mem::transmute(_mm512_loadu_si512(start.add(half))))
        };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `pair` is below `pairs`, so both numbers are in their row; the bits are as above.
            let number: __m512bh = unsafe {
                let pair = start.add(row * rows.stride + 2 * pair).cast::<i32>();
                std::mem::transmute(_mm512_set1_epi32(pair.read_unaligned()))
            };
            *sums = [_mm512_dpbf16_ps(sums[0], number, columns[0]), _mm512_dpbf16_ps(sums[1], number, columns[1])];
        }
    }
    // SAFETY: two vectors of 16 numbers are 32 numbers.
    let sums: [[f32; COLUMNS]; VECTOR_ROWS] = unsafe { std::mem::transmute(sums) };
    to[..VECTOR_ROWS].copy_from_slice(&sums);
}

/// Overwrites the first [`VECTOR_ROWS`] rows of `sums` by the products of as many rows with a panel, `pairs` pairs of
/// numbers deep, in f32 instructions: for each pair adds the product of the second number, then that of the first.
/// Panics if a row is too short.
#[inline(always)]
pub(super) fn portable(rows: Rows<'_>, panel: &[u32], pairs: usize, sums: &mut Sums) {
    for (row, sums) in sums[..VECTOR_ROWS].iter_mut().enumerate() {
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
