//! How the numbers of one block lie in each format.

use super::Block;

/// A number of 16 bits by arithmetic alone, so that a loop around it stays a vector loop.
#[inline(always)]
pub(super) fn half(low: u8, high: u8) -> f32 {
    let bits = i32::from(i16::from_le_bytes([low, high]));
    if bits & 0x7c00 == 0x7c00 {
        return not_finite(bits);
    }
    // 2^112 moves the exponent from the bias of f16 to that of f32, exactly, numbers below the normal ones included.
    f32::from_bits((bits << 13) as u32 & 0x8fff_e000) * f32::from_bits(0x7780_0000)
}

/// Infinity, or not a number: only in a broken file.
#[cold]
fn not_finite(bits: i32) -> f32 {
    f32::from_bits((bits << 13) as u32 & 0x8fff_e000 | 0x7f80_0000)
}

/// A little-endian word of 32 bits.
#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// 32 numbers in bf16.
pub(super) struct Brain;

impl Block<64, 32> for Brain {
    #[inline(always)]
    fn read(block: &[u8; 64], numbers: &mut [f32; 32]) {
        let pairs = block.as_chunks::<2>().0;
        for at in 0..32 {
            numbers[at] = f32::from_bits(u32::from(u16::from_le_bytes(pairs[at])) << 16);
        }
    }
}

pub(super) struct Q4Zero;

impl Block<18, 32> for Q4Zero {
    #[inline(always)]
    fn read(block: &[u8; 18], numbers: &mut [f32; 32]) {
        let scale = half(block[0], block[1]);
        let bytes = &block[2..];
        let (low, high) = numbers.split_at_mut(16);
        for at in 0..16 {
            low[at] = (i32::from(bytes[at] & 15) - 8) as f32 * scale;
        }
        for at in 0..16 {
            high[at] = (i32::from(bytes[at] >> 4) - 8) as f32 * scale;
        }
    }
}

pub(super) struct Q4One;

impl Block<20, 32> for Q4One {
    #[inline(always)]
    fn read(block: &[u8; 20], numbers: &mut [f32; 32]) {
        let (scale, least) = (half(block[0], block[1]), half(block[2], block[3]));
        let (low, high) = numbers.split_at_mut(16);
        for at in 0..16 {
            let pair = i32::from(block[4 + at]);
            low[at] = (pair & 15) as f32 * scale + least;
            high[at] = (pair >> 4) as f32 * scale + least;
        }
    }
}

pub(super) struct Q5Zero;

impl Block<22, 32> for Q5Zero {
    #[inline(always)]
    fn read(block: &[u8; 22], numbers: &mut [f32; 32]) {
        let (scale, fifth) = (half(block[0], block[1]), word(block, 2));
        let (low, high) = numbers.split_at_mut(16);
        for at in 0..16 {
            let pair = i32::from(block[6 + at]);
            // Less 16, unless the fifth bit adds them.
            let first = if fifth & (1 << at) == 0 { 16 } else { 0 };
            let second = if fifth & (1 << (at + 16)) == 0 { 16 } else { 0 };
            low[at] = ((pair & 15) - first) as f32 * scale;
            high[at] = ((pair >> 4) - second) as f32 * scale;
        }
    }
}

pub(super) struct Q5One;

impl Block<24, 32> for Q5One {
    #[inline(always)]
    fn read(block: &[u8; 24], numbers: &mut [f32; 32]) {
        let (scale, least, fifth) = (half(block[0], block[1]), half(block[2], block[3]), word(block, 4));
        let (low, high) = numbers.split_at_mut(16);
        for at in 0..16 {
            let (pair, first, second) = (i32::from(block[8 + at]), fifth >> at & 1, fifth >> (at + 16) & 1);
            low[at] = (pair & 15 | (first << 4) as i32) as f32 * scale + least;
            high[at] = (pair >> 4 | (second << 4) as i32) as f32 * scale + least;
        }
    }
}

pub(super) struct Q8Zero;

impl Block<34, 32> for Q8Zero {
    #[inline(always)]
    fn read(block: &[u8; 34], numbers: &mut [f32; 32]) {
        let scale = half(block[0], block[1]);
        for at in 0..32 {
            numbers[at] = f32::from(block[2 + at] as i8) * scale;
        }
    }
}

/// The scale and minimum of 32 numbers: those of the block times the 6-bit ones, of which twelve bytes hold eight of
/// both.
#[inline(always)]
fn scale_and_least(of_block: (f32, f32), packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, least) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        (packed[part + 4] & 15 | packed[part - 4] >> 6 << 4, packed[part + 4] >> 4 | packed[part] >> 6 << 4)
    };
    (of_block.0 * f32::from(scale), of_block.1 * f32::from(least))
}

pub(super) struct Q4K;

impl Block<144, 256> for Q4K {
    #[inline(always)]
    fn read(block: &[u8; 144], numbers: &mut [f32; 256]) {
        let scales = (half(block[0], block[1]), half(block[2], block[3]));
        for (pair, numbers) in numbers.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let (low_scale, low_least) = scale_and_least(scales, &block[4..16], 2 * pair);
            let (high_scale, high_least) = scale_and_least(scales, &block[4..16], 2 * pair + 1);
            let bytes = &block[16 + 32 * pair..][..32];
            let (low, high) = numbers.split_at_mut(32);
            for at in 0..32 {
                low[at] = low_scale * f32::from(bytes[at] & 15) - low_least;
                high[at] = high_scale * f32::from(bytes[at] >> 4) - high_least;
            }
        }
    }
}

pub(super) struct Q5K;

impl Block<176, 256> for Q5K {
    #[inline(always)]
    fn read(block: &[u8; 176], numbers: &mut [f32; 256]) {
        let scales = (half(block[0], block[1]), half(block[2], block[3]));
        let fifth = &block[16..48];
        for (pair, numbers) in numbers.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let (low_scale, low_least) = scale_and_least(scales, &block[4..16], 2 * pair);
            let (high_scale, high_least) = scale_and_least(scales, &block[4..16], 2 * pair + 1);
            let bytes = &block[48 + 32 * pair..][..32];
            let (low, high) = numbers.split_at_mut(32);
            for at in 0..32 {
                let (one, other) = (fifth[at] >> (2 * pair) & 1, fifth[at] >> (2 * pair + 1) & 1);
                low[at] = low_scale * f32::from(bytes[at] & 15 | one << 4) - low_least;
                high[at] = high_scale * f32::from(bytes[at] >> 4 | other << 4) - high_least;
            }
        }
    }
}

pub(super) struct Q6K;

impl Block<210, 256> for Q6K {
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
                        let number = i32::from(bytes[at] >> shift & 15 | (high[at] >> (2 * quarter) & 3) << 4) - 32;
                        numbers[at] = small * number as f32;
                    }
                }
            }
        }
    }
}
