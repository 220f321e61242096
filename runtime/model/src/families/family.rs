//! What describes a model family: its names, its defaults, and how its files are read and written.

use serde_json::Value;

use super::gguf::Keys;
use super::gguf_keys::OwnKeys;
use crate::configuration::Configuration;
use crate::error::Result;
use crate::fields::Fields;

/// A model family: what differs from other families.
pub(super) struct Family {
    /// Its name in configurations: the `model_type` of its text models.
    pub(super) name: &'static str,
    /// Every `model_type` that is read as this family.
    pub(super) model_types: &'static [&'static str],
    /// Its class in transformers, which `architectures` of a written `config.json` names.
    pub(super) class: &'static str,
    /// Its `general.architecture` in GGUF files. Of several families with the same one, the first in the list is read,
    /// and its `from_gguf` recognizes the others.
    pub(super) architecture: &'static str,
    /// Whether LongRoPE (`longrope`, `su` or `yarn` in its files) is the only way in which it scales rotations.
    pub(super) long_rope: bool,
    /// The share of the features of a head that is rotated by default; `None` for families that rotate all.
    pub(super) partial_rotation: Option<f64>,
    /// Whether `attention_bias` of `config.json` gives the attention biases.
    pub(super) attention_bias: bool,
    /// Whether `mlp_bias` of `config.json` gives the feed-forward part biases.
    pub(super) mlp_bias: bool,
    /// The default number of query heads; `None` if `config.json` has to name it.
    pub(super) heads: Option<usize>,
    /// The default number of key and value heads; `None` for as many as query heads.
    pub(super) kv_heads: Option<usize>,
    /// The default width of a head; `None` for the hidden dimension divided by the number of query heads.
    pub(super) head_dim: Option<usize>,
    /// The default number of rows of the embedding; `None` if `config.json` has to name it.
    pub(super) vocabulary: Option<usize>,
    /// The default of the longest context, in tokens.
    pub(super) max_positions: usize,
    /// Whether the output head is the embedding matrix by default.
    pub(super) tied: bool,
    /// The default epsilon that norms add to the mean square.
    pub(super) norm_epsilon: f64,
    /// The default base of the rotation frequencies.
    pub(super) theta: f64,
    /// The default base of the second rotation, that of local layers; `None` for families with one rotation.
    pub(super) local_theta: Option<f64>,
    /// The original context of scaled rotations, in tokens, if `config.json` does not name it outside the rotation's
    /// object.
    pub(super) original: Option<f64>,
    /// Sets what all models of the family share, whatever file they come from. Gets a plain decoder with its sizes set.
    pub(super) set_architecture: fn(&mut Configuration),
    /// Sets what only this family's `config.json` says, after the shared keys are read.
    pub(super) from_hugging_face: fn(&Fields<'_>, &mut Configuration) -> Result<()>,
    /// Sets what only this family's GGUF files say, after the shared keys are read.
    pub(super) from_gguf: fn(&Keys<'_>, &mut Configuration) -> Result<()>,
    /// Adds this family's own keys to a `config.json`.
    pub(super) to_hugging_face: fn(&Configuration, &mut Value),
    /// Returns what only this family's GGUF files say; `None` for families whose GGUF files have more keys, or another
    /// kind of tokenizer, than are written.
    pub(super) to_gguf: Option<fn(&Configuration) -> OwnKeys>,
    /// Whether the two rows of a rotated pair of features are adjacent in the query and key weights of GGUF files, in
    /// Hugging Face's half a head apart.
    pub(super) gguf_pairs: bool,
}

impl Family {
    /// The base of all families: plain decoders without a name and keys of their own, whose sizes `config.json` has to
    /// name.
    pub(super) const PLAIN: Self = Self {
        name: "",
        model_types: &[],
        class: "",
        architecture: "",
        long_rope: false,
        partial_rotation: None,
        attention_bias: false,
        mlp_bias: false,
        heads: None,
        kv_heads: None,
        head_dim: None,
        vocabulary: None,
        max_positions: 2048,
        tied: false,
        norm_epsilon: 1e-6,
        theta: 10_000.0,
        local_theta: None,
        original: None,
        set_architecture: |_| {},
        from_hugging_face: |_, _| Ok(()),
        from_gguf: |_, _| Ok(()),
        to_hugging_face: |_, _| {},
        to_gguf: None,
        gguf_pairs: false,
    };
}
