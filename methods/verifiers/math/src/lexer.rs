//! LaTeX and plain mathematics as tokens. Spacing, sizes of brackets and units in `\text{…}` are left out.

/// One piece of mathematics.
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

/// Commands that say nothing about the value.
const IDLE: [&str; 14] = [
    "left",
    "right",
    "displaystyle",
    "big",
    "Big",
    "bigl",
    "bigr",
    "quad",
    "qquad",
    "limits",
    "mathrm",
    "mathbf",
    "bigg",
    "Bigg",
];

/// The tokens of a text; nothing for text that is no mathematics.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    let characters: Vec<char> = text.replace("{,}", ",").chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < characters.len() {
        let c = characters[at];
        if c.is_whitespace() || c == '$' || c == '~' {
            at += 1;
        } else if c == '\\' {
            at = command(&characters, at + 1, &mut tokens)?;
        } else if c.is_ascii_digit() || c == '.' && characters.get(at + 1).is_some_and(char::is_ascii_digit) {
            at = number(&characters, at, &mut tokens)?;
        } else if c.is_alphabetic() {
            tokens.push(Token::Name(c.to_string()));
            at += 1;
        } else {
            tokens.push(Token::Symbol(plain(c)?));
            at += 1;
        }
    }
    Some(tokens)
}

/// A symbol in its plain form; nothing for one that means nothing here.
fn plain(c: char) -> Option<char> {
    Some(match c {
        '−' | '–' => '-',
        '×' | '·' => '*',
        '÷' => '/',
        '+' | '-' | '*' | '/' | '^' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '=' | '<' | '>' | '≤' | '≥'
        | '%' => c,
        _ => return None,
    })
}

/// What follows a backslash; gives the place after it.
fn command(characters: &[char], at: usize, tokens: &mut Vec<Token>) -> Option<usize> {
    let first = *characters.get(at)?;
    if !first.is_ascii_alphabetic() {
        match first {
            '{' => tokens.push(Token::SetOpen),
            '}' => tokens.push(Token::SetClose),
            '%' => tokens.push(Token::Symbol('%')),
            ',' | ';' | '!' | ':' | ' ' | '(' | ')' | '[' | ']' | '$' => {}
            _ => return None,
        }
        return Some(at + 1);
    }
    let name: String = characters[at..].iter().take_while(|c| c.is_ascii_alphabetic()).collect();
    let after = at + name.len();
    match name.as_str() {
        "frac" | "dfrac" | "tfrac" | "cfrac" => tokens.push(Token::Fraction),
        "sqrt" => tokens.push(Token::Root),
        "cdot" | "times" => tokens.push(Token::Symbol('*')),
        "div" => tokens.push(Token::Symbol('/')),
        "le" | "leq" => tokens.push(Token::Symbol('≤')),
        "ge" | "geq" => tokens.push(Token::Symbol('≥')),
        "lt" => tokens.push(Token::Symbol('<')),
        "gt" => tokens.push(Token::Symbol('>')),
        "infty" => tokens.push(Token::Number(f64::INFINITY)),
        "text" | "textbf" | "textrm" | "mbox" => return words(characters, after, tokens),
        "circ" => {}
        name if IDLE.contains(&name) => {}
        name if name.len() <= 8 => tokens.push(Token::Name(name.to_owned())),
        _ => return None,
    }
    Some(after)
}

/// The braces after `\text`.
fn words(characters: &[char], at: usize, tokens: &mut Vec<Token>) -> Option<usize> {
    (characters.get(at) == Some(&'{')).then_some(())?;
    let inside: String = characters[at + 1..].iter().take_while(|c| **c != '}').collect();
    let end = at + 1 + inside.chars().count();
    characters.get(end)?;
    tokens.push(Token::Words(inside.trim().to_owned()));
    Some(end + 1)
}

/// Digits with thousands separators and decimals.
fn number(characters: &[char], at: usize, tokens: &mut Vec<Token>) -> Option<usize> {
    let digit = |place: usize| characters.get(place).is_some_and(char::is_ascii_digit);
    let (mut text, mut end) = (String::new(), at);
    loop {
        if digit(end) {
            text.push(characters[end]);
            end += 1;
        } else if characters.get(end) == Some(&',')
            && !text.is_empty()
            && (1..=3).all(|ahead| digit(end + ahead))
            && !digit(end + 4)
        {
            end += 1;
        } else {
            break;
        }
    }
    if characters.get(end) == Some(&'.') && digit(end + 1) {
        text.push('.');
        end += 1;
        while digit(end) {
            text.push(characters[end]);
            end += 1;
        }
    }
    tokens.push(Token::Number(text.parse().ok()?));
    Some(end)
}
