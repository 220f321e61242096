//! Whether an answer equals what was expected. What was expected comes first: the two are not alike.

use crate::value::{Node, POINTS, Value};

/// Whether `answer` is right where `gold` was expected.
pub(crate) fn equal(gold: &Value, answer: &Value) -> bool {
    match (gold, answer) {
        (Value::Equation(name, gold), Value::Equation(other, answer)) => name == other && equal(gold, answer),
        (Value::Equation(_, gold), answer) => equal(gold, answer),
        (gold, Value::Equation(_, answer)) => equal(gold, answer),
        (Value::Expression(gold) | Value::Percent(gold), Value::Expression(answer)) => same(gold, answer),
        (Value::Expression(gold) | Value::Percent(gold), Value::Percent(answer)) => {
            let share = Node::Divide(Box::new(answer.clone()), Box::new(Node::Number(100.0)));
            same(gold, answer) || same(gold, &share)
        }
        (Value::Set(gold), Value::Set(answer)) => among(gold, answer) && among(answer, gold),
        (gold, Value::Set(answer)) if answer.len() == 1 => equal(gold, &answer[0]),
        (Value::List { open, items, close }, Value::List { open: other, items: found, close: end }) => {
            (open, close) == (other, end) && in_order(items, found)
        }
        (Value::Interval { low, low_in, high, high_in }, Value::List { open, items, close }) => {
            let (first, last) = (if *low_in { '[' } else { '(' }, if *high_in { ']' } else { ')' });
            let bounds = [Value::Expression(low.clone()), Value::Expression(high.clone())];
            (first, last) == (*open, *close) && in_order(&bounds, items)
        }
        (
            Value::Interval { low, low_in, high, high_in },
            Value::Interval { low: other, low_in: from, high: end, high_in: to },
        ) => (low_in, high_in) == (from, to) && same(low, other) && same(high, end),
        (Value::Words(gold), Value::Words(answer)) => gold == answer,
        _ => false,
    }
}

fn in_order(gold: &[Value], answer: &[Value]) -> bool {
    gold.len() == answer.len() && gold.iter().zip(answer).all(|(gold, answer)| equal(gold, answer))
}

/// Whether every entry of one list equals some entry of the other.
fn among(some: &[Value], others: &[Value]) -> bool {
    some.iter().all(|one| others.iter().any(|other| equal(one, other)))
}

/// Numbers are equal when they agree to six decimals, expressions with variables when they agree at
/// every point.
fn same(gold: &Node, answer: &Node) -> bool {
    if gold.varies() || answer.varies() {
        return (0..POINTS).all(|point| near(gold.at(point), answer.at(point)));
    }
    let (gold, answer) = (gold.at(0), answer.at(0));
    gold == answer || near(gold, answer) || (gold * 1e6).round() == (answer * 1e6).round()
}

fn near(left: f64, right: f64) -> bool {
    left.is_finite() && right.is_finite() && (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
}
