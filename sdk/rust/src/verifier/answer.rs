//! Where answers stand in a text: in boxes, and as numbers.

/// Returns the content of every closed `\boxed{…}`, in order of their starts. Escaped braces do not count.
pub fn boxes(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, opening) in text.match_indices("\\boxed{") {
        let content = &text[start + opening.len()..];
        let (mut depth, mut escaped) = (1, false);
        let end = content.char_indices().find(|(_, c)| {
            depth += match c {
                '{' if !escaped => 1,
                '}' if !escaped => -1,
                _ => 0,
            };
            escaped = *c == '\\' && !escaped;
            depth == 0
        });
        found.extend(end.map(|(end, _)| &content[..end]));
    }
    found
}

/// Splits a text after the number that it begins with: its digits and decimals without thousands separators, such as
/// `1234.5` for `1,234.5`, and the rest of the text. The number is empty if the text begins with none.
pub fn split_number(text: &str) -> (String, &str) {
    let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let separates =
        |at: usize| at > 0 && text[at..].starts_with(',') && (1..=3).all(|ahead| digit(at + ahead)) && !digit(at + 4);
    let mut end = 0;
    while digit(end) || separates(end) {
        end += 1;
    }
    if text[end..].starts_with('.') && digit(end + 1) {
        end += 1;
        while digit(end) {
            end += 1;
        }
    }
    (text[..end].replace(',', ""), &text[end..])
}
