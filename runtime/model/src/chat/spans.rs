//! Finds the byte ranges of the answers in a rendered conversation.
//!
//! Uses the template's `{% generation %}` marks where it has them. Else it renders growing prefixes of the
//! conversation: an answer begins where the rendering of the messages before it, with the opening of an answer, ends,
//! and it ends where the rendering up to and including it ends. If these prefixes do not match the whole text, other
//! signs are tried, such as the end-of-turn token; without one, the result is an error, not a guess.

use std::ops::Range;

use super::message::Conversation;
use super::records::Answers;
use super::template::ChatTemplate;
use super::{calls, error};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Renders a conversation; returns the text and the byte ranges in it of the answers that `which` selects of those
/// whose `weight` is not 0. Uses the template's own `{% generation %}` marks where it has them, else compares
/// renderings of growing prefixes.
///
/// # Errors
/// When no message is such an answer, the template rejects the conversation or leaves out a call of a tool, or a range
/// cannot be determined.
pub(super) fn find(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
    which: Answers,
) -> Result<(String, Vec<Range<usize>>)> {
    let messages = conversation.messages;
    let turns: Vec<usize> = (0..messages.len()).filter(|&turn| messages[turn].is_answer()).collect();
    let mut learned: Vec<usize> = (0..turns.len()).filter(|&number| messages[turns[number]].is_learned()).collect();
    let Some(last) = learned.len().checked_sub(1) else {
        let hint = match turns.is_empty() {
            true => "give at least one message the role `assistant`",
            false => "leave the record out: its answers are left out by `weight` or `train`",
        };
        return Err(error::explain("the conversation has no answer to learn from").with_hint(hint).into());
    };
    if which == Answers::Last {
        learned.drain(..last);
    }

    calls::check(template, conversation)?;
    if let Some((text, spans)) = template.render_marked(conversation)? {
        let spans = match learned.len() == turns.len() {
            true => spans,
            false => select_answers(template, conversation, &text, spans, (&turns, &learned))?,
        };
        return Ok((text, spans));
    }

    let text = template.render_conversation(conversation, false)?;
    let search = Search { tokenizer, template, conversation, text: &text };
    let spans = learned.iter().map(|&number| search.answer(turns[number], number + 1)).collect::<Result<_>>()?;
    Ok((text, spans))
}

/// Selects spans among the marked spans of a rendering. If there are as many spans as answers, selects those at the
/// wanted positions. Otherwise only the last answer can be selected: its spans are those that end after the rendering
/// of all messages before it. The pair holds the indices of the messages that are answers, and the positions of the
/// wanted ones among them. Errors: the numbers differ, and either other answers are wanted, or `text` does not begin
/// with the rendering of the messages before the last answer, with or without the opening of an answer.
fn select_answers(
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
    text: &str,
    mut spans: Vec<Range<usize>>,
    (turns, wanted): (&[usize], &[usize]),
) -> Result<Vec<Range<usize>>> {
    let answers = turns.len();
    if spans.len() == answers {
        return Ok(wanted.iter().map(|&number| spans[number].clone()).collect());
    }

    let before = conversation.first(turns[answers - 1]);
    let given = [true, false].into_iter().filter_map(|opening| template.render_conversation(&before, opening).ok());
    if wanted == [answers - 1]
        && let Some(given) = given.into_iter().find(|given| text.starts_with(given.as_str()))
    {
        spans.retain(|span| span.end > given.len());
        return Ok(spans);
    }
    let why = format!("the template marks {} places for {answers} answers", spans.len());
    Err(error::unclear(wanted[0] + 1, "begins", why))
}

/// The search for answers in `text`, the rendering of one conversation.
struct Search<'a> {
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    conversation: &'a Conversation<'a>,
    text: &'a str,
}

