//! Chat templates: parsed, and rendered over conversations. What templates keep in variables is limited by a process of
//! the program alone, which `tests/parsers.rs` shows; here such templates are only parsed.

use std::path::Path;
use std::sync::LazyLock;

use tunebox_model::chat::{ChatTemplate, Message};
use tunebox_model::tokenizer::Tokenizer;

use crate::Target;

pub(super) const TARGET: Target = Target { name: "template", run, longest: 4 << 10, quick: 400 };

/// Words with which a template may keep, double or widen a text or list.
const GROWING: [&str; 13] = [
    "*",
    "set",
    "macro",
    "call",
    "filter",
    "block",
    "slice",
    "batch",
    "indent",
    "format",
    "join",
    "replace",
    "recursive",
];

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/training/sample/model"));
    Tokenizer::from_folder(folder).unwrap_or_else(|error| panic!("{error}"))
});

/// A text of bounded length, or an error.
fn run(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let Ok(template) = ChatTemplate::parse(&source, &TOKENIZER) else { return };
    if GROWING.iter().any(|word| source.contains(word)) {
        return;
    }
    let template = template.with_clock(1_700_000_000);
    let messages = [Message::new("user", "What is 2 + 2?"), Message::new("assistant", "4, of course.")];
    for add_generation_prompt in [false, true] {
        if let Ok(text) = template.render(&messages, add_generation_prompt, None) {
            assert!(text.len() <= 64 << 20, "{} bytes", text.len());
        }
    }
}
