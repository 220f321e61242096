//! Regular expressions that select modules by path, with the meaning that they have in PEFT.

use fancy_regex::{Regex, RegexBuilder};

use crate::error::{Error, Result};

/// The most steps back that matching one path may take; an expression of PEFT's users takes a few hundred.
const MAX_STEPS_BACK: usize = 100_000;

/// A regular expression over the paths of modules, such as `model.layers.0.self_attn.q_proj`.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    expression: Regex,
}

impl Pattern {
    /// Compiles an expression that matches whole paths, as PEFT takes the text `target_modules`.
    ///
    /// # Errors
    /// When the text is not a regular expression.
    pub(crate) fn of_path(text: &str) -> Result<Self> {
        Self::compile(text, "")
    }

    /// Compiles an expression that matches a whole path or an end of it after a dot, as PEFT takes the keys of
    /// `rank_pattern` and `alpha_pattern`.
    ///
    /// # Errors
    /// When the text is not a regular expression.
    pub(crate) fn of_path_end(text: &str) -> Result<Self> {
        Self::compile(text, r"(?:.*\.)?")
    }

    /// Compiles an expression that matches whole paths: a part that matches the expression `before`, then one that
    /// matches `text`. Errors: `text` is not a regular expression.
    fn compile(text: &str, before: &str) -> Result<Self> {
        let build = |text: &str| RegexBuilder::new(text).backtrack_limit(MAX_STEPS_BACK).build();
        // Alone first: `a)(b` is no expression, and would be one within a group.
        let expression = build(text).and_then(|_| build(&format!(r"\A{before}(?:{text})\z")));
        let expression = expression.map_err(|error| {
            let message = error.to_string();
            let why = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Error::Argument(format!("`{text}` is not a regular expression: {why}"))
        })?;
        Ok(Self { text: text.to_owned(), expression })
    }

    /// Whether the expression matches a path.
    ///
    /// # Errors
    /// When that takes more than [`MAX_STEPS_BACK`] steps back.
    pub(crate) fn is_match(&self, path: &str) -> Result<bool> {
        let too_long = |_| Error::Argument(format!("matching `{}` with `{path}` takes too long", self.text));
        self.expression.is_match(path).map_err(too_long)
    }
}

/// Checks that a text is a regular expression.
///
/// # Errors
/// When it is not; the message says where.
pub fn check_pattern(text: &str) -> Result<()> {
    Pattern::of_path(text).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `re.fullmatch(expression, path)` and `get_pattern_key([expression], path)` of PEFT 0.21 find.
    #[test]
    fn expressions_match_as_in_peft() {
        let path = "model.layers.11.self_attn.q_proj";
        for (text, whole, end) in [
            ("q_proj", false, true),
            (".*q_proj", true, true),
            (".*_attn.[qv]_proj", true, true),
            (r".*\.(q|v)_proj", true, true),
            ("(?!.*mlp).*proj", true, true),
            ("proj", false, false),
            ("layers.1.self_attn.q_proj", false, false),
            (r"layers\.1[0-3]\..*", false, true),
            ("^model.layers.11.self_attn.q_proj$", true, true),
            ("k_proj|self_attn.q_proj", false, true),
            ("", false, false),
        ] {
            assert_eq!(Pattern::of_path(text).unwrap().is_match(path).unwrap(), whole, "`{text}` as a whole");
            assert_eq!(Pattern::of_path_end(text).unwrap().is_match(path).unwrap(), end, "`{text}` as an end");
        }
    }

    #[test]
    fn a_text_that_is_no_expression_is_refused_with_the_reason() {
        for text in ["(q_proj", "q)(k", "[a"] {
            let error = check_pattern(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a regular expression: ")), "{error}");
        }
        let endless = Pattern::of_path(r"(a+)+\1b").unwrap();
        assert!(endless.is_match(&"a".repeat(64)).is_err());
    }
}
