//! Sequences that outgrow the factors of short texts while they are written.
//! Each token is drawn as the model, given the sequence so far and nothing else, would draw it: so the keys of the
//! whole sequence turn anew, as transformers does it for Phi-3.

use tunebox_compute::Tensor;
use tunebox_compute::fused::KvCache;

use super::cache;
use super::writer::Writer;
use crate::decoder::hook::Spoken;
use crate::decoder::lens::Lens;
use crate::error::Result;

/// Fills the slots of the sequences anew whose next token is the first that the short factors do not serve.
pub(super) fn refill(lens: &Lens<'_>, prompts: &[Vec<u32>], active: &[&mut Writer], cache: &mut KvCache) -> Result<()> {
    let Some(most) = lens.model.configuration.short_context() else { return Ok(()) };
    let lens = Lens { writing: false, ..*lens };
    for writer in active {
        let slot = writer.slot();
        if cache.length(slot) != most {
            continue;
        }
        let prompt = &prompts[writer.prompt()];
        let ids: Vec<u32> = prompt.iter().chain(writer.ids()).copied().take(most).collect();
        let marks: Vec<f32> = (0..most).map(|at| f32::from(u8::from(at >= prompt.len()))).collect();
        let spoken = Spoken::Some(Tensor::from_vec(marks, (most, 1), lens.model.weights.device())?);
        let blocks = cache::blocks(&lens, most + 1, &spoken)?;
        cache.retire(slot);
        cache::run_prompts(&lens, &blocks, &[(slot, ids.as_slice())], 1, cache)?;
    }
    Ok(())
}
