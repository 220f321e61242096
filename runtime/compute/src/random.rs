//! Random numbers by name and position: the same seed, name and position give the same number on any machine.
//!
//! A stream is a ChaCha12 key stream; its key is a digest of the seed and the name, so that streams are independent
//! of one another and of the order in which they are opened. A position counts 32-bit words and can be stored.

use std::f64::consts::TAU;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// A seekable sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    words: ChaCha12Rng,
}

impl Stream {
    /// Creates the stream of this seed and name, at position 0. Its key is the SHA-256 of `tunebox stream`, a zero
    /// byte, the seed (8 bytes, little-endian) and the name.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"tunebox stream\0");
        digest.update(seed.to_le_bytes());
        digest.update(name.as_bytes());
        Self { words: ChaCha12Rng::from_seed(digest.finalize().into()) }
    }

    /// Creates the stream of this seed and name, at a position that [`position`](Self::position) returned: as if
    /// `position` words of 32 bits had been drawn.
    #[must_use]
    pub fn at(seed: u64, name: &str, position: u64) -> Self {
        let mut stream = Self::new(seed, name);
        stream.words.set_word_pos(u128::from(position));
        stream
    }

    /// The ChaCha12 key of the stream, with which a kernel computes the stream's words on a device: words 16·n … 16·n +
    /// 15 are block n, with a nonce of 0. Draws nothing.
    #[must_use]
    pub fn key(&self) -> [u32; 8] {
        let bytes = self.words.get_seed();
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * word + byte])))
    }

    /// The number of 32-bit words drawn so far, modulo 2⁶⁴.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.words.get_word_pos() as u64
    }

    /// Draws the next 32-bit word.
    pub fn next_u32(&mut self) -> u32 {
        self.words.next_u32()
    }

    /// Draws two 32-bit words, the low one first.
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// Draws a number in [0, 1), a multiple of 2⁻²⁴, all equally likely. Takes one word.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }

    /// Draws `count` numbers by [`uniform`](Self::uniform), in [0, 1), one word each.
    pub fn uniforms(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.uniform()).collect()
    }

    /// Draws a standard normal number (Box & Muller 1958, the cosine of the pair), computed in f64. Always takes two
    /// words, the first for the radius and the second for the angle, so that positions can be computed.
    pub fn normal(&mut self) -> f32 {
        let step = f64::from(u32::MAX) + 1.0;
        let radius = (-2.0 * ((f64::from(self.next_u32()) + 0.5) / step).ln()).sqrt();
        let angle = TAU * f64::from(self.next_u32()) / step;
        (radius * angle.cos()) as f32
    }

    /// Draws `count` standard normal numbers, two words each.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }

    /// Draws a whole number in 0 … `count` − 1, all equally likely; returns 0 and draws nothing for a count of 0. Takes
    /// two words, rarely more.
    ///
    /// Returns the high half of a random 64-bit word times the count, and draws another word where the low half would
    /// favor some numbers (Lemire 2019).
    pub fn below(&mut self, count: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let unfair = count.wrapping_neg() % count;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(count);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// Draws 0 … `count` − 1 in random order (Fisher & Yates): for each index from the last down to 1, swaps its number
    /// with that of a random index up to it. Takes two words, rarely more, for each of these indices.
    pub fn permutation(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).map(|index| index as u32).collect();
        for last in (1..count).rev() {
            let other = self.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_taken_up_at_its_position_goes_on_as_if_never_left() {
        let mut stream = Stream::new(3, "dropout");
        stream.normals(5);
        stream.below(10);
        let mut later = Stream::at(3, "dropout", stream.position());
        assert_eq!(stream.uniforms(40), later.uniforms(40));
    }

    /// ChaCha12 by its definition (Bernstein 2008), as kernels have it.
    fn block(key: [u32; 8], number: u64) -> [u32; 16] {
        let mut start = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        start[4..12].copy_from_slice(&key);
        (start[12], start[13]) = (number as u32, (number >> 32) as u32);
        let mut words: [u32; 16] = start;
        let mut quarter = |[a, b, c, d]: [usize; 4]| {
            for (to, from, into, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
                words[to] = words[to].wrapping_add(words[from]);
                words[into] = (words[into] ^ words[to]).rotate_left(by);
            }
        };
        for _ in 0..6 {
            (0..4).for_each(|at| quarter([at, at + 4, at + 8, at + 12]));
            (0..4).for_each(|at| quarter([at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4]));
        }
        std::array::from_fn(|word| words[word].wrapping_add(start[word]))
    }

    #[test]
    fn the_key_of_a_stream_makes_its_words() {
        let mut stream = Stream::new(3, "dropout");
        let key = stream.key();
        for number in 0..3 {
            assert_eq!(block(key, number), std::array::from_fn::<u32, 16, _>(|_| stream.next_u32()));
        }
    }

    #[test]
    fn names_and_seeds_make_different_streams() {
        let first = |seed, name: &str| Stream::new(seed, name).next_u64();
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_eq!(first(1, "a"), first(1, "a"));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let numbers = Stream::new(0, "moments").normals(40_000);
        let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / 40_000.0;
        let square = numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 40_000.0;
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
    }

    #[test]
    fn every_number_below_a_bound_comes_up_about_equally_often() {
        let mut stream = Stream::new(0, "dice");
        let mut counts = [0u32; 6];
        (0..6000).for_each(|_| counts[stream.below(6) as usize] += 1);
        assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_permutation_holds_every_index_once_and_is_not_the_order_of_counting() {
        let mut order = Stream::new(0, "order").permutation(100);
        assert_ne!(order, (0..100).collect::<Vec<u32>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<u32>>());
    }
}
