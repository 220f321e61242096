//! AdamW with moments in 8 bits (Dettmers et al. 2022, arXiv:2110.02861), as bitsandbytes keeps them.
//!
//! 256 numbers of a slot share their largest magnitude in f32; each is a code of one byte for the nearest value of a
//! dynamic data type times that. A step decodes a block to f32, updates it as AdamW does, and encodes it again. Moments
//! of small slots are f32.

use candle_core::DType;
use rayon::prelude::*;

use super::adamw::{AdamWSettings, update_piece};
use super::part::{StateTensor, View};
use crate::dynamic::{SIGNED, UNSIGNED, nearest};
use crate::error::Result;
use crate::parameters::update_together;

/// Numbers that share a scale.
const BLOCK: usize = 256;
/// The moments of a slot with fewer numbers than this are f32, as bitsandbytes has it.
const LEAST: usize = 4096;
/// Blocks that one task updates.
const TASK_BLOCKS: usize = 16;
/// Numbers of one task.
const TASK: usize = TASK_BLOCKS * BLOCK;

impl AdamWSettings {
    /// The state for `count` numbers with moments in 8 bits: codes (a byte a number) and scales (f32, one for each
    /// [`BLOCK`]) of the first and second moments; below [`LEAST`] numbers [`state`](Self::state).
    pub(super) fn state_in_8_bits(count: usize) -> Vec<StateTensor> {
        if count < LEAST {
            return Self::state(count);
        }
        let (codes, scales) = ((DType::U8, count), (DType::F32, count.div_ceil(BLOCK)));
        vec![
            ("first-codes", codes.0, codes.1),
            ("second-codes", codes.0, codes.1),
            ("first-scales", scales.0, scales.1),
            ("second-scales", scales.0, scales.1),
        ]
    }

    /// Updates values and moments, in 8 bits, by one step. The values are updated with the moments before these are
    /// rounded to 8 bits. Moments of a small slot, in f32, are not rounded. The gradients stay as they are.
    pub(super) fn update_in_8_bits(&self, view: &View<'_>) -> Result<()> {
        let [first_codes, second_codes, first_scales, second_scales] = view.state.as_slice() else {
            return self.update(view);
        };
        let constants = self.constants(view.step, view.rate);
        let mut result = Ok(());
        update_together([first_codes, second_codes], |[first_codes, second_codes]: [&mut [u8]; 2]| {
            let floats = [&view.values, &view.gradients, first_scales, second_scales];
            result = update_together(floats, |[values, gradients, first_scales, second_scales]| {
                let numbers = (values.par_chunks_mut(TASK), gradients.par_chunks(TASK));
                let codes = (first_codes.par_chunks_mut(TASK), second_codes.par_chunks_mut(TASK));
                let scales = (first_scales.par_chunks_mut(TASK_BLOCKS), second_scales.par_chunks_mut(TASK_BLOCKS));
                let tasks = (numbers, codes, scales).into_par_iter();
                tasks.for_each(|((values, gradients), codes, scales)| {
                    update_blocks(&constants, values, gradients, codes, scales);
                });
            });
        })?;
        result
    }
}

/// Updates the values and moments of blocks of [`BLOCK`] numbers, the last of which may be shorter, by one step.
/// `constants` are those of [`AdamWSettings::constants`]. `codes` and `scales` are (of the first, of the second
/// moments).
fn update_blocks(
    constants: &[f32; 8],
    values: &mut [f32],
    gradients: &[f32],
    codes: (&mut [u8], &mut [u8]),
    scales: (&mut [f32], &mut [f32]),
) {
    let (mut first, mut second) = ([0.0; BLOCK], [0.0; BLOCK]);
    let numbers = values.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK));
    let codes = codes.0.chunks_mut(BLOCK).zip(codes.1.chunks_mut(BLOCK));
    let scales = scales.0.iter_mut().zip(scales.1);
    for (((values, gradients), (first_codes, second_codes)), (first_scale, second_scale)) in
        numbers.zip(codes).zip(scales)
    {
        let (first, second) = (&mut first[..values.len()], &mut second[..values.len()]);
        decode(&SIGNED, first_codes, *first_scale, first);
        decode(&UNSIGNED, second_codes, *second_scale, second);
        update_piece(constants, values, gradients, [first, second]);
        *first_scale = encode(&SIGNED, first, first_codes);
        *second_scale = encode(&UNSIGNED, second, second_codes);
    }
}

/// Writes `values[code] · scale` for each code into `numbers`.
fn decode(values: &[f32; 256], codes: &[u8], scale: f32, numbers: &mut [f32]) {
    for (number, code) in numbers.iter_mut().zip(codes) {
        *number = values[usize::from(*code)] * scale;
    }
}

/// Returns the scale of a block, the largest magnitude of `numbers`, and writes into `codes` for each number the index
/// of the value in `values` that is nearest to number / scale. If all numbers are 0, all codes are that of 0.
fn encode(values: &[f32; 256], numbers: &[f32], codes: &mut [u8]) -> f32 {
    let scale = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let divisor = if scale == 0.0 { 1.0 } else { scale };
    for (code, number) in codes.iter_mut().zip(numbers) {
        *code = nearest(values, number / divisor);
    }
    scale
}
