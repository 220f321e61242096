//! A calculator: the model writes `calc: 37*41` and gets the value; `answer: 1517` ends the episode, with reward 1 if
//! that is the record's answer.

use tunebox::prelude::*;

/// A calculator for whole numbers.
struct Calculator;

impl Environment for Calculator {
    type Settings = ();

    fn init((): ()) -> Result<Self> {
        Ok(Self)
    }

    fn respond(&self, _prompt: &str, answer: &str, turns: &[Turn]) -> Reply {
        let last = turns.last().map_or("", Turn::text).trim();
        match last.split_once(':') {
            Some(("calc", expression)) => {
                Reply::Message(calculate(expression).map_or("error".to_owned(), |value| value.to_string()))
            }
            Some(("answer", given)) => Reply::End(Some(f32::from(given.trim() == answer))),
            _ => Reply::End(Some(0.0)),
        }
    }
}

environment! { Calculator }

/// The value of an expression of whole numbers, `+`, `-` and `*`; `None` for any other text, and past 64 bits.
fn calculate(expression: &str) -> Option<i64> {
    let product = |text: &str| text.split('*').try_fold(1_i64, |all, factor| all.checked_mul(factor.trim().parse().ok()?));
    let (mut sum, mut rest) = (0_i64, expression);
    loop {
        // The last `+` or `-` that stands between two numbers, not before one.
        let place = rest.rfind(['+', '-']).filter(|at| rest[..*at].trim_end().ends_with(|c: char| c.is_ascii_digit()));
        let Some(at) = place else { return sum.checked_add(product(rest)?) };
        let term = product(&rest[at + 1..])?;
        sum = if rest[at..].starts_with('-') { sum.checked_sub(term)? } else { sum.checked_add(term)? };
        rest = &rest[..at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_sums_are_calculated_and_nothing_else() {
        for (expression, value) in [("37*41", 1517), ("2 + 3 * 4 - 5", 9), ("7", 7), ("-3*2", -6), ("1-2-3", -4)] {
            assert_eq!(calculate(expression), Some(value), "{expression}");
        }
        for wrong in ["", "2 +", "x", "2//3", "9223372036854775807+1", "1 2"] {
            assert_eq!(calculate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_value_is_a_message_and_an_answer_is_the_end() {
        let respond = |texts: &[&str]| {
            let turns: Vec<Turn> = texts.iter().map(|text| Turn::Completion((*text).to_owned())).collect();
            Calculator.respond("What is 37 * 41?", "1517", &turns)
        };
        assert_eq!(respond(&["calc: 37*41"]), Reply::Message("1517".to_owned()));
        assert_eq!(respond(&["calc: calm"]), Reply::Message("error".to_owned()));
        assert_eq!(respond(&["calc: 37*41", "answer: 1517"]), Reply::End(Some(1.0)));
        assert_eq!(respond(&["answer: 7"]), Reply::End(Some(0.0)));
        assert_eq!(respond(&["I do not know."]), Reply::End(Some(0.0)));
    }
}
