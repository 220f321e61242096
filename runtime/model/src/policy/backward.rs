//! Learning from scored rows: the seeds of a loss, walked back into the flat gradient.

use super::score::{Pass, slice_dropout};
use super::taps::SeedValues;
use super::{Policy, Scored, Seeds, View};
use crate::decoder::head::OutputHead;
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::decoder::stack;
use crate::error::{Error, Result};

impl Policy {
    /// Adds Σ seed · d(tap)/d(weights) to the flat gradient, with seeds the gradients of a loss by the taps. Consumes
    /// the saved activations of `scored`; without them, runs the forward pass again, slice by slice and under the same
    /// dropout masks, with the same result. Does nothing if nothing is trained.
    ///
    /// # Errors
    /// When the rows were scored through another view or before the last update, or seeds have another shape or belong
    /// to a tap that was not asked for.
    pub fn backward(&self, scored: &mut Scored, seeds: &Seeds) -> Result<()> {
        self.check(scored, seeds)?;
        let seeds = SeedValues::read(seeds, &scored.rows)?;
        let kept = std::mem::take(&mut scored.passes);
        if self.adapter.trainable() == 0 {
            return Ok(());
        }
        let configuration = &self.model.configuration;
        let share = self.shares_prefixes(&scored.view, scored.dropout.is_some());
        let slices = self.slices(&scored.rows, share);
        let kept = kept.into_iter().chain(std::iter::repeat_with(|| None));
        for ((slice, number), kept) in slices.into_iter().zip(0_u64..).zip(kept) {
            let (dropout, patches) = (slice_dropout(scored.dropout, number), &scored.patches);
            let network = Network { dropout, patches, ..self.network(&scored.view)? };
            let head = OutputHead::new(&network, scored.temperature, scored.asked)?;
            let pass = match kept {
                Some(pass) => pass,
                None => {
                    let packing = Packing::new(&scored.rows, slice, share, configuration)?;
                    // Without a target, or without a seed that is not 0, there is nothing to walk back.
                    if seeds.of(&packing).is_none() {
                        continue;
                    }
                    self.forward_pass(&network, &head, packing)?
                }
            };
            let Some(seeds) = seeds.of(&pass.packing) else { continue };
            self.backward_slice(&network, &head, pass, &seeds)?;
        }
        Ok(())
    }

    /// Runs the backward pass of one slice from the seeds of its targets into the flat gradient, and frees what it saved.
    fn backward_slice(&self, network: &Network<'_>, head: &OutputHead, pass: Pass, seeds: &SeedValues) -> Result<()> {
        let Pass { packing, blocks, head: kept, reservation: _reservation } = pass;
        let gradients = self.adapter.parameters();
        let selected = head.backward(&kept, &packing.targets, seeds.head(), gradients)?;
        drop(kept);
        let upstream = packing.scatter_gradients(&selected)?;
        stack::backward(network, &packing, blocks, upstream, gradients)
    }

    /// Checks that rows were scored through the policy and since the last update, and that each seed's tap was asked
    /// for.
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
        match seeds.iter().find(|(tap, _)| !scored.asked.contains(*tap)) {
            Some((tap, _)) => {
                Err(Error::Argument(format!("there are seeds for `{}`, which was not asked for", tap.name())))
            }
            None => Ok(()),
        }
    }
}
