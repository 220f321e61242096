//! What describes a model family: its names, its defaults, and how its files are read and written.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::keys::Keys;
use crate::configuration::Configuration;
use crate::error::Result;

/// What a family differs in.
pub(super) struct Family {
    /// Its name in configurations: the `model_type` of its text models.
    pub(super) name: &'static str,
    /// Every `model_type` that is read as this family.
    pub(super) model_types: &'static [&'static str],
    /// Its `general.architecture` in GGUF files; none: its GGUF files carry another family's name.
    pub(super) architecture: Option<&'static str>,
    /// Whether heads may turn in part.
    pub(super) partial_rotation: bool,
    /// What transformers assumes for keys that `config.json` leaves out.
    pub(super) defaults: Defaults,
    /// Turns a plain decoder, made from the shared keys of `config.json`, into this family's.
    pub(super) from_hugging_face: fn(&Fields<'_>, &mut Configuration) -> Result<()>,
    /// Turns a plain decoder, made from the shared keys of a GGUF file, into this family's.
    pub(super) from_gguf: fn(&Keys<'_>, &mut Configuration) -> Result<()>,
    /// Adds this family's own keys to a `config.json`.
    pub(super) to_hugging_face: fn(&Configuration, &mut Map<String, Value>),
    /// How GGUF files store its weights.
    pub(super) gguf_layout: GgufLayout,
}

/// Values of keys that `config.json` may leave out.
#[derive(Clone, Copy)]
pub(super) struct Defaults {
    pub(super) heads: Option<usize>,
    /// None: as many as query heads.
    pub(super) kv_heads: Option<usize>,
    /// None: the hidden width divided by the heads.
    pub(super) head_dim: Option<usize>,
    pub(super) vocabulary: Option<usize>,
    pub(super) max_positions: usize,
    pub(super) tied: bool,
}

impl Defaults {
    /// Sizes that have to be named, as many key heads as query heads, and a head of its own.
    pub(super) const NONE: Self =
        Self { heads: None, kv_heads: None, head_dim: None, vocabulary: None, max_positions: 2048, tied: false };
}

/// How GGUF files store the weights of a family. By default as Hugging Face does, with two norms a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GgufLayout {
    /// Whether rows of queries and keys lie in rotation pairs, one beside the other.
    pub(crate) pairs_adjacent: bool,
    /// Whether norms are stored as 1 + weight.
    pub(crate) norms_plus_one: bool,
    /// Whether blocks have four norms.
    pub(crate) sandwich_norms: bool,
}

impl GgufLayout {
    /// As Hugging Face stores them, with two norms a block.
    pub(super) const PLAIN: Self = Self { pairs_adjacent: false, norms_plus_one: false, sandwich_norms: false };
    /// Llama's: pairs of a rotation lie beside each other, in Hugging Face's files half a head apart.
    pub(super) const LLAMA: Self = Self { pairs_adjacent: true, ..Self::PLAIN };
    /// Gemma's: four norms a block, stored as 1 + weight.
    pub(super) const GEMMA: Self = Self { norms_plus_one: true, sandwich_norms: true, ..Self::PLAIN };
}
