//! The text of a new run file: what is known is given, every other key stands behind `#` with its default.

use tunebox_package::settings::range;
use tunebox_package::{Manifest, Setting};
use tunebox_training::plan::trains;

use super::{Key, Table, tables};
use crate::key_flags::number_or_text;
use crate::package::describe::{has_import, named_grants};
use crate::terminal::wrap;

/// Characters of a comment's line, without `# `.
const WIDTH: usize = 98;

/// Where the JSON schema is written, beside the run file.
pub(crate) const SCHEMA_FILE: &str = ".tunebox/run-file.schema.json";

/// What a new run file is for.
pub(crate) struct NewRunFile<'a> {
    /// The model as the file is to name it.
    pub(crate) model: &'a str,
    /// The data file as the run file is to name it.
    pub(crate) data: &'a str,
    /// The validation data as the run file is to name it, or how much is held back.
    pub(crate) validation: Option<String>,
    /// The method as the run file is to name it.
    pub(crate) method: &'a str,
    /// The manifest of the method.
    pub(crate) manifest: &'a Manifest,
    /// The interfaces that the method imports.
    pub(crate) imports: &'a [String],
    /// The peak learning rate of an adapter unless the file gives one.
    pub(crate) rate: f64,
    /// The verifier that judges completions, and a comment about it; `None` if the method asks for none.
    pub(crate) verifier: Option<(&'a str, &'a str)>,
}

impl NewRunFile<'_> {
    /// Returns the text of the run file. It gives model, data, method, the grants that the method needs, settings of
    /// the method without a default, the teacher and the verifier; every other key is a comment.
    pub(crate) fn text(&self) -> String {
        let introduction = format!(
            "Trains with `{}`. A line behind `#` shows a default: remove the `#` and change the value. `tunebox help run-file` \
             explains every key, and the limits of methods.",
            self.method
        );
        let mut text = format!("#:schema ./{SCHEMA_FILE}\n{}", comment(&introduction));
        // A run without teachers, verifiers or an environment has no such table, and limits are seldom changed.
        let is_shown = |table: &&Table| match table.heading.as_str() {
            "[limits]" | "[environment]" => false,
            "[[teacher]]" => has_import(self.imports, "teacher"),
            "[[verifier]]" => self.verifier.is_some(),
            "[train.adapter]" => self.imports.iter().any(|import| trains(import)),
            _ => true,
        };
        for table in tables().iter().filter(is_shown) {
            text += &format!("\n{}{}\n", comment(&table.text), table.heading);
            // With the line break before the first key.
            let given = text.len() - 1;
            text += &self.value_lines(&table.heading);
            let is_given = |key: &&Key| key.is_required || text[given..].contains(&format!("\n{} = ", key.name));
            let keys: String =
                table.keys.iter().filter(|key| !is_given(key)).map(|key| self.default_lines(key)).collect();
            text += &keys;
            if table.heading == "[method]" {
                text += &self.manifest.settings.iter().map(setting_lines).collect::<String>();
            }
        }
        text
    }

    /// Returns a key with its effect, values and default, all as comments. `rate` without a default shows
    /// [`NewRunFile::rate`], `epochs` shows 1, and any other key without a default `…`.
    fn default_lines(&self, key: &Key) -> String {
        let about = format!("{} ({})", key.text.trim_end_matches('.'), key.takes);
        let value = match (key.name, &key.default) {
            ("rate", None) => format!("{:e}", self.rate),
            ("epochs", None) => "1".to_owned(),
            (_, default) => default.clone().unwrap_or_else(|| "…".to_owned()),
        };
        format!("\n{}# {} = {value}\n", comment(&about), key.name)
    }

    /// Returns the lines of TOML that the run file has in the table `heading`: the `path` of `[model]`, `[data]` and
    /// `[[teacher]]`, the `use` of `[method]`, with the grants that its imports need, and that of `[[verifier]]`. Empty
    /// for another table, which has defaults only.
    fn value_lines(&self, heading: &str) -> String {
        let line = |key: &str, value: &str| format!("{key} = {}\n", toml::Value::String(value.to_owned()));
        match heading {
            "[model]" => line("path", self.model),
            "[data]" => {
                let validation =
                    self.validation.as_ref().map(|typed| format!("validation = {}\n", number_or_text(typed)));
                line("path", self.data) + &validation.unwrap_or_default()
            }
            "[method]" => {
                let grants = match named_grants(self.imports) {
                    grants if grants.is_empty() => grants,
                    grants => format!("# What this method cannot work without:\ngrants = [{grants}]\n"),
                };
                line("use", self.method) + &grants
            }
            "[[teacher]]" => {
                let why = "Name a larger model of the same vocabulary here: from itself the model learns nothing.";
                comment(why) + &line("path", self.model)
            }
            "[[verifier]]" => {
                let (verifier, why) = self.verifier.unwrap_or_default();
                comment(why) + &line("use", verifier)
            }
            _ => String::new(),
        }
    }
}

/// Returns a setting of the method with its effect and range, and its default as a comment. A setting without a default
/// is not a comment: its value is `…`, which is no TOML, so that the user must replace it.
fn setting_lines(setting: &Setting) -> String {
    let about = format!("{} ({})", setting.doc.trim_end_matches('.'), range(setting));
    let (mark, value) = match &setting.default {
        Some(value) => ("# ", toml_value(value)),
        None => ("", "…".to_owned()),
    };
    format!("\n{}{mark}{} = {value}\n", comment(&about), setting.name)
}

/// Formats a value of a setting as TOML. JSON serves for that: text, numbers and booleans look the same in both.
fn toml_value(value: &tunebox_package::Value) -> String {
    serde_json::to_value(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

/// Returns a text as lines that begin with `# `, wrapped at [`WIDTH`] characters.
fn comment(text: &str) -> String {
    wrap(text, WIDTH).iter().map(|line| format!("# {line}\n")).collect()
}
