//! Refuses configurations whose numbers make no model, before any size is computed from them.

use std::path::Path;

use super::{Configuration, RopeSetting};
use crate::error::{Error, Result};

/// No real model comes near; products of two such sizes fit in 64 bits.
const LARGEST_SIDE: usize = 1 << 24;
const MOST_LAYERS: usize = 1 << 12;

impl Configuration {
    /// Checks sizes, scales, soft caps, windows and rotations. `place` is the file named in errors.
    pub(crate) fn check(&self, place: &Path) -> Result<()> {
        self.check_sizes(place)?;
        let refuse = |key: &str, found: String, allowed: &str| Err(refusal(key, found, place, allowed));
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse("num_key_value_heads", self.kv_heads.to_string(), "numbers that divide the query heads");
        }
        if !self.head_dim.is_multiple_of(2) {
            return refuse("head_dim", self.head_dim.to_string(), "even widths: rotation works on pairs");
        }
        if self.rotated == 0 || self.rotated > self.head_dim || !self.rotated.is_multiple_of(2) {
            let allowed = "shares of the head that are an even number of features";
            return refuse("partial_rotary_factor", format!("{} features", self.rotated), allowed);
        }
        if !(self.norm_epsilon.is_finite() && self.norm_epsilon >= 0.0) {
            return refuse("rms_norm_eps", self.norm_epsilon.to_string(), "small positive numbers");
        }
        if !(self.attention_scale.is_finite() && self.attention_scale > 0.0) {
            return refuse("query_pre_attn_scalar", self.attention_scale.to_string(), "positive scales");
        }
        let caps =
            [("attn_logit_softcapping", self.attention_soft_cap), ("final_logit_softcapping", self.logit_soft_cap)];
        for (key, cap) in caps {
            if let Some(cap) = cap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
                return refuse(key, cap.to_string(), "positive numbers, or null for none");
            }
        }
        for window in self.layers_kind.iter().filter_map(|layer| layer.window) {
            if window == 0 {
                return refuse("sliding_window", "0".into(), "windows of one token and more");
            }
        }
        self.check_ropes(place)
    }

    /// Checks that sizes are from 1 to [`LARGEST_SIDE`], and that the number of layers is from 1 to [`MOST_LAYERS`] and
    /// matches `layers_kind`.
    fn check_sizes(&self, place: &Path) -> Result<()> {
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
            if side == 0 || side > LARGEST_SIDE {
                return Err(refusal(key, side.to_string(), place, "sizes from 1 to 16,777,216"));
            }
        }
        if self.layers == 0 || self.layers > MOST_LAYERS || self.layers_kind.len() != self.layers {
            return Err(refusal("num_hidden_layers", self.layers.to_string(), place, "from 1 to 4,096 layers"));
        }
        Ok(())
    }

    /// Checks every rotation: positive base, attention factor and frequencies, and one listed factor for each rotated
    /// pair.
    fn check_ropes(&self, place: &Path) -> Result<()> {
        self.check_contexts(place)?;
        let sound = |number: &f64| number.is_finite() && *number > 0.0;
        for rope in &self.ropes {
            for (key, number) in [("rope_theta", rope.theta), ("attention_factor", rope.attention_factor())] {
                if !sound(&number) {
                    return Err(refusal(key, number.to_string(), place, "positive numbers"));
                }
            }
            let counts: Vec<usize> = rope.listed().collect();
            if counts.iter().any(|count| *count != self.rotated / 2) {
                let found = counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
                let allowed = format!("{} factors, one for each pair of features that turn", self.rotated / 2);
                return Err(refusal("rope_parameters", format!("{found} factors"), place, &allowed));
            }
            let long = rope.long_frequencies(self.rotated).unwrap_or_default();
            if !rope.frequencies(self.rotated).iter().chain(&long).all(sound) {
                let found = if counts.is_empty() { format!("{rope:?}") } else { "a list of factors".into() };
                return Err(refusal("rope_parameters", found, place, "rotations with positive frequencies"));
            }
        }
        Ok(())
    }

    /// Checks that all LongRoPE rotations have the same first context, from 2 tokens on: their tables switch to the
    /// long factors at one length.
    fn check_contexts(&self, place: &Path) -> Result<()> {
        let mut contexts = self.ropes.iter().filter_map(RopeSetting::short_context);
        let Some(first) = contexts.next() else { return Ok(()) };
        let refuse = |found: String, allowed| Err(refusal("original_max_position_embeddings", found, place, allowed));
        // The attention factor divides by the logarithm.
        if !(2..=LARGEST_SIDE).contains(&first) {
            return refuse(first.to_string(), "lengths from 2 to 16,777,216");
        }
        match contexts.find(|other| *other != first) {
            Some(other) => refuse(format!("{first} and {other}"), "one length for all rotations"),
            None => Ok(()),
        }
    }
}

/// An error about the value of a key: `found` is the value, `place` the file, `allowed` what it may be.
fn refusal(key: &str, found: String, place: &Path, allowed: &str) -> Error {
    Error::KeyValue { key: key.into(), found, place: place.display().to_string(), allowed: allowed.into() }
}
