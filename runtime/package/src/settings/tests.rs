use super::*;
use crate::manifest::parse;

fn resolved(given: &str) -> Result<Vec<(String, Value)>, SettingError> {
    let manifest = serde_json::json!({
        "name": "dpo", "version": "0.1.0", "description": "d", "shape": "preference", "interface": "0.2.0", "metrics": [],
        "settings": [
            { "name": "beta", "doc": "How strongly", "kind": "number", "default": 0.1, "above": 0.0 },
            { "name": "loss", "doc": "Which", "kind": "text", "default": "sigmoid", "choices": ["sigmoid", "hinge"] },
            { "name": "rounds", "doc": "How often", "kind": "integer", "low": 1, "high": 9 },
            { "name": "layers", "doc": "Where", "kind": "integers", "default": [], "low": 0, "max-items": 3 },
            { "name": "scales", "doc": "How much", "kind": "numbers", "default": [1], "min-items": 1 },
            { "name": "words", "doc": "Which", "kind": "texts", "default": [], "choices": ["a", "b"] },
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
        ("layers".to_owned(), Value::Integers(vec![])),
        ("scales".to_owned(), Value::Numbers(vec![1.0])),
        ("words".to_owned(), Value::Texts(vec![])),
    ];
    assert_eq!(resolved("beta = 2\nrounds = 3").unwrap(), expected);
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_setting() {
    let (what, hint) = refusal("bata = 0.2\nrounds = 1");
    assert_eq!(what, "unknown key `bata`");
    assert_eq!(hint, "did you mean `beta`? (settings: beta, loss, rounds, layers, scales, words)");
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
    assert_eq!(refusal("rounds = [1]").0, "`rounds` is [1], it must be a whole number");
    assert_eq!(refusal("rounds = 1\nlayers = 2").0, "`layers` is 2, it must be a list of whole numbers");
    assert_eq!(refusal("rounds = 1\nlayers = [\"a\"]").0, "`layers` is [\"a\"], it must be a list of whole numbers");
    assert_eq!(
        refusal("rounds = 1\nlayers = [1, \"a\"]").0,
        "`layers` is of type array, it must be a list of whole numbers"
    );
}

#[test]
fn a_text_that_is_no_choice_names_the_choices() {
    assert_eq!(refusal("loss = \"ipo\"\nrounds = 1").0, "`loss` is `ipo`, it must be `sigmoid` or `hinge`");
}

#[test]
fn a_setting_without_default_must_be_given() {
    assert_eq!(refusal("beta = 0.2").0, "`rounds` is missing");
}

#[test]
fn a_list_is_taken_with_items_of_the_kind_of_the_setting() {
    let given = resolved("rounds = 1\nlayers = [2, 0]\nscales = [1, 0.5]\nwords = [\"b\"]").unwrap();
    let lists: Vec<&Value> = given[3..].iter().map(|(_, value)| value).collect();
    let expected = [Value::Integers(vec![2, 0]), Value::Numbers(vec![1.0, 0.5]), Value::Texts(vec!["b".to_owned()])];
    assert_eq!(lists, expected.iter().collect::<Vec<_>>());
}

#[test]
fn an_item_outside_the_range_of_a_list_is_named_by_its_number() {
    assert_eq!(
        refusal("rounds = 1\nlayers = [2, -1]").0,
        "`layers` is wrong at item 2, which is -1, it must be at least 0"
    );
    assert_eq!(
        refusal("rounds = 1\nwords = [\"c\"]").0,
        "`words` is wrong at item 1, which is `c`, it must be `a` or `b`"
    );
}

#[test]
fn a_list_with_too_few_or_too_many_items_is_refused_with_the_numbers() {
    assert_eq!(
        refusal("rounds = 1\nlayers = [1, 2, 3, 4]").0,
        "`layers` is a list of 4 items, it must be a list of at most 3 items, each at least 0"
    );
    assert_eq!(
        refusal("rounds = 1\nscales = []").0,
        "`scales` is a list of 0 items, it must be a list of at least 1 items, each a finite number"
    );
}
