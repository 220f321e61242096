//! Compares an answer with the expected value. The order of the two matters: `50%` is right where `1/2` is expected,
//! but `1/2` is not right where only a set is.

use crate::value::{Node, POINTS, Value};

/// Whether `answer` is right where `gold` was expected. The name in an equation, the percent sign of an answer and the
/// braces of a set of one entry may be missing.
pub(crate) fn is_right(gold: &Value, answer: &Value) -> bool {
    match (gold, answer) {
        (Value::Equation(name, gold), Value::Equation(other, answer)) => name == other && is_right(gold, answer),
        (Value::Equation(_, gold), answer) => is_right(gold, answer),
        (gold, Value::Equation(_, answer)) => is_right(gold, answer),
        (Value::Expression(gold) | Value::Percent(gold), Value::Expression(answer)) => is_same_value(gold, answer),
        (Value::Expression(gold) | Value::Percent(gold), Value::Percent(answer)) => {
            let share = Node::Divide(Box::new(answer.clone()), Box::new(Node::Number(100.0)));
            is_same_value(gold, answer) || is_same_value(gold, &share)
        }
        (Value::Set(gold), Value::Set(answer)) => is_subset(gold, answer) && is_subset(answer, gold),
        (gold, Value::Set(answer)) if answer.len() == 1 => is_right(gold, &answer[0]),
        (Value::List { open, items, close }, Value::List { open: other, items: found, close: end }) => {
            (open, close) == (other, end) && are_equal_lists(items, found)
        }
        (Value::Interval { low, low_in, high, high_in }, Value::List { open, items, close }) => {
            let (first, last) = (if *low_in { '[' } else { '(' }, if *high_in { ']' } else { ')' });
            let bounds = [Value::Expression(low.clone()), Value::Expression(high.clone())];
            (first, last) == (*open, *close) && are_equal_lists(&bounds, items)
        }
        (
            Value::Interval { low, low_in, high, high_in },
            Value::Interval { low: other, low_in: from, high: end, high_in: to },
        ) => (low_in, high_in) == (from, to) && is_same_value(low, other) && is_same_value(high, end),
        (Value::Words(gold), Value::Words(answer)) => gold == answer,
        _ => false,
    }
}

/// Whether two lists have equal entries at equal places.
fn are_equal_lists(gold: &[Value], answer: &[Value]) -> bool {
    gold.len() == answer.len() && gold.iter().zip(answer).all(|(gold, answer)| is_right(gold, answer))
}

/// Whether every entry of `some` equals an entry of `others`.
fn is_subset(some: &[Value], others: &[Value]) -> bool {
    some.iter().all(|one| others.iter().any(|other| is_right(one, other)))
}

/// Whether two expressions have the same value: to six decimals or a relative difference of 1e-12 for numbers, at
/// [`POINTS`] values of the variables otherwise.
fn is_same_value(gold: &Node, answer: &Node) -> bool {
    if gold.has_variables() || answer.has_variables() {
        return (0..POINTS).all(|point| is_near(gold.at(point), answer.at(point)));
    }
    let (gold, answer) = (gold.at(0), answer.at(0));
    gold == answer || is_near(gold, answer) || (gold * 1e6).round() == (answer * 1e6).round()
}

/// Whether two finite numbers differ by at most 1e-12 of the larger one.
fn is_near(left: f64, right: f64) -> bool {
    left.is_finite() && right.is_finite() && (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
}
