//! Settings that would make a run need less memory.

use tunebox_compute::precision::Base;
use tunebox_model::decoder::Recompute;

use super::memory::Estimate;
use super::planned::Plan;
use super::precision::nf4_conflict;
use super::tokens::Tokens;

impl Plan {
    /// Settings that would reduce the run's memory, each with the estimated bytes of the run with that setting.
    #[must_use]
    pub fn smaller(&self) -> Vec<(&'static str, u64)> {
        let (run, whole) = (&self.run, self.run.summary.memory);
        let train = &run.settings.file.train;
        let tokens = |batch| Tokens::of(&run.settings, &run.data, &run.method, batch);
        let (now, one) = (tokens(train.batch), tokens(1));
        let need = |tokens, recompute| Estimate::of(&self.policy, tokens, recompute, whole.runtime).total();
        let present = if train.recompute { Recompute::Blocks } else { Recompute::None };
        let quantized = self.nf4_weight_bytes().map(|weights| {
            ("model.precision=nf4", whole.total().saturating_sub(whole.weights).saturating_add(weights))
        });
        let all = [
            ("train.batch=1", need(one, present)),
            ("train.recompute=true", need(now, Recompute::Blocks)),
            ("train.batch=1 --set train.recompute=true", need(one, Recompute::Blocks)),
        ];
        all.into_iter().chain(quantized).filter(|(_, bytes)| *bytes < whole.total()).collect()
    }

    /// Bytes of the weights if the base were kept in NF4; `None` if this run cannot have it so.
    fn nf4_weight_bytes(&self) -> Option<u64> {
        if nf4_conflict(&self.run.settings, &self.run.method).is_some() {
            return None;
        }
        self.policy.model().weights.bytes_in(Base::Nf4).ok()
    }
}
