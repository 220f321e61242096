use super::*;
use crate::manifest::parse;

fn resolved(given: &str) -> Result<Vec<(String, Value)>, SettingError> {
    let manifest = serde_json::json!({
        "name": "dpo", "version": "0.1.0", "description": "d", "shape": "preference", "interface": "0.1.0", "metrics": [],
        "settings": [
            { "name": "beta", "doc": "How strongly", "kind": "number", "default": 0.1, "above": 0.0 },
            { "name": "loss", "doc": "Which", "kind": "text", "default": "sigmoid", "choices": ["sigmoid", "hinge"] },
            { "name": "rounds", "doc": "How often", "kind": "integer", "low": 1, "high": 9 },
        ],
    });
    resolve_settings(&parse(manifest.to_string().as_bytes()).unwrap(), &given.parse::<toml::Table>().unwrap())
}

fn refusal(given: &str) -> (String, String) {
    let error = resolved(given).unwrap_err();
    (error.to_string(), error.hint().unwrap_or_default())
}

#[test]
fn defaults_are_filled_in_and_a_whole_number_is_a_number() {
    let expected = [
        ("beta".to_owned(), Value::Number(2.0)),
        ("loss".to_owned(), Value::Text("sigmoid".to_owned())),
        ("rounds".to_owned(), Value::Integer(3)),
    ];
    assert_eq!(resolved("beta = 2\nrounds = 3").unwrap(), expected);
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_setting() {
    let (what, hint) = refusal("bata = 0.2\nrounds = 1");
    assert_eq!(what, "unknown key `bata`");
    assert_eq!(hint, "did you mean `beta`? (settings: beta, loss, rounds)");
}

#[test]
fn a_value_outside_its_range_names_the_range() {
    assert_eq!(refusal("beta = 0.0\nrounds = 1").0, "`beta` is 0, it must be above 0");
    assert_eq!(refusal("rounds = 10").0, "`rounds` is 10, it must be at least 1 and at most 9");
}

#[test]
fn a_number_that_is_not_one_is_refused() {
    assert_eq!(refusal("beta = nan\nrounds = 1").0, "`beta` is NaN, it must be above 0");
    assert_eq!(refusal("beta = inf\nrounds = 1").0, "`beta` is inf, it must be above 0");
}

#[test]
fn a_number_that_is_infinite_in_32_bits_is_refused_by_its_name() {
    assert_eq!(
        refusal("beta = 1e39\nrounds = 1").0,
        "`beta` is 1e39, it must be a number that 32 bits hold, 3.4e38 at most"
    );
    assert_eq!(resolved("beta = 3e38\nrounds = 1").unwrap()[0].1, Value::Number(3e38));
}

#[test]
fn a_value_of_another_kind_names_the_kind() {
    assert_eq!(refusal("rounds = 1.5").0, "`rounds` is 1.5, it must be a whole number");
    assert_eq!(refusal("rounds = [1]").0, "`rounds` is of type array, it must be a whole number");
}

#[test]
fn a_text_that_is_no_choice_names_the_choices() {
    assert_eq!(refusal("loss = \"ipo\"\nrounds = 1").0, "`loss` is `ipo`, it must be `sigmoid` or `hinge`");
}

#[test]
fn a_setting_without_default_must_be_given() {
    assert_eq!(refusal("beta = 0.2").0, "`rounds` is missing");
}
