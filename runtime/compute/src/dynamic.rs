//! The dynamic data type of 8 bits (arXiv:1511.04561), as bitsandbytes uses it: ever finer steps towards 0.

/// The 256 values for numbers from −1 to 1: for each exponent from 10⁻⁶ to 1 twice as many steps as for the one below,
/// with both signs, then 0 and 1.
pub(crate) static SIGNED: [f32; 256] = dynamic_values(true);

/// The 256 values for numbers from 0 to 1: twice as many steps for each exponent as [`SIGNED`] has, then 0 and 1.
pub(crate) static UNSIGNED: [f32; 256] = dynamic_values(false);

/// Computes the 256 values of [`SIGNED`] or [`UNSIGNED`] in ascending order, as bitsandbytes does: 0, 1, and midpoints
/// of two adjacent boundaries times a power of ten, with both signs if `is_signed`.
const fn dynamic_values(is_signed: bool) -> [f32; 256] {
    let powers = [1e-6_f32, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
    let mut values = [0.0; 256];
    let (mut exponent, mut place) = (0, if is_signed { 128 } else { 1 });
    while exponent < powers.len() {
        let count = if is_signed { 1 << exponent } else { 2 << exponent };
        let mut at = 0;
        while at < count {
            let value = powers[exponent] * ((boundary(at, count) + boundary(at + 1, count)) / 2.0);
            values[place] = value;
            if is_signed {
                values[254 - place] = -value;
            }
            place += 1;
            at += 1;
        }
        exponent += 1;
    }
    values[255] = 1.0;
    values
}

/// Boundary number `at` of the `count + 1` that divide 0.1 … 1 evenly. Computed from the nearer end.
const fn boundary(at: usize, count: usize) -> f32 {
    let step = (1.0 - 0.1_f32) / count as f32;
    if at < count.div_ceil(2) { 0.1 + step * at as f32 } else { 1.0 - step * (count - at) as f32 }
}

/// The index of the value that is nearest to `number`, the lower one of two equally near. `values` ascend.
#[inline]
pub(crate) fn nearest(values: &[f32; 256], number: f32) -> u8 {
    // A search without branches: how many values are below the number, the last one not counted.
    let mut below = 0;
    for half in [128, 64, 32, 16, 8, 4, 2, 1] {
        below += half * usize::from(values[below + half - 1] < number);
    }
    let above = below.max(1);
    let nearer = if number - values[above - 1] <= values[above] - number { above - 1 } else { above };
    // There are 256 values.
    nearer as u8
}
