//! A tokenizer as the files of a Hugging Face folder, for models that came without such files.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Tokenizer;
use crate::error::{Error, Result};
use crate::files;

impl Tokenizer {
    /// Writes `tokenizer.json` and `tokenizer_config.json` into an existing folder; replaces files of these names. In
    /// `tokenizer.json`, a post-processor that adds the leading and trailing ids follows the tokenizer's own.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let unwritable = |error: &dyn std::fmt::Display| Error::Argument(format!("the tokenizer has no JSON: {error}"));
        let text = self.inner.to_string(false).map_err(|error| unwritable(&error))?;
        let mut whole: Map<String, Value> = serde_json::from_str(&text).map_err(|error| unwritable(&error))?;
        if let Some(around) = self.template_processing() {
            let inner = whole.get("post_processor").filter(|found| !found.is_null()).cloned();
            let all: Vec<Value> = inner.into_iter().chain([around]).collect();
            whole.insert("post_processor".into(), json!({ "type": "Sequence", "processors": all }));
        }
        files::write(&folder.join("tokenizer.json"), Value::Object(whole).to_string())?;
        let settings = serde_json::to_string_pretty(&self.settings()).map_err(|error| unwritable(&error))?;
        files::write(&folder.join("tokenizer_config.json"), &(settings + "\n"))
    }

    /// The content of `tokenizer_config.json`: class, whether ids are put before (`add_bos_token`) and after
    /// (`add_eos_token`) a text, and the spellings of tokens by role.
    fn settings(&self) -> Value {
        let mut table = Map::new();
        table.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        table.insert("add_bos_token".into(), (!self.leading.is_empty()).into());
        table.insert("add_eos_token".into(), (!self.trailing.is_empty()).into());
        for (role, text) in self.special_tokens() {
            table.insert(role.to_owned(), text.into());
        }
        Value::Object(table)
    }

    /// The post-processor for `tokenizer.json` that puts the leading and trailing ids around a text, or around each
    /// text of a pair; `None` if there are no such ids. It is for readers that ignore `add_bos_token` and
    /// `add_eos_token`.
    fn template_processing(&self) -> Option<Value> {
        if self.leading.is_empty() && self.trailing.is_empty() {
            return None;
        }
        let text = |id: &u32| self.token(*id).unwrap_or_default();
        let around = |part: u32, name: &str| -> Vec<Value> {
            let special = |id: &u32| json!({ "SpecialToken": { "id": text(id), "type_id": part } });
            let middle = json!({ "Sequence": { "id": name, "type_id": part } });
            self.leading.iter().map(special).chain([middle]).chain(self.trailing.iter().map(special)).collect()
        };
        let (single, second) = (around(0, "A"), around(1, "B"));
        let pair = [single.as_slice(), &second].concat();
        let ids = self.leading.iter().chain(&self.trailing);
        let tokens: Map<String, Value> =
            ids.map(|id| (text(id), json!({ "id": text(id), "ids": [id], "tokens": [text(id)] }))).collect();
        Some(json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        let whole = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": { "<s>": 0, "a": 1, "b": 2, "</s>": 3 }, "unk_token": "a" },
        });
        let settings =
            json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": false });
        std::fs::write(folder.path().join("tokenizer.json"), whole.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
        Tokenizer::from_folder(folder.path()).unwrap()
    }

    #[test]
    fn a_written_tokenizer_gives_the_same_ids() {
        let folder = tempfile::tempdir().unwrap();
        let written = tokenizer();
        written.write(folder.path()).unwrap();
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(read.encode("a b </s> a", true).unwrap(), vec![0, 1, 2, 3, 1]);
        assert_eq!(written.encode("a b </s> a", true).unwrap(), vec![0, 1, 2, 3, 1]);
        assert_eq!((read.bos(), read.eos()), (Some(0), [3].as_slice()));
    }

    #[test]
    fn a_reader_that_knows_no_flags_puts_the_same_ids_around_a_text() {
        let folder = tempfile::tempdir().unwrap();
        tokenizer().write(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(read.encode("a b", true).unwrap(), vec![0, 1, 2]);
    }
}
