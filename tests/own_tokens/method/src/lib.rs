//! Scores rows made of its own tokens, reads columns of tokens, samples among few tokens and up to a text, and learns from
//! activations. What it finds are metrics.

use tunebox::hidden::{self, Site, Token};
use tunebox::prelude::*;
use tunebox::sample::end_tokens;
use tunebox::tensor::Dtype;

/// What people may set.
#[derive(Settings)]
pub struct OwnTokens {
    /// The column to read.
    #[setting(default = "advantage")]
    column: String,

    /// The text that ends a completion, a letter after another.
    #[setting(default = "ab")]
    stop: String,

    /// The most new tokens of a completion.
    #[setting(default = 12, low = 1)]
    tokens: u32,
}

impl Method for OwnTokens {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let again = Rows::new(&rows.ids(), &rows.presence(), &rows.mask())?;
        let logprob = |rows: &Rows| Ok::<_, Error>(score(&policy(), rows, Taps::empty(), 1.0)?.logprob());
        metric("difference", (logprob(&rows)? - logprob(&again)?).abs().max(All));

        let column = batch.token_column(&self.column)?;
        metric("advantages", column.replace_non_finite(0.0).sum(All));
        metric("absent", rows.mask().sum(All) - (column.is_finite().cast(Dtype::F32) * rows.mask()).sum(All));
        metric("indices", batch.record_indices().cast(Dtype::F32).sum(All));
        self.sample(&rows)?;

        let now = hidden::capture_for_learning(&rows, &[0, 1], Site::ResidualAfter, Token::Targets)?;
        let loss = now.square().sum(All) * (1.0 / batch.window_targets("example")? as f32);
        backward(&loss)?;
        add_metric("loss", loss);
        Ok(())
    }
}

impl OwnTokens {
    /// Samples among the letters of the stop text, and counts completions that do not end with it where they should.
    fn sample(&self, rows: &Rows) -> Result<()> {
        let letters: Vec<u32> = self.stop.bytes().map(u32::from).collect();
        let sampler = Sampler::new().completions(4)?.max_tokens(self.tokens)?.stop(&self.stop)?.allow_tokens(&letters)?;
        let completions = generate(&policy(), &rows.prompts()?, &sampler)?;
        let (rows, finished) = (completions.rows(), completions.finished().copy_to_list()?);
        let (ids, mask) = (rows.ids().copy_to_indices()?, rows.mask().copy_to_list()?);
        let width = rows.width() as usize;
        let (mut others, mut wrong) = (0, 0);
        for ((ids, mask), finished) in ids.chunks(width).zip(mask.chunks(width)).zip(&finished) {
            let own: Vec<u32> = ids.iter().zip(mask).filter(|(_, mask)| **mask == 1.0).map(|(id, _)| *id).collect();
            others += own.iter().filter(|id| !letters.contains(id)).count();
            let first = own.windows(letters.len()).position(|part| part == letters);
            let ends = first.is_some_and(|at| at + letters.len() == own.len());
            wrong += usize::from(ends != (*finished == 1.0) || (first.is_some() && !ends));
        }
        metric("others", others as f32);
        metric("wrong", wrong as f32);
        metric("finished", completions.finished().mean(All));
        metric("ends", end_tokens().len() as f32);
        Ok(())
    }
}

method! {
    OwnTokens,
    shape: "supervised",
    metrics: ["loss", "difference", "advantages", "absent", "indices", "others", "wrong", "finished", "ends"],
}
