//! What this method does, in a sentence.
//!
//! L = −Σ (1 − p)^focus · log p / targets: supervised fine-tuning in which a token counts the less the better the model
//! knows it already. With `focus = 0` all count alike. Put a loss of your own into `cost`.

use tunebox::prelude::*;

/// What people may set in `[method]` of a run file. The comments are their help.
#[derive(Settings)]
pub struct Supervised {
    /// How much less a token counts the better the model knows it; 0 counts all alike.
    #[setting(default = 0.0, low = 0.0, high = 10.0)]
    focus: f32,
}

impl Method for Supervised {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        // Of the whole update, so that the size of a micro-batch changes nothing.
        let targets = batch.window_targets("example")?;
        let scores = score_for_learning(&rows, Taps::TOP_ONE, 1.0)?;

        let loss = loss::token_mean(&self.cost(&scores), targets);
        backward(&loss)?;

        add_metric("loss", loss);
        add_metric("accuracy", loss::token_mean(&scores.top_one(), targets));
        Ok(())
    }
}

impl Supervised {
    /// What every target token costs: `[rows, width]`, 0 elsewhere.
    fn cost(&self, scores: &Scores) -> Tensor {
        let logprob = scores.logprob(); // [rows, width], 0 off the targets
        let unknown = (1.0 - logprob.exp()).clamp(Some(0.0), None); // [rows, width]
        -(unknown.power(self.focus.into()).detach() * logprob)
    }
}

method! {
    Supervised,
    shape: "supervised",
    metrics: ["loss", "accuracy"],
}

#[cfg(test)]
mod tests {
    use tunebox::bench::{Bench, Error, json};

    use super::*;

    /// A host with a tiny model and one record. No run, no files.
    fn bench() -> Bench<Supervised> {
        Bench::new().sample().set("train.rate", 0.005).records([json!({
            "messages": [
                { "role": "user", "content": "What is the capital of Kenya?" },
                { "role": "assistant", "content": "Arr, matey! The capital of Kenya is Nairobi." },
            ],
        })])
    }

    #[test]
    fn the_loss_falls() -> std::result::Result<(), Error> {
        let mut run = bench().start()?;
        let before = run.step()?.metric("loss");
        run.step()?;
        assert!(run.step()?.metric("loss") < before);
        Ok(())
    }

    #[test]
    fn focus_makes_known_tokens_count_less() -> std::result::Result<(), Error> {
        let all = bench().start()?.step()?.metric("loss");
        let some = bench().setting("focus", 2.0).start()?.step()?.metric("loss");
        assert!(some < all, "{some} is not below {all}");
        Ok(())
    }

    #[test]
    fn a_focus_out_of_range_is_refused() {
        let refused = bench().setting("focus", -1.0).start().unwrap_err();
        assert!(refused.to_string().contains("it must be at least 0"), "{refused}");
    }
}
