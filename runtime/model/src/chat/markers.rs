//! `{% generation %}` blocks of chat templates, which mark what the assistant says.
//!
//! The template engine does not know this tag. So a template's source is rewritten: each block becomes a filter block
//! with its own variable scope. Comments, strings and raw blocks stay unchanged, and no line breaks are added or
//! removed.

use std::ops::Range;

/// The name of the filter into which a `{% generation %}` block is rewritten.
pub(super) const FILTER: &str = "__tunebox_answer";
/// Marks where an answer begins in a rendered text. A Unicode noncharacter, which proper text does not contain.
pub(super) const OPEN: char = '\u{FDD0}';
/// Marks where an answer ends.
pub(super) const CLOSE: char = '\u{FDD1}';

/// Rewrites the `{% generation %}` blocks of a template source into blocks of the filter [`FILTER`]; `None` if it has
/// none. Does not check the syntax: the engine reports its errors.
pub(super) fn rewrite_generation_tags(source: &str) -> Option<String> {
    let (mut rewritten, mut copied) = (String::new(), 0);
    for word in block_words(source) {
        let replacement = match &source[word.clone()] {
            "generation" => format!("filter {FILTER} %}}{{% with"),
            "endgeneration" => "endwith %}{% endfilter".to_owned(),
            _ => continue,
        };
        rewritten += &source[copied..word.start];
        rewritten += &replacement;
        copied = word.end;
    }
    (copied > 0).then(|| rewritten + &source[copied..])
}

/// The byte ranges of the contents of all `{% … %}` tags, without white space and white space control (`-`, `+`). Skips
/// comments, expressions and raw blocks.
fn block_words(source: &str) -> Vec<Range<usize>> {
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(start) = find(source, "{", at) {
        at = start + 2;
        match source.as_bytes().get(start + 1) {
            Some(b'#') => at = find(source, "#}", at).map_or(source.len(), |end| end + 2),
            Some(b'{') => at = tag_end(source, at, "}}") + 2,
            Some(b'%') => {
                let end = tag_end(source, at, "%}");
                let inside = source[at..end].trim_end_matches(['-', '+']).trim_end();
                let word = inside.trim_start_matches(['-', '+']).trim_start();
                let first = at + inside.len() - word.len();
                words.push(first..first + word.len());
                at = if word == "raw" { raw_end(source, end + 2) } else { end + 2 };
            }
            _ => at = start + 1,
        }
    }
    words
}

/// The byte index of the first `text` in `source` at or after byte `from`; `None` if there is none.
fn find(source: &str, text: &str, from: usize) -> Option<usize> {
    source.get(from..)?.find(text).map(|place| from + place)
}

/// The byte index at which a tag closes: of the first `close` outside of strings and brackets, else the end of the
/// source. `from` is the byte index of the tag's contents.
fn tag_end(source: &str, from: usize, close: &str) -> usize {
    let (mut depth, mut quote, mut escaped) = (0_u32, None, false);
    for (place, byte) in source.bytes().enumerate().skip(from) {
        match (quote, byte) {
            _ if std::mem::take(&mut escaped) => {}
            (Some(_), b'\\') => escaped = true,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, _) if depth == 0 && source.as_bytes()[place..].starts_with(close.as_bytes()) => return place,
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    source.len()
}

/// The byte index of the tag `{% endraw %}` that ends a raw block, else the end of the source. `from` is the byte index
/// of the block's contents.
fn raw_end(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(start) = find(source, "{%", at) {
        at = start + 2;
        let tag = source[at..].trim_start_matches(['-', '+']).trim_start();
        let is_end = tag.strip_prefix("endraw").map(|rest| rest.trim_start().trim_start_matches(['-', '+']));
        if is_end.is_some_and(|rest| rest.starts_with("%}")) {
            return start;
        }
    }
    source.len()
}

/// Removes the marks [`OPEN`] and [`CLOSE`] from a rendered text. Returns the text and the byte ranges, in that text,
/// that stood between marks; `None` if marks are nested or unpaired.
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
