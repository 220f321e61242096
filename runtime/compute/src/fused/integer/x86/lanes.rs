//! Vectors with a lane for each of 16 rows of a weight, as the kinds of processors have them.

use pulp::NullaryFnOnce;

use super::numbers::{PART, Planes};

/// Rows of weights that go together, one to a lane.
pub(super) const ROWS: usize = 16;

/// The vector operations that the product needs. A value proves that this processor has the instructions. A *word* is
/// the 32 bits of a lane, often four bytes with a code in each; every operation does the same in each lane.
pub(super) trait Lanes: Copy + Send + Sync {
    /// 32 bits in each of [`ROWS`] lanes.
    type Words: Copy;
    /// A number in f32 in each of [`ROWS`] lanes.
    type Floats: Copy;

    /// Runs work compiled for this processor's instructions.
    fn vectorize<W: NullaryFnOnce>(self, work: W) -> W::Output;

    /// Copies a word to every lane.
    fn splat(self, word: i32) -> Self::Words;
    /// Copies a number to every lane.
    fn splat_float(self, number: f32) -> Self::Floats;

    /// Puts 16 bytes of each row into four words: row i in lane i of each.
    fn words(self, rows: [&[u8; 16]; ROWS]) -> [Self::Words; 4];
    /// Puts four bytes of each row into its lane.
    fn word(self, rows: [[u8; 4]; ROWS]) -> Self::Words;
    /// Converts an f16 number of each row, little-endian, to f32.
    fn halves(self, rows: [[u8; 2]; ROWS]) -> Self::Floats;
    /// Converts the f16 number in the lower 16 bits of each word to f32.
    fn lower_half(self, words: Self::Words) -> Self::Floats;
    /// Returns the numbers, that of lane i at index i.
    fn numbers(self, floats: Self::Floats) -> [f32; ROWS];

    /// The bits that both words have.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// The bits that either word has.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// The bits that only one of the words has.
    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shifts words left by `by` bits, 0 to 31.
    fn shift_left(self, words: Self::Words, by: usize) -> Self::Words;
    /// Shifts words right by `by` bits, 0 to 31; zeros come in.
    fn shift_right(self, words: Self::Words, by: usize) -> Self::Words;
    /// Converts one byte of each word, a signed number, to f32: byte `byte`, 0 to 3 from the lowest on.
    fn signed_byte(self, words: Self::Words, byte: usize) -> Self::Floats;
    /// Adds 16 to each byte of `words` whose bit is set; the bit of byte i is bit 4·`nibble` + i of `bits`.
    fn add_fifth_bits(self, words: Self::Words, bits: Self::Words, nibble: usize) -> Self::Words;

    /// Converts whole numbers to f32.
    fn to_floats(self, words: Self::Words) -> Self::Floats;
    /// The product `a · b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The sum `a · b + c`, rounded once.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// Lays integers of 16 bits, -32512 to 32512, out as [`dot`](Self::dot) reads them: four in a word of each plane.
    fn planes(integers: &[i32; PART]) -> Planes;
    /// Adds to `sums` the dot product of the four codes in each lane with the four integers whose planes hold `word`.
    fn dot(self, sums: [Self::Words; 2], codes: Self::Words, word: [i32; 2]) -> [Self::Words; 2];
    /// Returns the dot products that [`dot`](Self::dot) has added to `sums`, plus the start value of the second sum; the
    /// first one must begin with 0.
    fn total(self, sums: [Self::Words; 2]) -> Self::Words;
}
