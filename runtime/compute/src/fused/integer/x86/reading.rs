//! Reads bytes of 16 rows into lanes, and extracts bits from them.

use super::lanes::{Lanes, ROWS};

/// The blocks of each row.
pub(super) type Rows<'a, const SIZE: usize> = [&'a [[u8; SIZE]]; ROWS];

/// Joins the words of two runs of 16 bytes into one list.
#[inline(always)]
pub(super) fn join<W>(first: [W; 4], second: [W; 4]) -> [W; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (first, second);
    [a, b, c, d, e, f, g, h]
}

/// Keeps the lower four bits of every byte.
#[inline(always)]
pub(super) fn low<L: Lanes, const N: usize>(lanes: L, mut words: [L::Words; N]) -> [L::Words; N] {
    let mask = lanes.splat(0x0f0f_0f0f);
    for word in &mut words {
        *word = lanes.and(*word, mask);
    }
    words
}

/// Moves the upper four bits of every byte to its lower half and clears the rest.
#[inline(always)]
pub(super) fn high<L: Lanes, const N: usize>(lanes: L, mut words: [L::Words; N]) -> [L::Words; N] {
    for word in &mut words {
        *word = lanes.shift_right(*word, 4);
    }
    low(lanes, words)
}

/// Sets the bits of each code above its lower four: to those of the byte with the code's index in `bytes`, shifted
/// right by `place`, 0 to 7, and masked by `mask` (1 or 3; the bits are all in one byte).
#[inline(always)]
pub(super) fn with_bits<L: Lanes>(
    lanes: L,
    mut words: [L::Words; 8],
    bytes: [L::Words; 8],
    place: usize,
    mask: i32,
) -> [L::Words; 8] {
    let mask = lanes.splat(0x1010_1010 * mask);
    for (word, bytes) in words.iter_mut().zip(bytes) {
        // Straight to where they belong; what comes from the bytes beside it is masked.
        let bits = if place < 4 { lanes.shift_left(bytes, 4 - place) } else { lanes.shift_right(bytes, place - 4) };
        *word = lanes.or(*word, lanes.and(bits, mask));
    }
    words
}

/// Reads 16 bytes of block `at` of every row, from byte `from` on: four words a row.
#[inline(always)]
pub(super) fn words<L: Lanes, const SIZE: usize>(
    lanes: L,
    rows: &Rows<'_, SIZE>,
    at: usize,
    from: usize,
) -> [L::Words; 4] {
    let mut runs = [&[0; 16]; ROWS];
    for row in 0..ROWS {
        runs[row] = run(rows[row], at, from);
    }
    lanes.words(runs)
}

/// Reads 32 bytes of block `at` of every row, from byte `from` on: eight words a row.
#[inline(always)]
pub(super) fn eight_words<L: Lanes, const SIZE: usize>(
    lanes: L,
    rows: &Rows<'_, SIZE>,
    at: usize,
    from: usize,
) -> [L::Words; 8] {
    join(words(lanes, rows, at, from), words(lanes, rows, at, from + 16))
}

/// Reads four bytes of block `at` of every row, from byte `from` on.
#[inline(always)]
pub(super) fn word<L: Lanes, const SIZE: usize>(lanes: L, rows: &Rows<'_, SIZE>, at: usize, from: usize) -> L::Words {
    lanes.word(copy_runs(rows, at, from))
}

/// Reads an f16 number of block `at` of every row, at byte `from`, and converts it to f32.
#[inline(always)]
pub(super) fn halves<L: Lanes, const SIZE: usize>(
    lanes: L,
    rows: &Rows<'_, SIZE>,
    at: usize,
    from: usize,
) -> L::Floats {
    lanes.halves(copy_runs(rows, at, from))
}

/// Copies `N` bytes of block `at` of every row, from byte `from` on.
#[inline(always)]
fn copy_runs<const SIZE: usize, const N: usize>(rows: &Rows<'_, SIZE>, at: usize, from: usize) -> [[u8; N]; ROWS] {
    let mut runs = [[0; N]; ROWS];
    for row in 0..ROWS {
        runs[row] = *run(rows[row], at, from);
    }
    runs
}

/// Returns `N` bytes of block `at` of a row, from byte `from` on.
#[inline(always)]
fn run<const SIZE: usize, const N: usize>(row: &[[u8; SIZE]], at: usize, from: usize) -> &[u8; N] {
    &row[at][from..from + N].as_chunks().0[0]
}
