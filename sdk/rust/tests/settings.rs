//! What the derives write down, and how values become a struct.

use tunebox::prelude::*;
use tunebox::settings::Value;

#[derive(Settings, Debug, PartialEq)]
struct Calm {
    /// How strongly, in "quotes".
    #[setting(default = 0.5, above = -1.0, high = 2)]
    strength: f32,
    /// Which way
    /// it goes.
    #[setting(default = "very-gentle")]
    log_way: Way,
    /// How often.
    rounds: u32,
}

#[derive(Choice, Clone, Copy, Debug, PartialEq)]
enum Way {
    Gentle,
    VeryGentle,
}

fn values(rounds: i64) -> Vec<(String, Value)> {
    let named = [
        ("rounds", Value::Integer(rounds)),
        ("log-way", Value::Text("very-gentle".to_owned())),
        ("strength", Value::Number(1.5)),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn the_manifest_holds_names_docs_defaults_ranges_and_choices() {
    let expected = concat!(
        r#"[{"name":"strength","doc":"How strongly, in \"quotes\".","kind":"number","default":0.5,"above":-1.0,"#,
        r#""high":2,"choices":[]},"#,
        r#"{"name":"log-way","doc":"Which way it goes.","kind":"text","default":"very-gentle","#,
        r#""choices":["gentle","very-gentle"]},"#,
        r#"{"name":"rounds","doc":"How often.","kind":"integer","low":0,"high":4294967295,"choices":[]}]"#,
    );
    assert_eq!(Calm::MANIFEST, expected);
}

#[test]
fn values_in_any_order_become_the_struct() {
    let settings = <Calm as Settings>::read(&values(3)).unwrap();
    assert_eq!(settings, Calm { strength: 1.5, log_way: Way::VeryGentle, rounds: 3 });
}

#[test]
fn a_value_that_does_not_fit_the_type_is_an_error_of_that_setting() {
    let error = <Calm as Settings>::read(&values(-1)).unwrap_err();
    assert!(error.to_string().contains("`rounds`"), "{error}");
}

#[test]
fn a_value_that_did_not_arrive_is_an_error_of_that_setting() {
    let error = <Calm as Settings>::read(&values(1)[1..]).unwrap_err();
    assert!(error.to_string().contains("`rounds`"), "{error}");
}
