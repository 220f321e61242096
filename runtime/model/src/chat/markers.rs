//! `{% generation %}` blocks, which mark what the model itself says.
//!
//! The template engine does not know the tag, so its source is rewritten into a filter block with a scope of its own,
//! which does the same. Comments, strings and raw blocks are left alone, and lines stay lines.

use std::ops::Range;

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The filter that a rewritten block goes through.
pub(super) const FILTER: &str = "__tunebox_answer";
/// Marks where an answer begins in a rendered text; a noncharacter, which no text holds.
pub(super) const OPEN: char = '\u{FDD0}';
/// Marks where an answer ends.
pub(super) const CLOSE: char = '\u{FDD1}';

/// Rewrites `{% generation %}` blocks of a template source into blocks of the filter [`FILTER`]; `None` if it has none.
pub(super) fn rewrite_generation_tags(source: &str) -> Option<String> {
    let mut replacements = Vec::new();
    for three in tokens(source).windows(3) {
        let [(Token::BlockStart, _), (Token::Ident(word), span), (Token::BlockEnd, _)] = three else { continue };
        match *word {
            "generation" => replacements.push((*span, format!("filter {FILTER} %}}{{% with"))),
            "endgeneration" => replacements.push((*span, "endwith %}{% endfilter".to_owned())),
            _ => {}
        }
    }
    (!replacements.is_empty()).then(|| replace(source, &replacements))
}

/// A variable that is 1 in every template.
pub(super) const ONE: &str = "__tunebox_one";

/// Inserts the variable [`ONE`] as a factor into every product of a source: the engine would compute a constant product
/// such as `'a' * 99999999` while it compiles, before any budget. Does not change line numbers.
pub(super) fn defer_constant_products(source: &str) -> String {
    let mut replacements = Vec::new();
    for pair in tokens(source).windows(2) {
        // Behind these two a star unpacks a list into arguments.
        if let [(before, _), (Token::Mul, span)] = pair
            && !matches!(before, Token::ParenOpen | Token::Comma)
        {
            replacements.push((*span, format!("* {ONE} *")));
        }
    }
    replace(source, &replacements)
}

/// The tokens of a template source with their spans, up to the first syntax error, which compiling reports later.
fn tokens(source: &str) -> Vec<(Token<'_>, Span)> {
    tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok).collect()
}

/// Replaces spans of a source by texts. The spans are in order and do not overlap.
fn replace(source: &str, replacements: &[(Span, String)]) -> String {
    let mut replaced = String::with_capacity(source.len() + 64);
    let mut copied = 0;
    for (span, text) in replacements {
        replaced.push_str(&source[copied..span.start_offset as usize]);
        replaced.push_str(text);
        copied = span.end_offset as usize;
    }
    replaced + &source[copied..]
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
