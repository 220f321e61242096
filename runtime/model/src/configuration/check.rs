//! Refuses configurations whose numbers make no model, before any size is computed from them.

use std::fmt::Display;
use std::path::Path;

use super::{Configuration, RopeSetting};
use crate::error::{Error, Result};

/// No real model comes near; products of two such sizes fit in 64 bits.
const LARGEST_SIDE: usize = 1 << 24;
const MOST_LAYERS: usize = 1 << 12;

impl Configuration {
    /// Checks sizes, scales, soft caps, windows and rotations. `file` is named in errors.
    pub(crate) fn check(&self, file: &Path) -> Result<()> {
        self.check_sizes(file)?;
        let is_even = |width: usize| width.is_multiple_of(2);
        let is_positive = |number: f32| number.is_finite() && number > 0.0;
        let divides = self.heads.is_multiple_of(self.kv_heads);
        expect(divides, "num_key_value_heads", self.kv_heads, file, "a number that divides the query heads")?;
        expect(is_even(self.head_dim), "head_dim", self.head_dim, file, "an even width: rotation works on pairs")?;
        let turns = self.rotated > 0 && self.rotated <= self.head_dim && is_even(self.rotated);
        let (features, allowed) = (format!("{} features", self.rotated), "a share that is an even number of features");
        expect(turns, "partial_rotary_factor", features, file, allowed)?;
        let epsilon = self.norm_epsilon;
        expect(epsilon.is_finite() && epsilon >= 0.0, "rms_norm_eps", epsilon, file, "a small positive number")?;
        let scale = self.attention_scale;
        expect(is_positive(scale), "query_pre_attn_scalar", scale, file, "a positive scale")?;
        let caps =
            [("attn_logit_softcapping", self.attention_soft_cap), ("final_logit_softcapping", self.logit_soft_cap)];
        for (key, cap) in caps {
            let cap = cap.unwrap_or(1.0);
            expect(is_positive(cap), key, cap, file, "a positive number, or null for none")?;
        }
        let sees = self.layers_kind.iter().all(|layer| layer.window != Some(0));
        expect(sees, "sliding_window", 0, file, "a window of one token or more")?;
        self.check_ropes(file)
    }

    /// Checks that sizes are from 1 to [`LARGEST_SIDE`], and that the number of layers is from 1 to [`MOST_LAYERS`] and
    /// matches `layers_kind`.
    fn check_sizes(&self, file: &Path) -> Result<()> {
        let sides = [
            ("hidden_size", self.hidden),
            ("intermediate_size", self.intermediate),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("vocab_size", self.vocabulary),
            ("num_attention_heads", self.heads.saturating_mul(self.head_dim)),
        ];
        for (key, side) in sides {
            expect((1..=LARGEST_SIDE).contains(&side), key, side, file, "a size from 1 to 16,777,216")?;
        }
        let fits = (1..=MOST_LAYERS).contains(&self.layers) && self.layers_kind.len() == self.layers;
        expect(fits, "num_hidden_layers", self.layers, file, "from 1 to 4,096 layers")
    }

    /// Checks every rotation: positive base, attention factor and frequencies, and one listed factor for each rotated
    /// pair.
    fn check_ropes(&self, file: &Path) -> Result<()> {
        self.check_contexts(file)?;
        let is_positive = |number: &f64| number.is_finite() && *number > 0.0;
        for rope in &self.ropes {
            for (key, number) in [("rope_theta", rope.theta), ("attention_factor", rope.attention_factor())] {
                expect(is_positive(&number), key, number, file, "a positive number")?;
            }
            let (counts, pairs) = (rope.listed(), self.rotated / 2);
            let found = counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ") + " factors";
            let allowed = format!("{pairs} factors, one for each pair of features that turn");
            expect(counts.iter().all(|count| *count == pairs), "rope_parameters", found, file, &allowed)?;
            let long = rope.long_frequencies(self.rotated).unwrap_or_default();
            let turns = rope.frequencies(self.rotated).iter().chain(&long).all(is_positive);
            let found = if counts.is_empty() { format!("{rope:?}") } else { "a list of factors".into() };
            expect(turns, "rope_parameters", found, file, "a rotation with positive frequencies")?;
        }
        Ok(())
    }

    /// Checks that all LongRoPE rotations have the same first context, from 2 tokens on: their tables switch to the
    /// long factors at one length.
    fn check_contexts(&self, file: &Path) -> Result<()> {
        const KEY: &str = "original_max_position_embeddings";
        let mut contexts = self.ropes.iter().filter_map(RopeSetting::short_context);
        let Some(first) = contexts.next() else { return Ok(()) };
        // The attention factor divides by the logarithm.
        expect((2..=LARGEST_SIDE).contains(&first), KEY, first, file, "a length from 2 to 16,777,216")?;
        let other = contexts.find(|other| *other != first).unwrap_or(first);
        expect(other == first, KEY, format!("{first} and {other}"), file, "one length for all rotations")
    }
}

/// Checks a setting. Unless `is_right`, returns an error that names key, value and file, and what is allowed.
fn expect(is_right: bool, key: &str, found: impl Display, file: &Path, allowed: &str) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(Error::key(key, found.to_string(), file, format!("expected {allowed}"))),
    }
}
