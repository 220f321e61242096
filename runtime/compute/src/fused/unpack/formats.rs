//! How the numbers of one block lie in each format.

use super::Block;

/// Converts an f16 number, given as its two bytes, to f32 by arithmetic alone, so that a loop around it stays a vector
/// loop.
#[inline(always)]
pub(super) fn half(low: u8, high: u8) -> f32 {
    let bits = i32::from(i16::from_le_bytes([low, high]));
    if bits & 0x7c00 == 0x7c00 {
        return not_finite(bits);
    }
    // 2^112 moves the exponent from the bias of f16 to that of f32, exactly, numbers below the normal ones included.
    f32::from_bits((bits << 13) as u32 & 0x8fff_e000) * f32::from_bits(0x7780_0000)
}

/// Converts the bits of an f16 infinity or NaN to f32. Such numbers occur only in a broken file.
#[cold]
fn not_finite(bits: i32) -> f32 {
    f32::from_bits((bits << 13) as u32 & 0x8fff_e000 | 0x7f80_0000)
}

/// Reads the little-endian 32-bit word at byte `at` of a block.
#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// 32 numbers in bf16.
pub(super) struct Bf16Block;

impl Block<64, 32> for Bf16Block {
    /// Converts 32 numbers of bf16 to f32.
    #[inline(always)]
    fn read(block: &[u8; 64], numbers: &mut [f32; 32]) {
        let pairs = block.as_chunks::<2>().0;
        for at in 0..32 {
            numbers[at] = f32::from_bits(u32::from(u16::from_le_bytes(pairs[at])) << 16);
        }
    }
}

/// 32 numbers of four bits, with a fifth each in a word of their own if `HAS_FIFTH_BIT`: Q4_0 and Q5_0, whose numbers
/// lie around 0, and with the least number beside the scale (`HAS_MINIMUM`) Q4_1 and Q5_1.
pub(in crate::fused) struct Nibbles<const HAS_MINIMUM: bool, const HAS_FIFTH_BIT: bool>;

impl<const HAS_MINIMUM: bool, const HAS_FIFTH_BIT: bool> Nibbles<HAS_MINIMUM, HAS_FIFTH_BIT> {
    /// The code of zero.
    pub(in crate::fused) const ZERO: i32 = if HAS_MINIMUM {
        0
    } else if HAS_FIFTH_BIT {
        16
    } else {
        8
    };
    /// The byte of a block at which the 32-bit word of the fifth bits begins.
    pub(in crate::fused) const BITS: usize = if HAS_MINIMUM { 4 } else { 2 };

    /// Returns the number to add to the lower four bits of a code: 16 if the format has fifth bits and `fifth` is not
    /// 0, less the code of zero.
    #[inline(always)]
    fn code_offset(fifth: u32) -> i32 {
        (if HAS_FIFTH_BIT && fifth != 0 { 16 } else { 0 }) - Self::ZERO
    }
}

impl<const SIZE: usize, const HAS_MINIMUM: bool, const HAS_FIFTH_BIT: bool> Block<SIZE, 32>
    for Nibbles<HAS_MINIMUM, HAS_FIFTH_BIT>
{
    /// Converts a block of Q4_0, Q4_1, Q5_0 or Q5_1 to f32: the lower halves of its last 16 bytes are the first 16
    /// codes, the upper halves the others.
    #[inline(always)]
    fn read(block: &[u8; SIZE], numbers: &mut [f32; 32]) {
        let scale = half(block[0], block[1]);
        // Without a minimum adds −0, which changes no number, not even −0.
        let least = if HAS_MINIMUM { half(block[2], block[3]) } else { -0.0 };
        let fifth = if HAS_FIFTH_BIT { word(block, Self::BITS) } else { 0 };
        let bytes = &block[SIZE - 16..];
        let (low, high) = numbers.split_at_mut(16);
        for at in 0..16 {
            let pair = i32::from(bytes[at]);
            low[at] = ((pair & 15) + Self::code_offset(fifth & (1 << at))) as f32 * scale + least;
            high[at] = ((pair >> 4) + Self::code_offset(fifth & (1 << (at + 16)))) as f32 * scale + least;
        }
    }
}

