//! Sequences that outgrow the factors of short texts while they are written.
//! Each token is drawn as the model, given the sequence so far and nothing else, would draw it: so the keys of the
//! whole sequence turn anew, as transformers does it for Phi-3.

use tunebox_compute::Tensor;
use tunebox_compute::fused::KvCache;

use super::cache;
use super::sequence::Sequence;
use crate::decoder::hook::AnswerMask;
use crate::decoder::network::Network;
use crate::error::Result;

/// Recomputes the cached keys and values of sequences whose cache has just reached the short context, with the factors
/// for long sequences. Does nothing for models without LongRoPE.
pub(super) fn recompute_outgrown(
    network: &Network<'_>,
    prompts: &[Vec<u32>],
    active: &[&mut Sequence],
    cache: &mut KvCache,
) -> Result<()> {
    let Some(most) = network.model.configuration.short_context() else { return Ok(()) };
    let network = Network { decoding: false, ..*network };
    for sequence in active {
        let slot = sequence.slot;
        if cache.length(slot) != most {
            continue;
        }
        let prompt = &prompts[sequence.prompt];
        let ids: Vec<u32> = prompt.iter().chain(&sequence.ids).copied().take(most).collect();
        let marks: Vec<f32> = (0..most).map(|at| f32::from(u8::from(at >= prompt.len()))).collect();
        let answer_mask = AnswerMask::Tokens(Tensor::from_vec(marks, (most, 1), network.model.weights.device())?);
        let blocks = cache::build_blocks(&network, most + 1, &answer_mask)?;
        cache.retire(slot);
        cache::run_prompts(&network, &blocks, &[(slot, ids.as_slice())], 1, cache)?;
    }
    Ok(())
}
