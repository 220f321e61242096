//! A tokenizer out of a Hugging Face folder: `tokenizer.json`, and the small files beside it that name special tokens.
//!
//! Chat templates are read by [`crate::chat`].

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::normalizers::NFC;
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper};
use tunebox_foundation::bounded;
use tunebox_foundation::panics::catch_panic;

use super::growth::Steps;
use super::special::{ROLES, Special, Specials};
use super::{Tokenizer, error};
use crate::error::{Error, Result};
use crate::files;
use crate::watchdog::Work;

/// The most bytes of a `tokenizer.json`: twice those of the largest that are published.
const MAX_BYTES: u64 = 64 << 20;

impl Tokenizer {
    /// Reads the tokenizer of a Hugging Face folder: `tokenizer.json`, and special tokens from `tokenizer_config.json`,
    /// `special_tokens_map.json`, `generation_config.json` and `config.json`, those that exist.
    ///
    /// # Errors
    /// When the folder has no `tokenizer.json`, one of these files cannot be read, is longer than 64 MiB
    /// (`tokenizer.json`) or 32 MiB (others) or is broken, or the tokenizer has steps that are unknown or may make a
    /// text more than 512 times longer.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let work = Work::on_file("reading the tokenizer", &path);
        let _mark = work.begin();
        catch_panic(|| Self::read(folder, &path)).unwrap_or_else(|panic| Err(error::malformed(&path, panic)))
    }

    /// Does the work of [`Tokenizer::from_folder`], without catching panics of the library. `path` is the
    /// `tokenizer.json`, of at most [`MAX_BYTES`]. Removes its padding, truncation and dropout, and checks the growth
    /// of its steps before any of them runs.
    fn read(folder: &Path, path: &Path) -> Result<Self> {
        let bytes = match bounded::read(path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error::absent(folder)),
            Err(error) => return Err(Error::file(path, error)),
        };
        // The library runs the normalizer over the added tokens while it reads the file.
        let early: Early = serde_json::from_slice(&bytes).map_err(|error| error::malformed(path, error))?;
        early.check().map_err(|error| error::malformed(path, error))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error::malformed(path, error))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(error::broken)?;
        remove_dropout(&mut inner);

        let settings = Settings::read(folder)?;
        settings.add_missing_normalizer(&mut inner)?;
        Steps::of(&inner).map_err(|error| error::malformed(path, error))?;
        settings.add_tokens(&mut inner)?;
        let specials = settings.register_specials(&mut inner)?;
        let (leading, trailing) = settings.surrounding_ids(&inner, &specials)?;
        Self::assemble(inner, leading, trailing, specials, path)
    }
}

/// Removes the dropout of merges from a BPE model. With it the library leaves out random merges, so that a text has
/// other tokens each time and on each rank of a run.
fn remove_dropout(inner: &mut tokenizers::Tokenizer) {
    if let ModelWrapper::BPE(model) = inner.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        inner.with_model(model);
    }
}

/// The parts of a `tokenizer.json` that the library uses already while it reads the file: the normalizer runs over the
/// added tokens. Both are checked before.
#[derive(Deserialize)]
struct Early {
    normalizer: Option<NormalizerWrapper>,
    #[serde(default)]
    added_tokens: Vec<Added>,
}

/// An added token: its text.
#[derive(Deserialize)]
struct Added {
    content: String,
}

impl Early {
    /// Checks how long the normalizer may make the added tokens. Errors: a step without a bound, or too many bytes.
    fn check(&self) -> std::result::Result<(), String> {
        let bytes = self.added_tokens.iter().map(|token| token.content.len()).sum();
        Steps::check_normalizer(self.normalizer.as_ref(), bytes)
    }
}

/// The JSON objects of the files beside `tokenizer.json`: `tokenizer_config.json`, `special_tokens_map.json`,
/// `generation_config.json` and `config.json`. Empty for a missing file.
struct Settings {
    tokenizer: Map<String, Value>,
    map: Map<String, Value>,
    generation: Map<String, Value>,
    model: Map<String, Value>,
}

impl Settings {
    /// Reads the small files of a folder; a missing one counts as empty.
    fn read(folder: &Path) -> Result<Self> {
        Ok(Self {
            tokenizer: object(&folder.join("tokenizer_config.json"))?,
            map: object(&folder.join("special_tokens_map.json"))?,
            generation: object(&folder.join("generation_config.json"))?,
            model: object(&folder.join("config.json"))?,
        })
    }

    /// Sets an NFC normalizer if `tokenizer.json` has no normalizer, as some converters leave it out, and
    /// `tokenizer_class` is `Qwen2Tokenizer` or `Qwen2TokenizerFast`; else changes nothing.
    fn add_missing_normalizer(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        let class = self.tokenizer.get("tokenizer_class").and_then(Value::as_str);
        if inner.get_normalizer().is_none() && matches!(class, Some("Qwen2Tokenizer" | "Qwen2TokenizerFast")) {
            inner.with_normalizer(Some(NFC)).map_err(error::broken)?;
        }
        Ok(())
    }

