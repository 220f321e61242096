//! Splits LaTeX and plain mathematics into tokens. Leaves out spacing, dollar signs and the sizes of brackets.

use tunebox::verifier::split_number;

/// A token of a mathematical text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Number(f64),
    Name(String),
    Fraction,
    Root,
    Symbol(char),
    SetOpen,
    SetClose,
    /// The content of `\text{…}` and the like.
    Words(String),
}

/// Splits a text into tokens. `None` if it has a character or command that is no mathematics.
pub(crate) fn tokenize(text: &str) -> Option<Vec<Token>> {
    let text = text.replace("{,}", ",");
    let (mut tokens, mut rest) = (Vec::new(), text.as_str());
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = if c.is_whitespace() || c == '$' || c == '~' {
            after
        } else if c == '\\' {
            read_command(after, &mut tokens)?
        } else if c.is_ascii_digit() || c == '.' && after.starts_with(|c: char| c.is_ascii_digit()) {
            let (number, after) = split_number(rest);
            tokens.push(Token::Number(number.parse().ok()?));
            after
        } else if c.is_alphabetic() {
            tokens.push(Token::Name(c.to_string()));
            after
        } else {
            tokens.push(Token::Symbol(plain_symbol(c)?));
            after
        };
    }
    Some(tokens)
}

/// The ASCII form of an operator, or the character itself if it is a known symbol; `None` for any other.
fn plain_symbol(c: char) -> Option<char> {
    Some(match c {
        '−' | '–' => '-',
        '×' | '·' => '*',
        '÷' => '/',
        '+' | '-' | '*' | '/' | '^' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '=' | '<' | '>' | '≤' | '≥'
        | '%' => c,
        _ => return None,
    })
}

/// Reads the command after a backslash, appends its token, if it has one, and returns the rest of the text. `None` for
/// an unknown sign, or a name of more than 8 letters.
fn read_command<'a>(text: &'a str, tokens: &mut Vec<Token>) -> Option<&'a str> {
    let first = text.chars().next()?;
    if !first.is_ascii_alphabetic() {
        match first {
            '{' => tokens.push(Token::SetOpen),
            '}' => tokens.push(Token::SetClose),
            '%' => tokens.push(Token::Symbol('%')),
            ',' | ';' | '!' | ':' | ' ' | '(' | ')' | '[' | ']' | '$' => {}
            _ => return None,
        }
        return Some(&text[first.len_utf8()..]);
    }
    let after = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    match &text[..text.len() - after.len()] {
        "frac" | "dfrac" | "tfrac" | "cfrac" => tokens.push(Token::Fraction),
        "sqrt" => tokens.push(Token::Root),
        "cdot" | "times" => tokens.push(Token::Symbol('*')),
        "div" => tokens.push(Token::Symbol('/')),
        "le" | "leq" => tokens.push(Token::Symbol('≤')),
        "ge" | "geq" => tokens.push(Token::Symbol('≥')),
        "lt" => tokens.push(Token::Symbol('<')),
        "gt" => tokens.push(Token::Symbol('>')),
        "infty" => tokens.push(Token::Number(f64::INFINITY)),
        "text" | "textbf" | "textrm" | "mbox" => {
            let (words, after) = after.strip_prefix('{')?.split_once('}')?;
            tokens.push(Token::Words(words.trim().to_owned()));
            return Some(after);
        }
        // Commands that say nothing about the value.
        "circ" | "left" | "right" | "displaystyle" | "big" | "Big" | "bigl" | "bigr" | "bigg" | "Bigg" | "quad"
        | "qquad" | "limits" | "mathrm" | "mathbf" => {}
        name if name.len() <= 8 => tokens.push(Token::Name(name.to_owned())),
        _ => return None,
    }
    Some(after)
}
