//! `tokenizer.json`, and a text through whatever it describes.

use tunebox_model::tokenizer::Tokenizer;

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "tokenizer", run, longest: 8 << 10, quick: 1_500 };

/// A tokenizer, or an error; and with a tokenizer tokens whose places lie in the text.
fn run(bytes: &[u8]) {
    const TEXT: &str = "Ein Satz, 3 Wörter; <s>tab\t\u{1f600}\n";
    let tokenizer = with_file("tokenizer.json", bytes, |_, folder| Tokenizer::from_folder(folder));
    if let Ok(tokenizer) = tokenizer
        && let Ok(ids) = tokenizer.encode(TEXT, true)
    {
        let _ = tokenizer.decode(&ids, false);
    }
}
