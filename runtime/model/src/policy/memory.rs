//! Estimates the memory of passes through the model from sizes alone. Slices are cut by these estimates, the
//! activations saved for backward passes are limited by them, and runs estimate their memory from them.

use std::collections::HashSet;

use tunebox_compute::fused::{DIVERGENCE_ROWS, HEAD_GROUPS, HEAD_ROWS, HEAD_TILE};
use tunebox_compute::precision::{Purpose, bytes};

use super::division::CHUNK_NUMBERS;
use super::{Policy, Slice, View};
use crate::adapter::{AdapterKind, Module};
use crate::decoder::Recompute;
use crate::decoder::packing::Packing;
use crate::edit::{Form, Matrix, Role};
use crate::error::Result;
use crate::families::{EMBEDDING, HEAD};
use crate::rows::Rows;

/// The most completions that are generated at a time.
pub const BATCH: usize = 32;

/// The memory, in bytes, of scoring rows and learning from them, without the weights and the trained parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassMemory {
    /// Activations saved for the backward pass.
    pub kept: u64,
    /// Intermediate results of one block's backward pass.
    pub scratch: u64,
    /// Intermediate results of the output head, and the gradient of a trained embedding or head.
    pub head: u64,
}

impl Policy {
    /// Estimates the memory of learning, if one pass runs `slice` tokens, `together` tokens are scored before one
    /// backward pass, and passes save the activations that `recompute` says. With several ranks, estimates that of one
    /// rank with an even share. Raises the tokens of a pass to what `min_slice_bytes` allows, under [`Slice::Whole`]
    /// to all, and caps them at `together`. If `together` exceeds `slice`, adds the activations of further slices, up
    /// to `max_saved_bytes`. Without trained parameters, nothing is saved and a pass runs `slice` tokens.
    #[must_use]
    pub fn pass_memory(&self, slice: u64, together: u64, recompute: Recompute) -> PassMemory {
        let (layers, settings) = (self.model.configuration.layers, &self.settings);
        let ranks = if self.divides(true) { self.ranks().position().1 as u64 } else { 1 };
        let (slice, together) = (slice.div_ceil(ranks), together.div_ceil(ranks));
        let beside = |tokens| (self.scratch_bytes(&View::Policy, tokens), self.head_bytes(tokens));
        if self.adapter.trainable() == 0 {
            let (scratch, head) = beside(slice);
            return PassMemory { kept: 0, scratch, head };
        }
        let token = self.base_token_bytes(recompute, layers) + self.adapted_bytes(recompute, layers);
        let min_tokens = settings.min_slice_bytes / self.base_token_bytes(Recompute::None, layers).max(1);
        // A pass holds what the slice setting allows, and always as much as `min_slice_bytes`.
        let pass = if settings.slice == Slice::Whole { together } else { slice.max(min_tokens).min(together) };
        let all = together.saturating_mul(token);
        let waiting = if together <= slice { 0 } else { settings.max_saved_bytes.min(all) };
        let kept = waiting.saturating_add(pass.saturating_mul(token)).min(all);
        let (scratch, head) = beside(pass);
        PassMemory { kept, scratch, head: head.saturating_add(self.vocabulary_gradient_bytes()) }
    }

    /// Estimates the memory of scoring these rows. With `learning`, and if something is trained, the activations saved
    /// for their backward pass count: all if the slice setting allows the rows in one pass, else at most those of the
    /// largest slice plus what other scored rows, which still hold saved activations, leave of `max_saved_bytes`.
    #[must_use]
    pub fn score_memory(&self, view: &View, rows: &Rows, learning: bool) -> PassMemory {
        let layers = self.model_of(view).configuration.layers;
        let (kept, largest) = self.slices_memory(view, rows, (learning, layers), |row| rows.scored_length(row));
        PassMemory { kept, scratch: self.scratch_bytes(view, largest), head: self.head_bytes(largest) }
    }

    /// Estimates the memory of capturing activations of these rows up to layer `last_layer`, without the captured
    /// activations themselves. Assumes that whole rows run. With `learning`, includes what is saved for the backward
    /// pass, as [`score_memory`](Self::score_memory) does.
    #[must_use]
    pub fn capture_memory(&self, view: &View, rows: &Rows, last_layer: usize, learning: bool) -> PassMemory {
        let (kept, largest) = self.slices_memory(view, rows, (learning, last_layer + 1), |row| rows.ids[row].len());
        PassMemory { kept, scratch: self.scratch_bytes(view, largest), head: 0 }
    }

