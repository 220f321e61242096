//! What this method does, in a sentence.
//!
//! L = −Σ log σ(β (r₊ − r₋)) / pairs, with r = log π(y) − log π_ref(y) of an answer y: the better answer of a pair
//! gains on the worse one, measured from the model before training. Put a loss of your own into `cost`.

use tunebox::prelude::*;

/// What people may set in `[method]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Preference {
    /// How sharply the loss answers to a difference between the answers.
    #[setting(default = 0.1, above = 0.0)]
    beta: f32,
}

impl Method for Preference {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = Pair::of(batch)?; // the sides `chosen` and `rejected`
        let now = rows.score_for_learning(Taps::empty())?;
        let before = rows.score(&reference()?, Taps::empty())?;
        let rewards = now.with(&before, |now, before| loss::log_ratio(now, before) * self.beta); // [rows] each

        // The pairs of the whole update, so that the size of a micro-batch changes nothing.
        let loss = loss::row_mean(&self.cost(&rewards), batch.window_size());
        backward(&loss)?;

        add_metric("loss", loss);
        rewards.report_rewards(batch);
        Ok(())
    }
}

impl Preference {
    /// What every pair costs: `[rows]`.
    fn cost(&self, rewards: &Pair<Tensor>) -> Tensor {
        -rewards.difference().log_sigmoid()
    }
}

method! {
    Preference,
    shape: "preference",
    metrics: ["loss", "rewards-chosen", "rewards-rejected", "rewards-margins", "rewards-accuracies"],
}

#[cfg(test)]
mod tests {
    use tunebox::bench::{Bench, Error, json};

    use super::*;

    /// A host with a tiny model and one record. No run, no files.
    #[test]
    fn the_loss_falls() -> std::result::Result<(), Error> {
        let pair = json!({ "prompt": "How are you?", "chosen": "Fine, thank you.", "rejected": "What is it to you?" });
        let mut run = Bench::<Preference>::new().sample().set("train.rate", 0.005).records([pair]).start()?;
        let before = run.step()?.metric("loss");
        run.step()?;
        assert!(run.step()?.metric("loss") < before);
        Ok(())
    }
}
