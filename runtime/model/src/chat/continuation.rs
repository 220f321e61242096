//! How a chat goes on after an answer: the tokens between its end and the opening of the next answer, with a message of
//! the user between them.

use super::error;
use super::message::Message;
use super::spans::closing_token;
use super::template::ChatTemplate;
use crate::Model;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// The question, the answer and the message of the conversation that shows how a template goes on.
const QUESTION: &str = "question";
const ANSWER: &str = "tunebox-answer";
const MESSAGE: &str = "tunebox-message";

/// What a chat template writes between an answer and the opening of the next one, around the message of the user.
#[derive(Debug, Clone)]
pub struct Continuation {
    template: ChatTemplate,
    /// The end of the answer, up to and with its end-of-turn token, which the model writes itself.
    closing: String,
    /// The tokens of `closing`.
    closing_ids: Vec<u32>,
    /// What follows up to the message.
    before: String,
    /// What follows the message.
    after: String,
}

impl Continuation {
    /// Finds what the chat template of a model writes around a message that follows an answer, as [`find`](Self::find)
    /// does.
    ///
    /// # Errors
    /// A model without a tokenizer or a chat template, and those of [`find`](Self::find).
    pub fn of(model: &Model) -> Result<Self> {
        let none = || error::explain("the model has no chat template").with_hint("take an instruct model");
        Self::find(model.tokenizer()?, model.template.as_ref().ok_or_else(|| Error::from(none()))?)
    }

    /// Finds what a chat template writes around a message that follows an answer.
    ///
    /// # Errors
    /// A template that refuses a user's message after an answer, does not show the texts of answer and message in this
    /// order, or marks the end of an answer by no token.
    pub fn find(tokenizer: &Tokenizer, template: &ChatTemplate) -> Result<Self> {
        let text = render(template, MESSAGE)?;
        let parts = text.split_once(ANSWER).and_then(|(_, rest)| rest.split_once(MESSAGE).map(|parts| (rest, parts)));
        let Some((rest, (opening, after))) = parts else {
            return Err(unclear("the template does not show the words of an answer and of the message after it"));
        };
        let end = closing_token(tokenizer, rest, true)?.filter(|end| *end <= opening.len());
        let end = end.ok_or_else(|| unclear("the template marks the end of an answer by no token"))?;
        let (closing, before) = opening.split_at(end);
        let closing_ids = tokenizer.encode(closing, false)?;
        let (closing, before, after) = (closing.to_owned(), before.to_owned(), after.to_owned());
        Ok(Self { template: template.clone(), closing, closing_ids, before, after })
    }

    /// Encodes what follows the end-of-turn token of an answer: the user's message as the chat template renders it, up
    /// to the opening of the next answer. The names of control tokens in the message are plain text.
    ///
    /// # Errors
    /// When the template refuses the message or writes other text around it than around others, the end-of-turn token
    /// merges with what follows it, or encoding fails.
    pub fn encode(&self, tokenizer: &Tokenizer, message: &str) -> Result<Vec<u32>> {
        let text = render(&self.template, message)?;
        let rest = text.split_once(ANSWER).map_or("", |(_, rest)| rest);
        let inner = rest.strip_prefix(&self.closing).and_then(|rest| rest.strip_prefix(&self.before));
        let inner = inner.and_then(|inner| inner.strip_suffix(&self.after));
        let inner = inner.ok_or_else(|| unclear("the template renders what is around this message differently"))?;
        let start = self.closing.len() + self.before.len();
        let ids = encode_with_plain(tokenizer, rest, start, start + inner.len())?;
        let following = ids.strip_prefix(self.closing_ids.as_slice());
        following
            .map(<[u32]>::to_vec)
            .ok_or_else(|| unclear("the end-of-turn token is encoded together with the message"))
    }
}

/// Renders a chat of a fixed question, a fixed answer and the user's `message`, with the opening of the next answer at
/// its end.
fn render(template: &ChatTemplate, message: &str) -> Result<String> {
    let turns = [("user", QUESTION), ("assistant", ANSWER), ("user", message)];
    template.render(&turns.map(|(role, text)| Message::new(role, text)), true, None)
}

/// The error for a template for which it cannot be found how the chat goes on after an answer; `why` is the cause.
fn unclear(why: &str) -> Error {
    let what = "cannot determine how the chat template continues after an answer";
    error::explain(what).with_why(why).with_hint("take a model whose chat template renders turn after turn").into()
}

/// Encodes a text without adding ids. Names of control tokens between the bytes `start` and `end` count as plain text:
/// the text is cut inside each such name, and the parts are encoded one by one. Without such a name, the text is
/// encoded as a whole. Errors: a name of one character, which cannot be cut; a failure to encode.
fn encode_with_plain(tokenizer: &Tokenizer, text: &str, start: usize, end: usize) -> Result<Vec<u32>> {
    let spans = tokenizer.encode_spans(text)?;
    let mut cuts = Vec::new();
    for (id, range) in spans.ids.iter().zip(&spans.ranges) {
        if tokenizer.is_control(*id) && range.start < end && start < range.end {
            // An added token may have taken the white space around its name.
            let name = &text[range.clone()];
            let inside = name.len() - name.trim_start().len() + name.trim().chars().next().map_or(0, char::len_utf8);
            if inside == 0 || inside >= name.trim_end().len() {
                return Err(
                    error::explain(format!("the message holds {name:?}, which can only be a control token")).into()
                );
            }
            cuts.push(range.start + inside);
        }
    }
    if cuts.is_empty() {
        return Ok(spans.ids);
    }
    let (mut ids, mut from) = (Vec::new(), 0);
    for cut in cuts.into_iter().chain([text.len()]) {
        let (low, high) = (start.clamp(from, cut), end.clamp(from, cut));
        ids.extend(encode_with_plain(tokenizer, &text[from..cut], low - from, high - from)?);
        from = cut;
    }
    Ok(ids)
}
