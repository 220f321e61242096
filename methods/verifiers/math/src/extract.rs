//! Finds and parses the mathematical value in a record's answer and in a completion.

use tunebox::verifier::boxes;

use crate::lexer::{Token, tokenize};
use crate::value::Value;
use crate::{compare, parse};

/// The words before an answer that is not in `\boxed{…}`.
const ANCHOR: &str = "final answer is";

/// Parses the value of a record's answer: the last `\boxed{…}`, else the text between the first and the last `$`, else
/// the whole text. In the last case it must have no names, roots or words. `None` if there is no value.
pub(crate) fn parse_gold(text: &str) -> Option<Value> {
    if let Some(content) = boxes(text).last() {
        return read(content);
    }
    let dollars = text.split_once('$').and_then(|(_, rest)| rest.rsplit_once('$')).map(|(inside, _)| inside);
    if let Some(inside) = dollars {
        return read(inside);
    }
    let tokens = tokenize(text)?;
    let number = tokens.iter().all(|token| !matches!(token, Token::Name(_) | Token::Root | Token::Words(_)));
    if number { parse::parse_value(&tokens) } else { None }
}

/// Parses the value that a completion gives as its answer: the contents of its boxes, else the text between `$` right
/// after [`ANCHOR`]. Boxes with different values are a set. `None` if there is neither, or a box cannot be parsed.
pub(crate) fn parse_answer(text: &str) -> Option<Value> {
    let boxes = boxes(text);
    if boxes.is_empty() {
        let (_, after) = text.split_once(ANCHOR)?;
        let (between, rest) = after.split_once('$')?;
        between.trim().is_empty().then_some(())?;
        return read(rest.split_once('$')?.0);
    }
    let mut values: Vec<Value> = Vec::new();
    for content in boxes {
        let value = read(content)?;
        if !values.iter().any(|known| compare::is_right(known, &value)) {
            values.push(value);
        }
    }
    if values.len() == 1 { values.pop() } else { Some(Value::Set(values)) }
}

/// Parses a text without the space and the full stop around it.
fn read(text: &str) -> Option<Value> {
    parse::parse_value(&tokenize(text.trim().trim_end_matches('.'))?)
}
