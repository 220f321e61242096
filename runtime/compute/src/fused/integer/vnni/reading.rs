//! Reads bytes of 16 rows into vectors with a lane for each row, and extracts bits from them.

use core::arch::x86_64::{__m128i, __m512, __m512i};

use super::instruction::Vnni;

/// Rows of weights that go together, one to a lane.
pub(super) const ROWS: usize = 16;

/// The blocks of each row.
pub(super) type Rows<'a, const SIZE: usize> = [&'a [[u8; SIZE]]; ROWS];

/// Joins the words of two runs of 16 bytes into one list.
#[inline(always)]
pub(super) fn join(first: [__m512i; 4], second: [__m512i; 4]) -> [__m512i; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (first, second);
    [a, b, c, d, e, f, g, h]
}

impl Vnni {
    /// Keeps the lower four bits of every byte.
    #[inline(always)]
    pub(super) fn low<const N: usize>(self, mut words: [__m512i; N]) -> [__m512i; N] {
        let mask = self.avx512f._mm512_set1_epi8(15);
        for word in &mut words {
            *word = self.avx512f._mm512_and_si512(*word, mask);
        }
        words
    }

    /// Moves the upper four bits of every byte to its lower half and clears the rest.
    #[inline(always)]
    pub(super) fn high<const N: usize>(self, mut words: [__m512i; N]) -> [__m512i; N] {
        for word in &mut words {
            *word = self.avx512f._mm512_srli_epi32::<4>(*word);
        }
        self.low(words)
    }

    /// Splits 16 bytes of each row into 32 codes of four bits, one to a byte: the lower halves of all bytes, then the
    /// upper ones.
    #[inline(always)]
    pub(super) fn nibbles(self, words: [__m512i; 4]) -> [__m512i; 8] {
        join(self.low(words), self.high(words))
    }

    /// Adds 16 to each of 32 codes of a row whose bit is set in the row's lane of `bits`, which has a bit for each code
    /// in order.
    #[inline(always)]
    pub(super) fn with_fifth(self, words: [__m512i; 8], bits: __m512i) -> [__m512i; 8] {
        let (f, bw) = (self.avx512f, self.avx512bw);
        let places = [f._mm512_set1_epi32(0x0804_0201), f._mm512_set1_epi32(0x8040_2010_u32 as i32)];
        let (spread, fifth) = (f._mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0), f._mm512_set1_epi8(16));
        let mut whole = words;
        for word in 0..8 {
            // Every byte of a lane gets the byte that holds its bit.
            let from = bw._mm512_add_epi8(spread, f._mm512_set1_epi8(word as i8 / 2));
            let set = bw._mm512_test_epi8_mask(bw._mm512_shuffle_epi8(bits, from), places[word % 2]);
            whole[word] = bw._mm512_mask_add_epi8(words[word], set, words[word], fifth);
        }
        whole
    }

    /// Sets the bits of each code above its lower four: to those of the byte with the code's index in `bytes`, shifted
    /// right by `place` and masked by `mask` (1 or 3).
    #[inline(always)]
    pub(super) fn with_bits(self, words: [__m512i; 8], bytes: [__m512i; 8], place: i32, mask: i8) -> [__m512i; 8] {
        let f = self.avx512f;
        let (place, mask) = (f._mm512_set1_epi32(place), f._mm512_set1_epi8(mask));
        let mut whole = words;
        for at in 0..8 {
            let bits = f._mm512_and_si512(f._mm512_srlv_epi32(bytes[at], place), mask);
            whole[at] = f._mm512_or_si512(words[at], f._mm512_slli_epi32::<4>(bits));
        }
        whole
    }

    /// Reads 16 bytes of block `at` of every row, from byte `from` on: four words a row, with row i in lane i of each
    /// vector.
    #[inline(always)]
    pub(super) fn words<const SIZE: usize>(self, rows: &Rows<'_, SIZE>, at: usize, from: usize) -> [__m512i; 4] {
        let f = self.avx512f;
        // Every fourth row beside each other, so that turning 4 × 4 words inside the quarters leaves row i in lane i.
        let mut fourths = [f._mm512_setzero_si512(); 4];
        for first in 0..4 {
            let joined = f._mm512_castsi128_si512(sixteen_bytes(rows[first], at, from));
            let joined = f._mm512_inserti32x4::<1>(joined, sixteen_bytes(rows[first + 4], at, from));
            let joined = f._mm512_inserti32x4::<2>(joined, sixteen_bytes(rows[first + 8], at, from));
            fourths[first] = f._mm512_inserti32x4::<3>(joined, sixteen_bytes(rows[first + 12], at, from));
        }
        let [a, b, c, d] = fourths;
        let (low, high) = (f._mm512_unpacklo_epi32(a, b), f._mm512_unpackhi_epi32(a, b));
        let (low_next, high_next) = (f._mm512_unpacklo_epi32(c, d), f._mm512_unpackhi_epi32(c, d));
        [
            f._mm512_unpacklo_epi64(low, low_next),
            f._mm512_unpackhi_epi64(low, low_next),
            f._mm512_unpacklo_epi64(high, high_next),
            f._mm512_unpackhi_epi64(high, high_next),
        ]
    }

    /// Reads four bytes of block `at` of every row, from byte `from` on, each row's into its lane.
    #[inline(always)]
    pub(super) fn word<const SIZE: usize>(self, rows: &Rows<'_, SIZE>, at: usize, from: usize) -> __m512i {
        bytemuck::cast(bytes::<SIZE, 4>(rows, at, from))
    }

    /// Reads an f16 number of block `at` of every row, at byte `from`, and converts it to f32.
    #[inline(always)]
    pub(super) fn halves<const SIZE: usize>(self, rows: &Rows<'_, SIZE>, at: usize, from: usize) -> __m512 {
        self.avx512f._mm512_cvtph_ps(bytemuck::cast(bytes::<SIZE, 2>(rows, at, from)))
    }

    /// Converts the f16 numbers in the lower 16 bits of each lane to f32.
    #[inline(always)]
    pub(super) fn widened(self, words: __m512i) -> __m512 {
        self.avx512f._mm512_cvtph_ps(self.avx512f._mm512_cvtepi32_epi16(words))
    }
}

/// Copies `N` bytes of block `at` of every row, from byte `from` on.
#[inline(always)]
fn bytes<const SIZE: usize, const N: usize>(rows: &Rows<'_, SIZE>, at: usize, from: usize) -> [[u8; N]; ROWS] {
    let mut bytes = [[0; N]; ROWS];
    for row in 0..ROWS {
        bytes[row].copy_from_slice(&rows[row][at][from..from + N]);
    }
    bytes
}

/// Copies 16 bytes of block `at` of a row, from byte `from` on, into a vector.
#[inline(always)]
fn sixteen_bytes<const SIZE: usize>(row: &[[u8; SIZE]], at: usize, from: usize) -> __m128i {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&row[at][from..from + 16]);
    bytemuck::cast(bytes)
}
