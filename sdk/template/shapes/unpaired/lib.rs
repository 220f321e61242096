//! What this method does, in a sentence.
//!
//! L = −Σ log σ(±β r) / answers, + for a good answer and − for a bad one, with r = log π(y) − log π_ref(y) of an answer
//! y: good answers become likelier and bad ones less likely than before training. Put a loss of your own into `cost`.

use tunebox::prelude::*;

/// What people may set in `[method]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Unpaired {
    /// How sharply the loss answers to r.
    #[setting(default = 0.1, above = 0.0)]
    beta: f32,
}

impl Method for Unpaired {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let sign = batch.column("label")? * 2 - 1; // [rows], 1 for a good answer and -1 for a bad one
        // The answers of the whole update, so that the size of a micro-batch changes nothing.
        let answers = batch.window_size();
        let now = score_for_learning(&rows, Taps::empty(), 1.0)?;
        let before = score(&reference()?, &rows, Taps::empty(), 1.0)?;
        let agreement = loss::log_ratio(&now, &before) * sign; // [rows]

        let loss = loss::row_mean(&self.cost(&agreement), answers);
        backward(&loss)?;

        add_metric("loss", loss);
        add_metric("accuracy", agreement.greater(0.0).count(All) / answers);
        Ok(())
    }
}

impl Unpaired {
    /// What every answer costs: `[rows]`. `agreement` is r for a good answer and −r for a bad one.
    fn cost(&self, agreement: &Tensor) -> Tensor {
        -(agreement * self.beta).log_sigmoid()
    }
}

method! {
    Unpaired,
    shape: "unpaired",
    metrics: ["loss", "accuracy"],
}

#[cfg(test)]
mod tests {
    use tunebox::bench::{Bench, Error, json};

    use super::*;

    /// A host with a tiny model and two records. No run, no files.
    #[test]
    fn the_loss_falls() -> std::result::Result<(), Error> {
        let answer = |text: &str, label: bool| json!({ "prompt": "How are you?", "completion": text, "label": label });
        let answers = [answer("Fine, thank you.", true), answer("What is it to you?", false)];
        let mut run = Bench::<Unpaired>::new().sample().set("train.rate", 0.005).records(answers).start()?;
        let before = run.step()?.metric("loss");
        run.step()?;
        assert!(run.step()?.metric("loss") < before);
        Ok(())
    }
}
