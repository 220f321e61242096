//! The errors of a tokenizer, with what to do about them.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use crate::error::Error;

/// The hint for the tokenizer of a GGUF file that cannot be used.
const CONVERT: &str = "use the model's Hugging Face folder, or convert it to GGUF again";

/// The error for parts that do not form a tokenizer; `error` is the library's message.
pub(super) fn broken(error: impl ToString) -> Error {
    explain("the tokenizer's parts do not fit together", error).into()
}

/// The error for a text that cannot be encoded; `error` is the library's message.
pub(super) fn encode(error: impl ToString) -> Error {
    explain("the text cannot be turned into tokens", error).into()
}

/// The error for ids that cannot be decoded; `error` is the library's message.
pub(super) fn decode(error: impl ToString) -> Error {
    explain("the tokens cannot be turned into text", error).into()
}

/// The error for a tokenizer file with wrong contents; `error` is the reason.
pub(super) fn malformed(path: &Path, error: impl ToString) -> Error {
    explain(format!("`{}` is not a tokenizer file", path.display()), error).into()
}

/// The error for a folder without a `tokenizer.json`. If the folder has a `tokenizer.model`, the hint says how to
/// convert it; else, to copy the missing file.
pub(super) fn absent(folder: &Path) -> Error {
    let absent = Explanation::new("tokenizer", format!("`{}` has no `tokenizer.json`", folder.display()));
    if !folder.join("tokenizer.model").is_file() {
        return absent.with_hint("copy `tokenizer.json` from where the model came").into();
    }
    let hint = "load the folder with transformers and save its tokenizer again: that writes `tokenizer.json`";
    absent
        .with_why("it holds a SentencePiece `tokenizer.model`, which this program does not read")
        .with_hint(hint)
        .into()
}

/// The error for a GGUF key that is missing or of another type than `wanted`.
pub(super) fn missing(key: &str, wanted: &str) -> Error {
    let what = format!("the GGUF metadata has no usable `{key}`");
    explain(what, format!("it should hold {wanted}")).with_hint(CONVERT).into()
}

/// The error for an unknown name `found` in the tokenizer of a GGUF file. `what` says what it names, such as
/// `pre-tokenizer`; `known` are the supported names.
pub(super) fn unknown(what: &str, found: &str, known: impl Iterator<Item = &'static str>) -> Error {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let what = format!("`{found}` is not a known {what} of a GGUF file");
    explain(what, format!("known are {}", known.join(", "))).with_hint(CONVERT).into()
}

/// Builds an explanation in the category `tokenizer`; `what` is its message and `why` the cause.
fn explain(what: impl Into<String>, why: impl ToString) -> Explanation {
    Explanation::new("tokenizer", what).with_why(why.to_string())
}
