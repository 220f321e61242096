//! Renders conversations with the model's chat template, and encodes texts and conversations as training examples:
//! token ids, and for each whether it is a target.
//!
//! `continuation` encodes the next turn of a chat. The crate `training` reads the records from files.

mod builtin;
mod calls;
mod continuation;
mod error;
mod functions;
mod json;
mod markers;
mod message;
mod python_repr;
mod records;
mod spans;
mod template;
#[cfg(test)]
mod tests;

pub use builtin::{builtin_template, builtin_templates};
pub use continuation::Continuation;
pub use message::{Conversation, LEARNED_FLAGS, Message};
pub use records::{
    Answers, Encoded, Example, encode_conversation, encode_preference, encode_prompt, encode_prompt_completion,
    encode_text,
};
pub use template::{ChatTemplate, TEMPLATE_FILE};