    /// Adds the tokens of `added_tokens_decoder` in `tokenizer_config.json` whose ids are not added tokens yet. Their
    /// ids only give the order: the library numbers new tokens itself. Skips entries without a numeric id or a text.
    /// Does nothing if the key is missing. Errors: the normalizer may lengthen the tokens too much.
    fn add_tokens(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        let Some(listed) = self.tokenizer.get("added_tokens_decoder").and_then(Value::as_object) else {
            return Ok(());
        };
        let known = inner.get_added_vocabulary().get_added_tokens_decoder().clone();
        let tokens: BTreeMap<u32, AddedToken> = listed
            .iter()
            .filter_map(|(id, token)| Some((id.parse::<u32>().ok()?, parse_added_token(token)?)))
            .filter(|(id, _)| !known.contains_key(id))
            .collect();
        let bytes = tokens.values().map(|token| token.content.len()).sum();
        Steps::check_normalizer(inner.get_normalizer(), bytes).map_err(error::broken)?;
        inner.add_tokens(tokens.into_values()).map_err(error::broken)?;
        Ok(())
    }

    /// Finds the tokens that have a role, skipping those without an id in `inner`, and registers them as special unless
    /// they are added tokens already. Collects the ids that end an answer: first that of `eos_token`, then
    /// `eos_token_id` of `generation_config.json`, or, if that has none, `eos_token_id` of `config.json` and the
    /// special tokens spelled as in [`TURN_ENDS`](super::special::TURN_ENDS).
    fn register_specials(&self, inner: &mut tokenizers::Tokenizer) -> Result<Specials> {
        let mut found = Specials::default();
        for role in ROLES {
            let Some(text) = self.role(role) else { continue };
            let Some(id) = inner.token_to_id(text) else { continue };
            found.named.push(Special { role: role.to_owned(), text: text.to_owned(), id });
        }
        let known = inner.get_added_vocabulary().get_added_tokens_decoder().clone();
        let tokens: Vec<AddedToken> = found
            .named
            .iter()
            .filter(|special| !known.contains_key(&special.id))
            .map(|special| AddedToken::from(special.text.as_str(), true))
            .collect();
        inner.add_special_tokens(tokens).map_err(error::broken)?;

        if let Some(id) = found.id("eos_token") {
            found.add_eos(id);
        }
        let listed = parse_ids(self.generation.get("eos_token_id"));
        if listed.is_empty() {
            parse_ids(self.model.get("eos_token_id")).into_iter().for_each(|id| found.add_eos(id));
            found.add_turn_ends(inner);
        }
        listed.into_iter().for_each(|id| found.add_eos(id));
        Ok(found)
    }

    /// Returns the text of the token with this role, such as `eos_token`, from `tokenizer_config.json`, or, if that has
    /// none or null, from `special_tokens_map.json`. The value is a text or an object with a text `content`; else
    /// `None`.
    fn role(&self, role: &str) -> Option<&str> {
        let value = self.tokenizer.get(role).filter(|value| !value.is_null()).or_else(|| self.map.get(role))?;
        value.as_str().or_else(|| value.get("content")?.as_str())
    }

    /// The ids before and after a whole text, in this order. If `tokenizer_config.json` has a boolean `add_bos_token`
    /// or `add_eos_token`: the `bos_token` before if the first is true, the `eos_token` after if the second is; a
    /// missing one counts as false. Else those that `tokenizer.json` puts around the sample text `a`.
    fn surrounding_ids(&self, inner: &tokenizers::Tokenizer, specials: &Specials) -> Result<(Vec<u32>, Vec<u32>)> {
        let flag = |key| self.tokenizer.get(key).and_then(Value::as_bool);
        let flags = (flag("add_bos_token"), flag("add_eos_token"));
        if flags != (None, None) {
            let id = |role, wanted: Option<bool>| specials.id(role).filter(|_| wanted == Some(true));
            let (bos, eos) = (id("bos_token", flags.0), id("eos_token", flags.1));
            return Ok((bos.into_iter().collect(), eos.into_iter().collect()));
        }

        let ids = |special| inner.encode("a", special).map(|encoding| encoding.get_ids().to_vec());
        let bare = ids(false).map_err(error::encode)?;
        let full = ids(true).map_err(error::encode)?;
        let at = full.windows(bare.len().max(1)).position(|window| window == bare).unwrap_or(0);
        let end = (at + bare.len()).min(full.len());
        Ok((full[..at].to_vec(), full[end..].to_vec()))
    }
}

/// Reads a JSON object from a file; empty if there is no file. Errors: the file cannot be read, is longer than 32 MiB,
/// or is not a JSON object.
pub(crate) fn object(path: &Path) -> Result<Map<String, Value>> {
    let Some(text) = read_optional(path)? else { return Ok(Map::new()) };
    serde_json::from_str(&text).map_err(|error| error::malformed(path, error))
}

/// Reads a UTF-8 file; `None` if there is no file. Errors: it cannot be read, is longer than 32 MiB, or is not UTF-8.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>> {
    match files::read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file(path, error)),
    }
}

/// Parses an entry of `added_tokens_decoder`; missing flags are false. `None` if it has no text `content`.
fn parse_added_token(token: &Value) -> Option<AddedToken> {
    let flag = |key| token.get(key).and_then(Value::as_bool).unwrap_or(false);
    let added = AddedToken::from(token.get("content")?.as_str()?, flag("special"));
    Some(
        added
            .single_word(flag("single_word"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(flag("normalized")),
    )
}

/// The ids in a value, one id or a list of ids; skips everything that is not an id.
fn parse_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
