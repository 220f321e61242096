//! Distillation: the model takes over the next-token distributions of a teacher, another and usually larger model.
//!
//! L = Σ D_β(teacher, model) / targets, over all targets of an update, with the generalized Jensen–Shannon divergence
//! D_β of the two distributions over the whole vocabulary. The targets are the answers of the data, or, in a share of
//! the updates, completions of its prompts that the model writes itself.

use tunebox::model::score_for_learning_against;
use tunebox::prelude::*;
use tunebox::teacher;
use tunebox::tensor::rand;

/// Distillation with its settings.
#[derive(Settings)]
pub struct Distill {
    /// The divergence: 0 the forward one, KL(teacher‖model), which covers all that the teacher says; 1 the reverse one,
    /// which settles on what it says most; between them a mixture of both.
    #[setting(default = 0.5, low = 0.0, high = 1.0)]
    beta: f32,

    /// The share of the updates that learn from completions of the model's own instead of the answers of the data.
    #[setting(default = 0.5, low = 0.0, high = 1.0)]
    on_policy: f32,

    /// Divides the logits of both models in the loss: above 1, unlikely tokens count more.
    #[setting(default = 1.0, above = 0.0, high = 100.0)]
    temperature: f32,

    /// The temperature at which the model writes completions.
    #[setting(default = 0.9, low = 0.0, high = 100.0)]
    sampling_temperature: f32,

    /// The most tokens of a completion; at most what the longest prompt leaves of `data.max-length`. The default is less
    /// where that is less.
    #[setting(default = 128, low = 1, high = 65536)]
    max_tokens: u32,

    /// The name of the run's teacher.
    #[setting(default = "teacher")]
    teacher: String,
}

impl Method for Distill {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        teacher::open(&settings.teacher)?;
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let own = rand("on-policy", &[1]).item()? < self.on_policy;
        let rows = if own { self.sample_completions(&batch.rows("example")?)? } else { batch.rows("example")? };
        let (teacher, targets) = (teacher::open(&self.teacher)?, rows.targets());
        let taps = Taps::ENTROPY | Taps::TOP_ONE;
        let scores = score_for_learning_against(&teacher, self.beta, &rows, taps, self.temperature)?;

        let loss = loss::token_mean(&scores.divergence(), targets);
        backward(&loss)?;

        metric("loss", loss);
        metric("own-completions", f32::from(u8::from(own)));
        metric("nll", loss::token_mean(&-scores.logprob(), targets));
        metric("entropy", loss::token_mean(&scores.entropy(), targets));
        metric("accuracy", loss::token_mean(&scores.top_one(), targets));
        Ok(())
    }
}

impl Distill {
    /// Samples one completion of the policy for the prompt of each row. Where the longest prompt of the run leaves less
    /// than the default of `max_tokens`, a new sampler has that limit already; a `max-tokens` that is given is checked
    /// before the run.
    fn sample_completions(&self, rows: &Rows) -> Result<Rows> {
        let sampler = || Sampler::new().temperature(self.sampling_temperature);
        let sampler = sampler()?.max_tokens(self.max_tokens).or_else(|_| sampler())?;
        Ok(generate(&policy(), &rows.prompts()?, &sampler)?.rows())
    }
}

method! {
    Distill,
    shape: "supervised",
    batch: "window",
    metrics: ["loss", "own-completions", "nll", "entropy", "accuracy"],
    paper: "arXiv:2306.13649",
}
