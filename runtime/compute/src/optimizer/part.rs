//! The parts of the parameters that an optimizer updates one after another, with the places of their state.

use std::ops::Range;

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::settings::OptimizerSettings;
use crate::error::Result;
use crate::parameters::{Layout, Parameters, Slot, TASK_NUMBERS, update_together};

/// A state tensor that a rule keeps for some numbers: name, element type and count.
pub(super) type StateTensor = (&'static str, DType, usize);

/// Numbers of the parameters that a rule updates together, with one learning rate.
#[derive(Debug)]
pub(super) struct Part {
    /// The numbers in the buffers of the parameters, gaps included. May be empty.
    range: Range<usize>,
    /// `[rows, columns]` of a hidden matrix; `[count]` of anything else.
    shape: Vec<usize>,
    /// The learning rate as a multiple of that of the step.
    multiple: f64,
    /// The state of the part: the index of the state tensor and the place in it, for each tensor that the rule keeps.
    state: Vec<(usize, Range<usize>)>,
}

/// What a rule updates: views into the buffers of the parameters and the state, and the numbers of the step.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// The values, flat f32.
    pub(super) values: Tensor,
    /// The gradients, flat f32. The rule may overwrite them.
    pub(super) gradients: Tensor,
    /// The copy of the values for products of an accelerator, if there is one.
    pub(super) operand_copy: Option<Tensor>,
    /// The tensors that the rule keeps for `shape`, flat, in its order.
    pub(super) state: Vec<Tensor>,
    /// `[rows, columns]` of a hidden matrix; `[count]` of anything else.
    pub(super) shape: &'a [usize],
    /// The learning rate.
    pub(super) rate: f64,
    /// The number of the step, counted from 1.
    pub(super) step: u64,
}

/// Cuts the parameters into parts and returns them with the state tensors that they use. For an element-wise rule,
/// adjacent slots with one learning rate are one part, and the first part may be empty. For any other rule each slot is
/// a part.
pub(super) fn parts(settings: &OptimizerSettings, layout: &Layout) -> (Vec<Part>, Vec<StateTensor>) {
    let merges = settings.rule.is_elementwise();
    let part = |range, shape, multiple| Part { range, shape, multiple, state: Vec::new() };
    let mut parts: Vec<Part> = Vec::new();
    if merges {
        parts.push(part(0..0, Vec::new(), 1.0));
    }
    for (slot, range) in layout.ranges() {
        let multiple = if is_b_factor(slot) { settings.b_rate_ratio } else { 1.0 };
        match parts.last_mut() {
            Some(last) if merges && last.multiple == multiple => last.range.end = range.end,
            _ => parts.push(part(range, rule_shape(slot), multiple)),
        }
    }
    let mut tensors: Vec<StateTensor> = Vec::new();
    for part in &mut parts {
        if merges {
            part.shape = vec![part.range.len()];
        }
        let wanted = settings.rule.state(&part.shape);
        part.state = wanted.into_iter().map(|tensor| extend_state(&mut tensors, tensor)).collect();
    }
    (parts, tensors)
}

/// Makes room for the numbers of `tensor` in the list of state tensors: lengthens the tensor with its name, or adds a
/// new one. Returns the index in the list, and the range of the new numbers in that tensor.
fn extend_state(tensors: &mut Vec<StateTensor>, tensor: StateTensor) -> (usize, Range<usize>) {
    let (name, dtype, count) = tensor;
    let index = tensors.iter().position(|(known, ..)| *known == name).unwrap_or(tensors.len());
    if index == tensors.len() {
        tensors.push((name, dtype, 0));
    }
    let start = tensors[index].2;
    tensors[index].2 += count;
    (index, start..start + count)
}

/// Bytes that the state of an optimizer takes for parameters with these slots, gaps not counted.
pub(super) fn state_bytes(settings: &OptimizerSettings, slots: &[Slot]) -> u64 {
    let bytes = |(_, dtype, count): StateTensor| (dtype.size_in_bytes() * count) as u64;
    slots.iter().flat_map(|slot| settings.rule.state(&rule_shape(slot))).map(bytes).sum()
}

/// Whether a slot is the factor B of a low-rank adapter: by its name in PEFT, which ends in `.lora_B.weight`.
fn is_b_factor(slot: &Slot) -> bool {
    slot.name.ends_with(".lora_B.weight")
}

/// The shape of a slot as rules see it: `[rows, columns]` of a matrix, except the token embedding and the output head
/// (by the names that they have in every family); `[count]` of anything else.
fn rule_shape(slot: &Slot) -> Vec<usize> {
    let is_vocabulary = ["model.embed_tokens.", "lm_head."].iter().any(|name| slot.name.starts_with(name));
    if slot.shape.len() == 2 && !is_vocabulary { slot.shape.clone() } else { vec![slot.count()] }
}

impl Part {
    /// The views of this part into the buffers of `parameters` and into the state tensors `state`, for the step number
    /// `step` (from 1) with the learning rate `rate`. Fails if the parameters are smaller than those that the part was
    /// made for.
    pub(super) fn view(
        &self,
        parameters: &Parameters,
        state: &[(&'static str, Tensor)],
        step: u64,
        rate: f64,
    ) -> Result<View<'_>> {
        let of = |tensor: &Tensor, range: &Range<usize>| -> Result<Tensor> {
            Ok(tensor.narrow(0, range.start, range.len())?)
        };
        Ok(View {
            values: of(parameters.values(), &self.range)?,
            gradients: of(parameters.gradients(), &self.range)?,
            operand_copy: parameters.operand_copy().map(|copy| of(copy, &self.range)).transpose()?,
            state: self.state.iter().map(|(index, range)| of(&state[*index].1, range)).collect::<Result<_>>()?,
            shape: &self.shape,
            rate: rate * self.multiple,
            step,
        })
    }
}

/// Calls `work` in parallel for every piece of flat f32 tensors of one length: with the numbers of each at the same
/// place, writable. Pieces have [`TASK_NUMBERS`] numbers, the last one fewer. No two tensors share a storage.
pub(super) fn each_piece<const N: usize>(tensors: [&Tensor; N], work: impl Fn([&mut [f32]; N]) + Sync) -> Result<()> {
    let count = tensors.first().map_or(0, |tensor| tensor.elem_count());
    update_together(tensors, |mut rest: [&mut [f32]; N]| {
        let piece = |_| {
            rest.each_mut().map(|numbers| {
                let length = numbers.len().min(TASK_NUMBERS);
                numbers.split_off_mut(..length).unwrap_or_default()
            })
        };
        let pieces: Vec<_> = (0..count.div_ceil(TASK_NUMBERS)).map(piece).collect();
        pieces.into_par_iter().for_each(&work);
    })
}
