//! The numbers of which the weights of tiny models are made, here as in `golden/families.py`.

use tunebox_compute::{Device, Tensor};

/// The weight of this name: around 1 if it is a norm's, unless 1 is added to those.
pub(crate) fn weight(name: &str, shape: &[usize], unit_offset: bool) -> Tensor {
    let base = if name.to_lowercase().ends_with("norm.weight") && !unit_offset { 1.0 } else { 0.0 };
    let values: Vec<f32> = noise(name, shape.iter().product()).into_iter().map(|value| base + 0.25 * value).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// `count` numbers in [-1, 1): FNV-1a of the name, then splitmix64 from there, the upper 24 bits of each.
pub(crate) fn noise(name: &str, count: usize) -> Vec<f32> {
    let seed = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    let one = |at: usize| {
        let mut z = seed.wrapping_add((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(one).collect()
}
