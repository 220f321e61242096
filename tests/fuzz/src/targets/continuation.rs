//! Messages of an environment, as the tiny model's chat goes on with them: no text becomes a control token.

use std::path::Path;
use std::sync::LazyLock;

use tunebox_model::chat::{ChatTemplate, Continuation};
use tunebox_model::tokenizer::Tokenizer;

use crate::Target;

pub(super) const TARGET: Target = Target { name: "continuation", run, longest: 4 << 10, quick: 1_000 };

/// A tokenizer, how its chats go on, and the control tokens around a message without any.
static CHAT: LazyLock<(Tokenizer, Continuation, usize)> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/training/sample/model"));
    let tokenizer = Tokenizer::from_folder(folder).unwrap_or_else(|error| panic!("{error}"));
    let template = ChatTemplate::from_folder(folder, &tokenizer).ok().flatten();
    let template = template.unwrap_or_else(|| panic!("the tiny model has a chat template"));
    let continuation = Continuation::find(&tokenizer, &template).unwrap_or_else(|error| panic!("{error}"));
    let plain = continuation.encode(&tokenizer, "calm").unwrap_or_else(|error| panic!("{error}"));
    let around = count_control(&tokenizer, &plain);
    (tokenizer, continuation, around)
});

fn count_control(tokenizer: &Tokenizer, ids: &[u32]) -> usize {
    ids.iter().filter(|id| tokenizer.is_control(**id)).count()
}

/// The control tokens of the template and no other, and the whole message between them; or an error.
fn run(bytes: &[u8]) {
    let message = String::from_utf8_lossy(bytes);
    let (tokenizer, continuation, around) = &*CHAT;
    let Ok(ids) = continuation.encode(tokenizer, &message) else { return };
    assert_eq!(count_control(tokenizer, &ids), *around, "{message:?}: {ids:?}");
    let text = tokenizer.decode(&ids, true).unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains(message.as_ref()), "{message:?}: {text:?}");
}
