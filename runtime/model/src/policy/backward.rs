//! Learning from scored rows: the seeds of a loss, walked back into the flat gradient.

use tunebox_compute::fused::HeadSeeds;

use super::score::Pass;
use super::{Policy, Scored, Seeds, View};
use crate::decoder::head::Head;
use crate::decoder::lens::Lens;
use crate::decoder::packing::Packing;
use crate::decoder::stack;
use crate::error::{Error, Result};

impl Policy {
    /// Adds Σ seed · d(tap)/d(weights) to the flat gradient. Uses up what `scored` kept; without
    /// that, the forward pass runs again and gives the same gradient.
    ///
    /// # Errors
    /// When the rows were scored through another view or before the last update, or seeds have
    /// another shape or belong to a tap that was not asked for.
    pub fn backward(&self, scored: &mut Scored, seeds: &Seeds) -> Result<()> {
        self.check(scored, seeds)?;
        let lens = Lens { dropout: scored.dropout, ..self.lens(&scored.view)? };
        let head = Head::new(&lens, scored.temperature, scored.asked)?;
        let pass = match scored.pass.take() {
            Some(pass) => pass,
            None => {
                let packing = Packing::new(&scored.rows, &self.model.configuration)?;
                if packing.is_empty() || self.adapter.trainable() == 0 {
                    return Ok(());
                }
                self.pass(&lens, &head, packing)?
            }
        };
        self.walk(&lens, &head, pass, seeds)
    }

    fn walk(&self, lens: &Lens<'_>, head: &Head, pass: Pass, seeds: &Seeds) -> Result<()> {
        let Pass { packing, blocks, head: kept } = pass;
        let gather = |seed: Option<&tunebox_compute::Tensor>| seed.map(|seed| packing.gather(seed)).transpose();
        let logprob = gather(seeds.logprob.as_ref())?;
        let entropy = gather(seeds.entropy.as_ref())?;
        let mean_logprob = gather(seeds.mean_logprob.as_ref())?;
        let all = [&logprob, &entropy, &mean_logprob];
        if all.into_iter().flatten().flatten().all(|seed| *seed == 0.0) {
            return Ok(());
        }
        let seeds = HeadSeeds {
            logprob: logprob.as_deref(),
            entropy: entropy.as_deref(),
            mean_logprob: mean_logprob.as_deref(),
        };
        let gradients = self.adapter.parameters();
        let selected = head.backward(&kept, &packing.targets, seeds, gradients)?;
        drop(kept);
        let upstream = packing.spread(&selected)?;
        stack::backward(lens, &packing, blocks, upstream, gradients)
    }

    fn check(&self, scored: &Scored, seeds: &Seeds) -> Result<()> {
        if scored.view != View::Policy {
            return Err(Error::Argument("only rows scored through the policy can be learned from".into()));
        }
        if scored.generation != self.generation {
            return Err(Error::Argument(format!(
                "the rows were scored after update `{}`, the weights have had `{}`; score them again",
                scored.generation, self.generation
            )));
        }
        if seeds.entropy.is_some() && !scored.asked.entropy {
            return Err(Error::Argument("there are seeds for `entropy`, which was not asked for".into()));
        }
        if seeds.mean_logprob.is_some() && !scored.asked.mean_logprob {
            return Err(Error::Argument("there are seeds for `mean-logprob`, which was not asked for".into()));
        }
        Ok(())
    }
}
