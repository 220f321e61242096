//! Inputs out of a counter: each number of a seed gives one input, made from the corpus by a few changes.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::Target;
use crate::corpus::words;

/// Numbers that mean something to parsers: ends of ranges, lengths that overflow.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 60,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Makes inputs for a target.
pub struct Mutator<'target> {
    target: &'target Target,
    corpus: Vec<(String, Vec<u8>)>,
    words: Vec<Vec<u8>>,
    seed: u64,
}

impl<'target> Mutator<'target> {
    /// A maker of inputs from a corpus.
    #[must_use]
    pub fn new(target: &'target Target, seed: u64, corpus: Vec<(String, Vec<u8>)>) -> Self {
        Self { target, corpus, words: words(target.name), seed }
    }

    /// Makes inputs from this one as well.
    pub fn keep(&mut self, input: Vec<u8>) {
        self.corpus.push((String::new(), input));
    }

    /// The input of a number.
    #[must_use]
    pub fn input(&self, number: u64) -> Vec<u8> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&number.to_le_bytes());
        let mut dice = Dice(ChaCha8Rng::from_seed(key));
        let mut bytes = match dice.below(16) {
            0 => dice.bytes(256),
            _ => self.pick(&mut dice).to_vec(),
        };
        // Most inputs stay near what is valid, so that they get far.
        for _ in 0..1 + dice.below(8).min(dice.below(8)) {
            self.change(&mut bytes, &mut dice);
        }
        bytes.truncate(self.target.longest);
        bytes
    }

    fn pick(&self, dice: &mut Dice) -> &[u8] {
        match self.corpus.len() {
            0 => &[],
            count => &self.corpus[dice.below(count)].1,
        }
    }

    fn change(&self, bytes: &mut Vec<u8>, dice: &mut Dice) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(10) {
            0 => flip(bytes, at, dice),
            1 => bytes.truncate(at),
            2 => overwrite(bytes, at, &dice.bytes(8)),
            3 => {
                let wide = EDGES[dice.below(EDGES.len())].to_le_bytes();
                overwrite(bytes, at, &wide[..1 << dice.below(4)]);
            }
            4 | 5 if !self.words.is_empty() => {
                let word = &self.words[dice.below(self.words.len())];
                let end = (at + dice.below(2) * word.len()).min(bytes.len());
                bytes.splice(at..end, word.iter().copied());
            }
            6 => {
                // A piece of the input again, somewhere else, once or often.
                let piece = bytes[at..(at + 1 + dice.below(64)).min(bytes.len())].to_vec();
                let to = dice.below(bytes.len() + 1);
                let often = if dice.below(8) == 0 { 1 + dice.below(200) } else { 1 };
                bytes.splice(to..to, piece.repeat(often));
            }
            7 => {
                let other = self.pick(dice);
                let from = dice.below(other.len() + 1);
                let piece = other[from..(from + dice.below(128)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            8 => {
                let end = (at + 1 + dice.below(32)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => digits(bytes, at, dice),
        }
    }
}

fn flip(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << dice.below(8);
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..].iter_mut().zip(with).for_each(|(byte, new)| *byte = *new);
}

/// Puts a number in the place of the next one written in digits.
fn digits(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else { return };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = EDGES[dice.below(EDGES.len())].to_string();
    bytes.splice(start..start + length, number.into_bytes());
}

/// Chance for one input.
struct Dice(ChaCha8Rng);

impl Dice {
    /// A number below `count`, 0 if that is 0.
    fn below(&mut self, count: usize) -> usize {
        if count == 0 { 0 } else { self.0.next_u32() as usize % count }
    }

    /// Up to `most` bytes.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.below(most + 1)];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
