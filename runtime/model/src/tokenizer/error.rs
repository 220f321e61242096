//! What can be wrong with a tokenizer, and what to do about it.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explain;

/// What can be wrong with a tokenizer, or with a text that it is given.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "tokenizer")]
pub enum TokenizerError {
    /// A folder holds no `tokenizer.json`.
    #[error("`{}` has no `tokenizer.json`", folder.display())]
    #[explain(
        why = sentence_piece
            .then(|| "it holds a SentencePiece `tokenizer.model`, which this program does not read".to_owned()),
        hint = if *sentence_piece {
            "load the folder with transformers and save its tokenizer again: that writes `tokenizer.json`".to_owned()
        } else {
            "copy `tokenizer.json` from where the model came".to_owned()
        }
    )]
    Absent {
        /// The folder that was looked into.
        folder: PathBuf,
        /// Whether it holds a SentencePiece file instead.
        sentence_piece: bool,
    },
    /// A file of the tokenizer cannot be read.
    #[error("`{}` cannot be read", path.display())]
    #[explain(why = "{source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file of the tokenizer does not hold what it should.
    #[error("`{}` is not a tokenizer file", path.display())]
    #[explain(why = detail.clone())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong inside.
        detail: String,
    },
    /// A GGUF key is missing or of the wrong kind.
    #[error("the GGUF metadata has no usable `{key}`")]
    #[explain(
        why = "it should hold {wanted}",
        hint = "use the model's Hugging Face folder, or convert it to GGUF again"
    )]
    Metadata {
        /// The key.
        key: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// A GGUF tokenizer of a kind that is not known.
    #[error("`{found}` is not a known {what} of a GGUF file")]
    #[explain(
        why = format!("known are {}", listed(known)),
        hint = "use the model's Hugging Face folder, or convert it to GGUF again"
    )]
    Unknown {
        /// What was looked up, in words.
        what: &'static str,
        /// What the file says.
        found: String,
        /// What is known.
        known: Vec<&'static str>,
    },
    /// The parts do not make a tokenizer, a text cannot be encoded, or ids cannot be decoded.
    #[error("{what}")]
    #[explain(why = detail.clone())]
    Broken {
        /// What does not work.
        what: &'static str,
        /// The tokenizer library's own words.
        detail: String,
    },
}

impl TokenizerError {
    /// An error for parts that do not make a tokenizer; `error` is the library's message.
    pub(super) fn broken(error: impl ToString) -> Self {
        Self::Broken { what: "the tokenizer's parts do not fit together", detail: error.to_string() }
    }

    /// An error for a text that cannot be encoded; `error` is the library's message.
    pub(super) fn encode(error: impl ToString) -> Self {
        Self::Broken { what: "the text cannot be turned into tokens", detail: error.to_string() }
    }

    /// An error for ids that cannot be decoded; `error` is the library's message.
    pub(super) fn decode(error: impl ToString) -> Self {
        Self::Broken { what: "the tokens cannot be turned into text", detail: error.to_string() }
    }

    /// An error for a tokenizer file with wrong contents; `error` is the reason.
    pub(super) fn malformed(path: &Path, error: impl ToString) -> Self {
        Self::Malformed { path: path.to_path_buf(), detail: error.to_string() }
    }
}

/// The names in backquotes, joined by commas.
fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