    /// Estimates the bytes that passes through the blocks below `layers` save for their backward passes, 0 without
    /// `learning` and through another view than the policy, and the most tokens of a pass. `length` returns how many
    /// tokens of the row with an index a pass runs.
    fn slices_memory(
        &self,
        view: &View,
        rows: &Rows,
        (learning, layers): (bool, usize),
        length: impl Fn(usize) -> usize,
    ) -> (u64, u64) {
        let (settings, learning) = (&self.settings, learning && *view == View::Policy);
        let share = self.shares_prefixes(view, learning);
        let slices: Vec<u64> = match learning && self.divides(true) {
            true => {
                let divided = self.divided_slices(rows, view, (true, share), length);
                divided.iter().map(|slice| slice.parts.largest_share() as u64).collect()
            }
            false => self.slices(rows, share).into_iter().map(|slice| self.packed(rows, slice, share)).collect(),
        };
        let (all, largest) = (slices.iter().sum::<u64>(), slices.iter().max().copied().unwrap_or(0));
        let token = self.base_token_bytes(settings.recompute, layers) + self.adapted_bytes(settings.recompute, layers);
        let kept = match slices.as_slice() {
            _ if !learning || !self.trains_below(layers) => 0,
            [tokens] if settings.slice.holds(rows) => tokens.saturating_mul(token),
            // Slices stay saved while there is room; the others run again, one at a time.
            _ => {
                let room = settings.max_saved_bytes.saturating_sub(self.saved.held());
                all.saturating_mul(token).min(room.saturating_add(largest.saturating_mul(token)))
            }
        };
        (kept, largest)
    }

    /// Estimates the memory that a divergence to a view needs beside the pass of the policy over these rows.
    #[must_use]
    pub fn divergence_memory(&self, view: &View, rows: &Rows) -> u64 {
        let slices = self.slices(rows, true);
        let largest = slices.into_iter().map(|slice| self.packed(rows, slice, true)).max().unwrap_or(0);
        self.divergence_bytes(view, largest, rows.targets() as u64)
    }

    /// Estimates the memory that a divergence to a view needs beside a pass of the policy over `tokens` tokens, of
    /// which `targets` are targets: one block of the view's pass, the hidden states that predict targets, and the
    /// logits of both for as many rows as are compared at a time.
    #[must_use]
    pub fn divergence_bytes(&self, view: &View, tokens: u64, targets: u64) -> u64 {
        let model = self.model_of(view);
        let (sizes, precision) = (&model.configuration, model.weights.precision());
        let words = (sizes.vocabulary + self.model.configuration.vocabulary) as u64;
        let logits = precision.bytes(Purpose::Sum, words * DIVERGENCE_ROWS as u64);
        let hidden = precision.bytes(Purpose::Activation, targets.saturating_mul(sizes.hidden as u64));
        self.scratch_bytes(view, tokens).saturating_add(hidden).saturating_add(logits)
    }

    /// The most tokens that one pass over the rows of a slice can have: all tokens of these rows, where with `share` a
    /// prefix that a row has in common with the row before it in the slice counts once.
    fn packed(&self, rows: &Rows, slice: std::ops::Range<usize>, share: bool) -> u64 {
        let configuration = &self.model.configuration;
        let added = |row| Packing::added_tokens(rows, row, share && row > slice.start, configuration) as u64;
        slice.clone().map(added).sum()
    }

    /// Estimates the bytes of cached keys and values while generating `sequences` sequences of up to `tokens` tokens
    /// each, prompt included, at most [`BATCH`] of them at a time.
    #[must_use]
    pub fn cache_memory(&self, view: &View, sequences: u64, tokens: u64) -> u64 {
        let model = self.model_of(view);
        let sizes = &model.configuration;
        let token = 2 * (sizes.layers * sizes.kv_heads * sizes.head_dim) as u64;
        let all = sequences.min(BATCH as u64).saturating_mul(tokens).saturating_mul(token);
        model.weights.precision().bytes(Purpose::Scratch, all)
    }

    /// Estimates the bytes of gradients that one of several ranks sums and exchanges: five subtrees, a copy of each,
    /// and what all ranks send at a time, twice.
    #[must_use]
    pub fn exchange_bytes(&self) -> u64 {
        let gradient = bytes(self.parameters().gradients()) as u64;
        let at_a_time = gradient.min(4 * CHUNK_NUMBERS as u64);
        let ranks = self.ranks().position().1 as u64;
        if self.divides(true) { 10 * gradient + 10 * ranks * at_a_time } else { 0 }
    }

