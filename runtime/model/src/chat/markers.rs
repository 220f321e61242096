//! `{% generation %}` blocks, which mark what the model itself says.
//!
//! The template engine does not know the tag, so its source is rewritten into a filter block with a scope of its own,
//! which does the same. The scanner knows comments, strings and raw blocks, and changes nothing else: lines stay lines.

use std::ops::Range;

/// The filter that a rewritten block goes through.
pub(super) const FILTER: &str = "__tunebox_answer";
/// Marks where an answer begins in a rendered text; a noncharacter, which no text holds.
pub(super) const OPEN: char = '\u{FDD0}';
/// Marks where an answer ends.
pub(super) const CLOSE: char = '\u{FDD1}';

/// The source with its generation tags rewritten; `None` where it has none.
pub(super) fn rewrite_generation_tags(source: &str) -> Option<String> {
    let mut rewritten = String::with_capacity(source.len() + 64);
    let mut copied = 0;
    let mut found = false;
    let mut scanner = Scanner { source, at: 0, products: Vec::new() };

    while let Some(tag) = scanner.next_tag() {
        let replacement = match tag.name {
            "generation" => format!("filter {FILTER} %}}{{% with"),
            "endgeneration" => "endwith %}{% endfilter".to_owned(),
            _ => continue,
        };
        found = true;
        rewritten.push_str(&source[copied..tag.span.start]);
        rewritten.push_str(&replacement);
        copied = tag.span.end;
    }
    rewritten.push_str(&source[copied..]);
    found.then_some(rewritten)
}

/// A variable that is 1 in every template.
pub(super) const ONE: &str = "__tunebox_one";

/// The source with every product of two put as a product of three, by [`ONE`]: the engine would work products of
/// constants out while it compiles, and `'a' * 99999999` is a hundred megabytes. Lines stay lines.
pub(super) fn defer_constant_products(source: &str) -> String {
    let mut scanner = Scanner { source, at: 0, products: Vec::new() };
    while scanner.next_tag().is_some() {}
    let mut opened = String::with_capacity(source.len() + 20 * scanner.products.len());
    let mut copied = 0;
    for star in scanner.products {
        opened.push_str(&source[copied..star]);
        opened.push_str("* ");
        opened.push_str(ONE);
        opened.push(' ');
        copied = star;
    }
    opened + &source[copied..]
}

/// A statement that is one bare word, and where the word stands.
struct Tag<'a> {
    name: &'a str,
    span: Range<usize>,
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    /// Where the stars of products stand.
    products: Vec<usize>,
}

impl<'a> Scanner<'a> {
    /// The next statement of one word; everything before it is skipped as the template language reads it.
    fn next_tag(&mut self) -> Option<Tag<'a>> {
        loop {
            let open = self.at + self.rest().find('{')?;
            self.at = open + 1;
            match self.source.as_bytes().get(self.at) {
                Some(b'#') => self.skip_past("#}"),
                Some(b'{') => {
                    self.at += 1;
                    self.skip_code("}}");
                }
                Some(b'%') => {
                    self.at += 1;
                    if let Some(tag) = self.statement() {
                        return Some(tag);
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads a statement from behind its `{%` to behind its `%}`.
    fn statement(&mut self) -> Option<Tag<'a>> {
        let begin = self.at;
        self.skip_code("%}");
        let inside = self.source[begin..self.at].strip_suffix("%}")?;
        let body = inside.strip_prefix(['-', '+']).unwrap_or(inside);
        let word = body.strip_suffix(['-', '+']).unwrap_or(body).trim();

        if word == "raw" {
            self.skip_raw();
            return None;
        }
        let start = begin + inside.find(word)?;
        (!word.is_empty()).then_some(Tag { name: word, span: start..start + word.len() })
    }

    /// Moves behind `end`, which does not count inside strings and brackets.
    fn skip_code(&mut self, end: &str) {
        let bytes = self.source.as_bytes();
        let mut depth = 0_usize;
        while let Some(&byte) = bytes.get(self.at) {
            if depth == 0 && bytes[self.at..].starts_with(end.as_bytes()) {
                self.at += end.len();
                return;
            }
            match byte {
                b'\'' | b'"' => self.skip_string(byte),
                b'*' => self.record_product(),
                b'{' | b'[' | b'(' => depth += 1,
                b'}' | b']' | b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Notes the star of a product; a power is none, and neither is what unpacks a list.
    fn record_product(&mut self) {
        let bytes = self.source.as_bytes();
        if bytes.get(self.at + 1) == Some(&b'*') {
            self.at += 1;
            return;
        }
        let before = bytes[..self.at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
        if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_'\")]}".contains(byte) || *byte >= 0x80) {
            self.products.push(self.at);
        }
    }

    /// Moves to the closing quote of the string that begins here.
    fn skip_string(&mut self, quote: u8) {
        let bytes = self.source.as_bytes();
        self.at += 1;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                _ if byte == quote => return,
                _ => self.at += 1,
            }
        }
    }

    /// Moves behind the statement that ends a raw block.
    fn skip_raw(&mut self) {
        while let Some(found) = self.rest().find("{%") {
            self.at += found + 2;
            let word = self.rest().trim_start_matches(['-', '+']).trim_start();
            if word.starts_with("endraw") {
                self.skip_past("%}");
                return;
            }
        }
        self.at = self.source.len();
    }

    fn skip_past(&mut self, end: &str) {
        self.at = self.rest().find(end).map_or(self.source.len(), |found| self.at + found + end.len());
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }
}

/// A rendered text without its marks, and the bytes between each pair of marks; `None` where they do not pair up.
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
