//! Reads the weights of an encoder for candle, after their names, shapes and values are checked.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use tunebox_foundation::panics::catch_panic;

use crate::error::{Error, Result};
use crate::source::Source;
use crate::watchdog::Work;
use crate::weights::safetensors;

/// Reads the weights with these names and shapes onto the CPU as `f32`, and builds an encoder of them by `build`.
/// Ignores other tensors of the files. Errors: a file is broken, a weight is missing, of another shape or format, or
/// not finite, or candle rejects it.
pub(super) fn build_encoder<T>(
    source: &Source,
    shapes: &[(String, Vec<usize>)],
    build: impl FnOnce(VarBuilder<'static>) -> candle_core::Result<T>,
) -> Result<T> {
    let tensors = {
        let work = Work::on_file("reading the headers of the model's files", source.path());
        let _mark = work.begin();
        let mut found = safetensors::locate(source.weight_files())?;
        let mut take = |(name, wanted): &(String, Vec<usize>)| {
            let location = found.remove(name);
            let location = location.ok_or_else(|| Error::missing(format!("tensor `{name}`"), source.path()))?;
            if location.shape != *wanted {
                return Err(Error::tensor_shape(name, wanted, &location.shape, &location.path));
            }
            Ok(location)
        };
        shapes.iter().map(&mut take).collect::<Result<Vec<_>>>()?
    };
    let read = |location: &crate::weights::Location| {
        let values = location.read_f32()?;
        check_finite(&location.name, &values, &location.path)?;
        Ok((location.name.clone(), Tensor::from_vec(values, location.shape.as_slice(), &Device::Cpu)?))
    };
    let tensors: HashMap<String, Tensor> = tensors.iter().map(read).collect::<Result<_>>()?;
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let built = catch_panic(|| build(weights));
    Ok(built.map_err(|panic| Error::broken(source.path(), format!("the reward model cannot be built: {panic}")))??)
}

/// Fails if a value of the tensor `name` in the file `path` is not finite.
pub(super) fn check_finite(name: &str, values: &[f32], path: &std::path::Path) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Error::broken(path, format!("tensor `{name}` holds {} at place {at}", values[at]))),
        None => Ok(()),
    }
}

/// Estimates the bytes of an encoder: its weights, and the temporary tensors of a pass over `tokens` tokens: in the
/// attention `scores` numbers for each head and pair of tokens, and for each token the `width` numbers of a block.
pub(super) fn encoder_bytes(
    shapes: &[(String, Vec<usize>)],
    tokens: u64,
    (heads, scores, width): (usize, u64, usize),
) -> u64 {
    let weights: u64 = shapes.iter().map(|(_, shape)| shape.iter().map(|side| *side as u64).product::<u64>()).sum();
    4 * (weights + scores * heads as u64 * tokens * tokens + width as u64 * tokens)
}
