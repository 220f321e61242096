//! 1 where the completion thinks between tags before it answers, as the reference's `think_format_reward`.
//!
//! It begins with the opening tag, has no second one, and has the closing tag after it. What follows is free.

use tunebox::prelude::*;

/// The tags.
#[derive(Settings)]
pub struct Format {
    /// What the completion begins with.
    #[setting(default = "<think>")]
    opening: String,

    /// What ends the thinking.
    #[setting(default = "</think>")]
    closing: String,

    /// What is between the tags and begins already in the prompt: then the completion need not open it.
    #[setting(default = false)]
    opened_by_prompt: bool,
}

impl Verifier for Format {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        if settings.opening.is_empty() || settings.closing.is_empty() {
            return Err(Error::new("`opening` and `closing` must not be empty"));
        }
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, _: &str) -> Option<f32> {
        let inside = match completion.strip_prefix(self.opening.as_str()) {
            Some(inside) => inside,
            None if self.opened_by_prompt => completion,
            None => return Some(0.0),
        };
        let good = !inside.contains(&self.opening) && inside.contains(&self.closing);
        Some(f32::from(u8::from(good)))
    }
}

verifier! { Format }
