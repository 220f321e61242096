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

#[derive(Settings, Debug, PartialEq)]
struct Lists {
    /// Which layers.
    #[setting(default = [1, -2], high = 7, max_items = 4)]
    layers: Vec<i64>,
    /// Which positions.
    #[setting(default = [])]
    positions: Vec<u32>,
    /// How strongly at each.
    #[setting(default = [0.5], above = 0, min_items = 1)]
    strengths: Vec<f32>,
    /// Which ways.
    #[setting(default = ["gentle"])]
    ways: Vec<Way>,
    /// Which words.
    words: Vec<String>,
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

#[test]
fn the_manifest_holds_the_kind_of_a_list_with_its_default_and_the_range_of_each_item() {
    let expected = concat!(
        r#"[{"name":"layers","doc":"Which layers.","kind":"integers","default":[1,-2],"max-items":4,"high":7,"choices":[]},"#,
        r#"{"name":"positions","doc":"Which positions.","kind":"integers","default":[],"low":0,"high":4294967295,"choices":[]},"#,
        r#"{"name":"strengths","doc":"How strongly at each.","kind":"numbers","default":[0.5],"above":0,"min-items":1,"choices":[]},"#,
        r#"{"name":"ways","doc":"Which ways.","kind":"texts","default":["gentle"],"choices":["gentle","very-gentle"]},"#,
        r#"{"name":"words","doc":"Which words.","kind":"texts","choices":[]}]"#,
    );
    assert_eq!(Lists::MANIFEST, expected);
}

#[test]
fn lists_of_the_host_become_vectors_of_the_item_type() {
    let values = [
        ("layers", Value::Integers(vec![3, -1])),
        ("positions", Value::Integers(vec![])),
        ("strengths", Value::Numbers(vec![0.25])),
        ("ways", Value::Texts(vec!["very-gentle".to_owned()])),
        ("words", Value::Texts(vec!["so".to_owned()])),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), value));
    let expected = Lists {
        layers: vec![3, -1],
        positions: vec![],
        strengths: vec![0.25],
        ways: vec![Way::VeryGentle],
        words: vec!["so".to_owned()],
    };
    assert_eq!(<Lists as Settings>::read(&values).unwrap(), expected);
}
