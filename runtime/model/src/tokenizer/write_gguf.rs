//! A byte-level BPE tokenizer as metadata of a GGUF file, for models that come from a folder.

use std::collections::BTreeMap;

use candle_core::quantized::gguf_file::Value;
use serde_json::Value as Json;
use tokenizers::models::ModelWrapper;
use tunebox_foundation::explain::Explanation;

use super::{Tokenizer, byte_level, error};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::weights::gguf::write::TypedMetadata;

/// The numbers of kinds in `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

impl Tokenizer {
    /// Returns the metadata keys `tokenizer.ggml.*` of this tokenizer. `configuration` is that of the model, whose
    /// embedding may have more rows than there are tokens. The end of text is the token that the tokenizer names, else
    /// the first end token of the configuration; an end token of the configuration that is not the end of text is the
    /// end of a turn.
    ///
    /// # Errors
    /// When the tokenizer is no byte-level BPE, or GGUF has no name for the way it splits text; when it puts other ids
    /// around a text than a beginning and an end of text; or when it has more tokens than the embedding has rows.
    pub(crate) fn to_gguf(&self, configuration: &Configuration) -> Result<TypedMetadata> {
        let ModelWrapper::BPE(_) = self.inner.get_model() else {
            return Err(refusal("it is no byte-pair encoding"));
        };
        let Some(style) = byte_level::name_style(&self.inner)? else {
            return Err(refusal("GGUF files have no name for the way it splits text into words"));
        };
        let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
        let (tokens, kinds) = self.tokens(configuration.vocabulary)?;
        let mut metadata = vec![
            text("tokenizer.ggml.model", "gpt2"),
            text("tokenizer.ggml.pre", style),
            ("tokenizer.ggml.tokens".into(), Value::Array(tokens)),
            ("tokenizer.ggml.token_type".into(), Value::Array(kinds)),
            ("tokenizer.ggml.merges".into(), Value::Array(self.merges()?)),
        ];
        metadata.extend(self.special_ids(configuration)?);
        Ok(metadata)
    }

    /// The spellings of tokens and their kinds, by id, one for each of the `rows` of the embedding. An id without a
    /// token is spelled `[PAD…]` with its number and is unused. Errors: more tokens than rows.
    fn tokens(&self, rows: usize) -> Result<(Vec<Value>, Vec<Value>)> {
        if self.size > rows {
            let why = format!("it has {} tokens, and the embedding of the model has {rows} rows", self.size);
            return Err(refusal(&why));
        }
        let spelled: BTreeMap<u32, String> =
            self.inner.get_vocab(true).into_iter().map(|(token, id)| (id, token)).collect();
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        let token = |id: u32| match (spelled.get(&id), added.get(&id)) {
            (None, _) => (format!("[PAD{id}]"), UNUSED),
            (Some(text), Some(token)) => (text.clone(), if token.special { CONTROL } else { USER_DEFINED }),
            (Some(text), None) => (text.clone(), NORMAL),
        };
        let all = (0..rows as u32).map(token).map(|(text, kind)| (Value::String(text), Value::I32(kind)));
        Ok(all.unzip())
    }

    /// The merges in order, each as two pieces with a space between them; none if the model has none. Errors: a merge
    /// in another form than a text or a pair of texts.
    fn merges(&self) -> Result<Vec<Value>> {
        let model = serde_json::to_value(self.inner.get_model()).map_err(error::broken)?;
        let lines = model.get("merges").and_then(Json::as_array).into_iter().flatten();
        let line = |merge: &Json| match merge {
            Json::String(line) => Ok(Value::String(line.clone())),
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(left), Json::String(right)] => Ok(Value::String(format!("{left} {right}"))),
                _ => Err(refusal("a merge of it is no pair")),
            },
            _ => Err(refusal("a merge of it is no pair")),
        };
        lines.map(line).collect()
    }

    /// Returns the metadata keys of the ids of special tokens, and the two keys that say whether the tokenizer adds a
    /// token at the beginning and at the end of a text. If the tokenizer does not name its beginning of text, end of
    /// text or padding, their ids come from the configuration. The end of a turn is the first end token of the
    /// configuration that is not the end of text. Errors: the tokenizer puts other ids around a text than a beginning
    /// and an end of text.
    fn special_ids(&self, configuration: &Configuration) -> Result<TypedMetadata> {
        let bos = self.bos().or(configuration.bos);
        let eos = self.specials.id("eos_token").or(configuration.eos.first().copied());
        let is = |ids: &[u32], one: Option<u32>| ids.is_empty() || one.is_some_and(|one| ids == [one]);
        if !is(&self.leading, bos) || !is(&self.trailing, eos) {
            return Err(refusal("it puts other tokens around a text than one at its beginning and one at its end"));
        }
        let turn = configuration.eos.iter().copied().find(|id| Some(*id) != eos);
        let ids = [
            ("bos", bos),
            ("eos", eos),
            ("eot", turn),
            ("padding", self.pad().or(configuration.pad)),
            ("unknown", self.specials.id("unk_token")),
        ];
        let id = |(role, id): (&str, Option<u32>)| Some((format!("tokenizer.ggml.{role}_token_id"), Value::U32(id?)));
        let mut keys: TypedMetadata = ids.into_iter().filter_map(id).collect();
        keys.push(("tokenizer.ggml.add_bos_token".into(), Value::Bool(!self.leading.is_empty())));
        keys.push(("tokenizer.ggml.add_eos_token".into(), Value::Bool(!self.trailing.is_empty())));
        Ok(keys)
    }
}

/// The error for a tokenizer that is not written as GGUF metadata.
fn refusal(why: &str) -> Error {
    let hint = "export with `--to hf` and convert that folder by llama.cpp's `convert_hf_to_gguf.py`";
    let what = "the model's tokenizer cannot be written to a GGUF file";
    Explanation::new("export", what).with_why(why).with_hint(hint).into()
}