/// 32 numbers of eight bits (Q8_0): a scale in f16, then a signed byte for each number.
pub(in crate::fused) struct Q8Zero;

impl Block<34, 32> for Q8Zero {
    /// Converts a block of Q8_0 to f32: a signed byte for each number, times the block's scale.
    #[inline(always)]
    fn read(block: &[u8; 34], numbers: &mut [f32; 32]) {
        let scale = half(block[0], block[1]);
        for at in 0..32 {
            numbers[at] = f32::from(block[2 + at] as i8) * scale;
        }
    }
}

/// Returns the scale and the minimum of part `part`, 0 to 7, of 32 numbers each: those of the block (`of_block`, scale
/// and minimum) times those of the part, of 6 bits each. `packed`, twelve bytes, holds the scales and minima of all
/// eight parts.
#[inline(always)]
fn scale_and_least(of_block: (f32, f32), packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, least) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        (packed[part + 4] & 15 | packed[part - 4] >> 6 << 4, packed[part + 4] >> 4 | packed[part] >> 6 << 4)
    };
    (of_block.0 * f32::from(scale), of_block.1 * f32::from(least))
}

/// 256 numbers of four bits, with a scale and a least number of 6 bits for each 32: Q4_K, and with fifth bits in bytes
/// of their own (`HAS_FIFTH_BIT`) Q5_K.
pub(in crate::fused) struct ScaledNibbles<const HAS_FIFTH_BIT: bool>;

impl<const SIZE: usize, const HAS_FIFTH_BIT: bool> Block<SIZE, 256> for ScaledNibbles<HAS_FIFTH_BIT> {
    /// Converts a block of Q4_K or Q5_K to f32: a code of 4 or 5 bits times the scale of its 32 numbers, less their
    /// minimum.
    #[inline(always)]
    fn read(block: &[u8; SIZE], numbers: &mut [f32; 256]) {
        let scales = (half(block[0], block[1]), half(block[2], block[3]));
        let fifth = &block[16..48];
        for (pair, numbers) in numbers.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let (low_scale, low_least) = scale_and_least(scales, &block[4..16], 2 * pair);
            let (high_scale, high_least) = scale_and_least(scales, &block[4..16], 2 * pair + 1);
            let bytes = &block[SIZE - 128 + 32 * pair..][..32];
            let (low, high) = numbers.split_at_mut(32);
            for at in 0..32 {
                // In 32 bits: there is no vector instruction that shifts bytes.
                let (byte, bits) =
                    (i32::from(bytes[at]), if HAS_FIFTH_BIT { i32::from(fifth[at]) >> (2 * pair) } else { 0 });
                low[at] = low_scale * (byte & 15 | (bits & 1) << 4) as f32 - low_least;
                high[at] = high_scale * (byte >> 4 | (bits >> 1 & 1) << 4) as f32 - high_least;
            }
        }
    }
}

/// 256 numbers of six bits (Q6_K): the lower four bits, the upper two, a scale of 8 bits for each 16 numbers, and a
/// scale of the block in f16.
pub(in crate::fused) struct Q6K;

impl Block<210, 256> for Q6K {
    /// Converts a block of Q6_K to f32: a code of 6 bits less 32, times the scale of its 16 numbers.
    #[inline(always)]
    fn read(block: &[u8; 210], numbers: &mut [f32; 256]) {
        let scale = half(block[208], block[209]);
        for (side, numbers) in numbers.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (low, high) = (&block[64 * side..][..64], &block[128 + 32 * side..][..32]);
            for (quarter, numbers) in numbers.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let (bytes, shift) = (&low[32 * (quarter % 2)..][..32], 4 * (quarter as u32 / 2));
                for (part, numbers) in numbers.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let small = scale * f32::from(block[192 + 8 * side + 2 * quarter + part] as i8);
                    let (bytes, high) = (&bytes[16 * part..][..16], &high[16 * part..][..16]);
                    for at in 0..16 {
                        let (low, high) = (i32::from(bytes[at]) >> shift, i32::from(high[at]) >> (2 * quarter));
                        numbers[at] = small * ((low & 15 | (high & 3) << 4) - 32) as f32;
                    }
                }
            }
        }
    }
}
