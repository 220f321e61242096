//! `{% generation %}` blocks, which mark what the model itself says.
//!
//! The template engine does not know the tag, so its source is rewritten into a filter block with a scope of its own,
//! which does the same. Comments, strings and raw blocks are left alone, and lines stay lines.

use std::ops::Range;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The filter that a rewritten block goes through.
pub(super) const FILTER: &str = "__tunebox_answer";
/// Marks where an answer begins in a rendered text; a noncharacter, which no text holds.
pub(super) const OPEN: char = '\u{FDD0}';
/// Marks where an answer ends.
pub(super) const CLOSE: char = '\u{FDD1}';

/// Rewrites `{% generation %}` blocks of a template source into blocks of the filter [`FILTER`]; `None` if it has none.
/// What is no template is left to the engine, which says why.
pub(super) fn rewrite_generation_tags(source: &str) -> Option<String> {
    let tokens: Vec<_> = tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok).collect();
    let (mut rewritten, mut copied) = (String::new(), 0);
    for tokens in tokens.windows(3) {
        let [(Token::BlockStart, _), (Token::Ident(word), place), (Token::BlockEnd, _)] = tokens else { continue };
        let replacement = match *word {
            "generation" => format!("filter {FILTER} %}}{{% with"),
            "endgeneration" => "endwith %}{% endfilter".to_owned(),
            _ => continue,
        };
        rewritten += &source[copied..place.start_offset as usize];
        rewritten += &replacement;
        copied = place.end_offset as usize;
    }
    (copied > 0).then(|| rewritten + &source[copied..])
}

/// Removes the marks [`OPEN`] and [`CLOSE`] from a rendered text. Returns the text and the byte ranges, in that text,
/// that stood between marks; `None` if the marks do not pair up or nest.
pub(super) fn extract_answers(rendered: &str) -> Option<(String, Vec<Range<usize>>)> {
    let mut text = String::with_capacity(rendered.len());
    let mut spans = Vec::new();
    let mut open = None;

    for character in rendered.chars() {
        match (character, open) {
            (OPEN, None) => open = Some(text.len()),
            (CLOSE, Some(start)) => {
                spans.push(start..text.len());
                open = None;
            }
            (OPEN | CLOSE, _) => return None,
            _ => text.push(character),
        }
    }
    open.is_none().then_some((text, spans))
}