impl Search<'_> {
    /// The byte range of the answer in message `turn` (an index), from [`start`](Self::start) to [`end`](Self::end),
    /// its end-of-turn token included. `number` counts answers from 1, for errors.
    fn answer(&self, turn: usize, number: usize) -> Result<Range<usize>> {
        let start = self.start(turn, number)?;
        let end = self.end(turn, number, start)?;
        Ok(start..end)
    }

    /// The byte at which the answer in message `turn` begins: where the rendering of the messages before it, with the
    /// opening of an answer, ends. If the template has no such opening, the answer begins at its first words. If the
    /// text does not begin with that rendering, [`start_apart`](Self::start_apart) decides. Errors: no such byte is
    /// found.
    fn start(&self, turn: usize, number: usize) -> Result<usize> {
        let unclear = |why: &str| error::unclear(number, "begins", why);
        let before = self.conversation.first(turn);
        let render = |opening| self.template.render_conversation(&before, opening);

        let opened = render(true)
            .map_err(|error| unclear(&format!("the template cannot render the {turn} messages before it: {error}")))?;
        let plain = render(false).ok();
        let words = self.conversation.messages[turn].content.trim();
        if !self.text.starts_with(&opened) {
            return self
                .start_apart(&opened, plain.as_deref(), words)
                .ok_or_else(|| unclear("the template renders the messages before it differently once it is there"));
        }

        // Without an opening of an answer, the name of the role follows here: the answer begins at its words.
        let rest = &self.text[opened.len()..];
        if plain.as_ref() != Some(&opened) || words.is_empty() || rest.trim_start().starts_with(words) {
            return Ok(opened.len());
        }
        let place = rest.find(words).map(|at| opened.len() + at);
        place.ok_or_else(|| unclear("the template changes its words"))
    }

    /// Finds the byte at which an answer begins in a template that opens a new answer differently from an existing one,
    /// for example with an empty thought: the end of the common prefix of `opened` and the text, but at most the first
    /// occurrence of `words`.
    ///
    /// `opened` is the rendering of the messages before the answer with the opening of a new answer, `plain` the same
    /// without the opening, and `words` the answer's content. Returns `None` if `plain` is missing, if it is not a
    /// prefix of both texts, or if they have nothing in common after it.
    fn start_apart(&self, opened: &str, plain: Option<&str>, words: &str) -> Option<usize> {
        let plain = plain.filter(|plain| self.text.starts_with(plain) && opened.starts_with(plain))?;
        let agree = |(left, right): &(char, char)| left == right;
        let shared: usize =
            opened.chars().zip(self.text.chars()).take_while(agree).map(|(same, _)| same.len_utf8()).sum();
        if shared <= plain.len() {
            return None;
        }
        let place = self.text[plain.len()..].find(words).map(|at| plain.len() + at);
        Some(place.filter(|_| !words.is_empty()).map_or(shared, |place| shared.min(place)))
    }

    /// The byte at which the answer in message `turn`, which begins at byte `start`, ends: the end of the text for the
    /// last message, else where the rendering of all messages up to this one ends. If that rendering fails or is not
    /// the beginning of the text, the answer ends after the end-of-turn token that follows its words. Errors: there is
    /// no such token.
    fn end(&self, turn: usize, number: usize, start: usize) -> Result<usize> {
        if turn + 1 == self.conversation.messages.len() {
            return Ok(self.text.len());
        }
        let upto = self.template.render_conversation(&self.conversation.first(turn + 1), false);
        if let Ok(upto) = upto
            && upto.len() > start
            && self.text.starts_with(&upto)
        {
            return Ok(upto.len());
        }

        let rest = &self.text[start..];
        let words = self.conversation.messages[turn].content.trim();
        let said = rest.find(words).filter(|at| rest[..*at].trim().is_empty()).map_or(0, |at| at + words.len());
        let closing = closing_token(self.tokenizer, &rest[said..], said > 0)?;
        let why = "the template renders it differently once more messages follow, and marks its end by no token";
        closing.map(|end| start + said + end).ok_or_else(|| error::unclear(number, "ends", why))
    }
}

/// The byte of `rest` at which its first end-of-turn token ends; `None` if there is none. Such a token is one of
/// [`Tokenizer::eos`] or, with `behind_words`, any special token that only white space precedes.
pub(super) fn closing_token(tokenizer: &Tokenizer, rest: &str, behind_words: bool) -> Result<Option<usize>> {
    let spans = tokenizer.encode_spans(rest)?;
    let blank = |range: &Range<usize>| rest[..range.start].trim().is_empty();
    let closes = |(id, range): &(&u32, &Range<usize>)| {
        tokenizer.eos().contains(*id) || (behind_words && tokenizer.is_special(**id) && blank(range))
    };
    Ok(spans.ids.iter().zip(&spans.ranges).find(closes).map(|(_, range)| range.end))
}
