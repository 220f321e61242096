//! Where the mathematics stands: in the record's answer, and in a completion.

use tunebox::verifier::boxes;

use crate::lexer::{Token, tokens};
use crate::value::Value;
use crate::{compare, parse};

/// What announces an answer that stands in no box.
const ANCHOR: &str = "final answer is";

/// The value of a record's answer. Outside of `$…$` and boxes only numbers count: words and letters
/// there mean nothing.
pub(crate) fn gold(text: &str) -> Option<Value> {
    if let Some(content) = boxes(text).last() {
        return read(content);
    }
    let dollars = text.split_once('$').and_then(|(_, rest)| rest.rsplit_once('$')).map(|(inside, _)| inside);
    if let Some(inside) = dollars {
        return read(inside);
    }
    let tokens = tokens(text)?;
    let number = tokens.iter().all(|token| !matches!(token, Token::Name(_) | Token::Root | Token::Words(_)));
    if number { parse::value(&tokens) } else { None }
}

/// The value that a completion gives as its answer: what is boxed, or what an anchor announces.
/// Several boxes that differ are a set.
pub(crate) fn answer(text: &str) -> Option<Value> {
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
        if !values.iter().any(|known| compare::equal(known, &value)) {
            values.push(value);
        }
    }
    if values.len() == 1 { values.pop() } else { Some(Value::Set(values)) }
}

fn read(text: &str) -> Option<Value> {
    parse::value(&tokens(text.trim().trim_end_matches('.'))?)
}
