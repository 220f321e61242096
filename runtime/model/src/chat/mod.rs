//! Conversations to text, and text to training examples: which tokens a model is given and which it has to say.
//!
//! The template is the model's own. Reading records from files is left to the training room.

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

pub use message::{Conversation, Message};
pub use records::{
    Answers, Encoded, Example, encode_conversation, encode_preference, encode_prompt, encode_prompt_completion,
    encode_text,
};
pub use template::ChatTemplate;
