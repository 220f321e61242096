//! What this method does, in a sentence.
//!
//! L = −Σ A · log π(y) / completions, with A = reward − mean reward of the completions of the prompt: completions that
//! beat the others of their prompt become likelier. Put an advantage of your own into `advantage`.

use tunebox::prelude::*;

/// What people may set in `[method]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Rewarded {
    /// Completions of every prompt.
    #[setting(default = 4, low = 2, high = 256)]
    completions: u32,
}

impl Method for Rewarded {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let sampler = Sampler::new().completions(self.completions)?;
        let written = generate(&policy(), &batch.rows("prompt")?, &sampler)?;
        // What the verifiers of the run say, by their weights; an answer that one cannot judge gets 0 from it.
        let rewards = (judge(batch, &written)?.replace_non_finite(0.0) * weights()?).sum(1); // [rows]
        // The completions of the whole update, so that the size of a micro-batch changes nothing.
        let count = batch.window_size() * self.completions;

        let scores = score_for_learning(&written.rows(), Taps::empty(), 1.0)?;
        let loss = -loss::row_mean(&(self.advantage(&rewards) * loss::sequence_logprob(&scores)), count);
        backward(&loss)?;

        add_metric("loss", loss);
        add_metric("reward", loss::row_mean(&rewards, count));
        Ok(())
    }
}

impl Rewarded {
    /// How much better each completion is than those of the same prompt: `[rows]`, like `rewards`.
    fn advantage(&self, rewards: &Tensor) -> Tensor {
        let rows = rewards.shape()[0];
        let groups = rewards.reshape(&[rows / self.completions, self.completions]);
        (&groups - groups.mean(Keep(1))).reshape(&[rows])
    }
}

method! {
    Rewarded,
    shape: "prompts",
    metrics: ["loss", "reward"],
}