    /// Returns the bytes that exist besides the result while the ranks exchange `numbers` captured numbers: the message
    /// of this rank, the messages of all ranks, and the decoded numbers of one message. 0 if such a pass is not divided
    /// among ranks.
    #[must_use]
    pub fn capture_exchange_bytes(&self, numbers: u64, learning: bool) -> u64 {
        if self.divides(learning) { 12 * numbers } else { 0 }
    }

    /// The bytes that the policy keeps beside the model and the adapter: [`snapshot_bytes`](Self::snapshot_bytes) for
    /// each snapshot, and the edited weights on the CPU of the policy and all snapshots. A weight that several of them
    /// share counts once.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        let copies = self.snapshots.values().map(|snapshot| &snapshot.1).chain([&self.edits]);
        let edited = copies.flat_map(|edits| edits.changed.values()).filter(|(weight, _)| seen.insert(weight.id()));
        let edited: u64 = edited.map(|(weight, _)| bytes(weight) as u64).sum();
        edited.saturating_add(self.snapshot_bytes().saturating_mul(self.snapshots.len() as u64))
    }

    /// The bytes that a snapshot takes: four times the adapter's values, for the values, their gradient buffer and
    /// their copy in the type of activations, and for a copy in checkpoints. 0 in full training, which takes no
    /// snapshots.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        if self.adapter.is_full() { 0 } else { 4 * bytes(self.parameters().values()) as u64 }
    }

    /// Estimates the bytes that editing a matrix takes for a short time: one copy of the stored weight that holds the
    /// matrix, as it is read (in the type of [`Weights::dtype`](crate::Weights::dtype)), and one as it is changed (in
    /// `f32` if an adapter holds the edits, else in the type in which it is read). `layer` is ignored for the embedding
    /// and the head.
    ///
    /// # Errors
    /// When the layer does not exist.
    pub fn edit_bytes(&self, role: Role, layer: usize) -> Result<u64> {
        let (weights, form) = (&self.model.weights, self.edits.form);
        let matrix = Matrix::of(&self.model.configuration, role, layer)?;
        let numbers: usize = weights.shape(&matrix.name).unwrap_or_default().iter().product();
        let read = weights.dtype().size_in_bytes();
        let changed = if form == Form::Adapter { 4 } else { read };
        Ok(numbers as u64 * (read + changed) as u64)
    }

    /// The bytes that the blocks below `layers` save for the backward pass for each token, without those of adapter
    /// modules. Of experts, those that a token runs through, with the router's logits and the token's index
    /// and weight. With [`Recompute::Blocks`]: the input of every block, and all activations of the one block that runs
    /// again.
    pub(super) fn base_token_bytes(&self, recompute: Recompute, layers: usize) -> u64 {
        let sizes = &self.model.configuration;
        let (hidden, inner) = (sizes.hidden, sizes.active_intermediate());
        let (queries, keys) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
        let normed = if sizes.query_key_norm { queries + keys } else { 0 };
        let outputs = if sizes.norms.attention_output.is_some() { 2 * hidden } else { 0 };
        let routes = sizes.experts.map_or(0, |experts| experts.count + 2 * experts.active);
        let block = 2 * hidden + 2 * queries + 2 * keys + 2 * inner + normed + outputs + routes;
        let numbers = match recompute {
            Recompute::None => layers * block,
            Recompute::Blocks => layers * hidden + block,
        };
        self.precision().bytes(Purpose::Activation, numbers as u64)
    }

    /// The bytes that the adapter's modules in the blocks below `layers` save for the backward pass for each token:
    /// their inputs reduced to `rank` values, and with DoRA also their outputs. With [`Recompute::Blocks`], those of
    /// one block on average. 0 in full training.
    fn adapted_bytes(&self, recompute: Recompute, layers: usize) -> u64 {
        if self.adapter.is_full() {
            return 0;
        }
        let dora = self.adapter.settings().kind == AdapterKind::Dora;
        let sizes = &self.model.configuration;
        let of_module = |module: &Module| module.rank + if dora { module.site.shape(sizes).0 } else { 0 };
        let numbers: usize = self.adapter.modules().iter().filter(|module| module.layer < layers).map(of_module).sum();
        let numbers = match recompute {
            Recompute::None => numbers as u64,
            Recompute::Blocks => numbers as u64 / layers.max(1) as u64,
        };
        self.precision().bytes(Purpose::Activation, numbers)
    }

    /// The bytes that the backward pass of one block of a view's model needs at once for `tokens` tokens: four times
    /// the feed-forward width (the gated product, its gradient and those of gate and up) and eight times the hidden
    /// width; and with experts the gathered rows, their gradients and the outputs of those that a token runs through.
    fn scratch_bytes(&self, view: &View, tokens: u64) -> u64 {
        let model = self.model_of(view);
        let (inner, hidden) = (model.configuration.active_intermediate(), model.configuration.hidden);
        let rows = model.configuration.experts.map_or(8, |experts| 8 + 3 * experts.active);
        let numbers = (4 * inner + rows * hidden) as u64;
        model.weights.precision().bytes(Purpose::Activation, tokens.saturating_mul(numbers))
    }

    /// The bytes of the gradient of a trained embedding or head, which is computed whole before it is added to the
    /// others; 0 if neither is trained.
    fn vocabulary_gradient_bytes(&self) -> u64 {
        let sizes = &self.model.configuration;
        let is_trained = [EMBEDDING, HEAD].iter().any(|name| self.parameters().index(name).is_some());
        let numbers = if is_trained { sizes.vocabulary as u64 * sizes.hidden as u64 } else { 0 };
        self.precision().bytes(Purpose::Trained, numbers)
    }

    /// The bytes that the output head needs at once for `tokens` tokens: on the CPU, a sum `[tokens, hidden]` for each
    /// of [`HEAD_GROUPS`] groups of the vocabulary, for at most [`HEAD_ROWS`] tokens; on an accelerator, one tile of
    /// logits, at most [`HEAD_TILE`].
    fn head_bytes(&self, tokens: u64) -> u64 {
        let (hidden, words) = (self.model.configuration.hidden as u64, self.model.configuration.vocabulary as u64);
        let numbers = match self.model.weights.device().is_cpu() {
            true => HEAD_GROUPS as u64 * tokens.min(HEAD_ROWS as u64) * hidden,
            false => tokens.min(HEAD_TILE.0 as u64) * words.min(HEAD_TILE.1 as u64),
        };
        self.precision().bytes(Purpose::Sum, numbers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tunebox_compute::fused::TapSet;

    use super::*;
    use crate::adapter::AdapterSettings;
    use crate::configuration::Configuration;
    use crate::policy::PolicySettings;
    use crate::tiny;

    /// The bytes that a policy saves for one row of `tokens` tokens, all of them targets.
    fn kept(policy: &Policy, tokens: usize) -> f64 {
        let ids = (0..tokens).map(|at| 2 + at as u32 % 30).collect();
        let rows = Arc::new(Rows::new(vec![ids], vec![vec![true; tokens]]).unwrap());
        policy.score(&View::Policy, &rows, TapSet::default(), 1.0, true).unwrap().saved_bytes() as f64
    }

    #[test]
    fn the_estimate_of_a_pass_is_what_it_keeps() {
        for (name, configuration) in tiny::families() {
            // Sides as unlike those of a head or a log-sum as they are in real models.
            let sizes = Configuration { hidden: 64, intermediate: 256, head_dim: 32, ..configuration };
            for recompute in [Recompute::None, Recompute::Blocks] {
                let settings = PolicySettings { recompute, ..PolicySettings::default() };
                let policy = Policy::new(tiny::model(sizes.clone(), 1), &AdapterSettings::default(), settings).unwrap();
                let found = kept(&policy, 96) - kept(&policy, 32);
                // The head keeps three times the stream, which counts as scratch; a block that is run again counts.
                let (layers, hidden) = (sizes.layers as u64, sizes.hidden as u64);
                let beside = match recompute {
                    Recompute::None => 0,
                    Recompute::Blocks => {
                        policy.base_token_bytes(Recompute::Blocks, sizes.layers) - 4 * layers * hidden
                            + policy.adapted_bytes(recompute, sizes.layers)
                    }
                };
                let wanted =
                    (policy.pass_memory(64, 64, recompute).kept + 64 * (4 * 2 * hidden)) as f64 - (64 * beside) as f64;
                let off = (wanted / found - 1.0).abs();
                assert!(off < 0.03, "{name}, {recompute:?}: {wanted} for {found}");
            }
        }
    }

    #[test]
    fn slices_that_wait_count_up_to_what_may_be_kept() {
        let settings =
            |limit| PolicySettings { slice: Slice::Rows(1), max_saved_bytes: limit, ..PolicySettings::default() };
        let kept = |limit, slice, together| {
            let policy = Policy::new(tiny::model(tiny::llama(), 1), &AdapterSettings::default(), settings(limit));
            policy.unwrap().pass_memory(slice, together, Recompute::None).kept
        };
        let whole = kept(0, 64, 64);
        assert_eq!(kept(0, 64, 640), whole);
        assert_eq!(kept(2 * whole, 64, 640), 3 * whole);
        assert_eq!(kept(u64::MAX, 64, 640), 10 * whole);
    }
}
