//! Directions over given activations, and what a method asks for by them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;
use tunebox_model::edit::{Form, Role};
use tunebox_model::rows::Rows;
use tunebox_package::{Reference, Value as Given, resolve_settings};
use tunebox_sandbox::{
    Batch, Engine, Error as SandboxError, Grants, Limits, Session, SessionSettings, StepReport, Value,
};

use super::root;
use crate::support::given_stream::{Asked, GivenStream};

/// A table of `golden/editing.json`.
fn golden(name: &str) -> Vec<Vec<f32>> {
    let text = std::fs::read_to_string(root().join("tests/golden/editing.json")).unwrap();
    let value: Json = serde_json::from_str(&text).unwrap();
    let numbers = |row: &Json| row.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect();
    match &value[name][0] {
        Json::Array(_) => value[name].as_array().unwrap().iter().map(numbers).collect(),
        _ => vec![numbers(&value[name])],
    }
}

/// Takes a method through batches of given activations: what it asked for, and what it said at the end.
fn given(
    method: &str,
    settings: &[(&str, &str)],
    sides: [&str; 2],
    batches: usize,
) -> (Result<StepReport, SandboxError>, Arc<Mutex<Asked>>) {
    let package = Reference::parse(method, &root()).unwrap().open().unwrap();
    let given = settings.iter().map(|(name, value)| ((*name).to_owned(), toml_value(value))).collect();
    let values = resolve_settings(&package.manifest, &given).unwrap();
    let values: Vec<(String, Value)> = values.into_iter().map(|(name, given)| (name, value(given))).collect();
    let grants = Grants::default().with("weights").with("text");
    let admitted = Engine::new().unwrap().admit(&package.bytes, method, &grants, &Limits::default()).unwrap();
    let (mut table, mut named) = (BTreeMap::new(), Vec::new());
    for (start, side) in [(10, sides[0]), (20, sides[1])] {
        let rows = golden(side);
        let ids = (0..rows.len()).map(|row| vec![start + row as u32, 7]).collect();
        table.extend((start..).zip(rows.iter().cloned()));
        named.push((side.to_owned(), Arc::new(Rows::new(ids, vec![vec![false, true]; rows.len()]).unwrap())));
    }
    let (learner, asked) = GivenStream::over(table);
    let metric_names = package.manifest.metrics.clone();
    let mut session =
        Session::start(&admitted, learner, SessionSettings { metric_names, ..SessionSettings::default() }).unwrap();
    session.init(&values).unwrap();
    for _ in 0..batches {
        session.step(Batch { sides: named.clone(), size: 4, ..Batch::default() }).unwrap();
    }
    (session.finish(), asked)
}

fn toml_value(text: &str) -> toml::Value {
    format!("value = {text}").parse::<toml::Table>().unwrap().remove("value").unwrap()
}

fn value(given: Given) -> Value {
    match given {
        Given::Boolean(value) => Value::Boolean(value),
        Given::Integer(value) => Value::Integer(value),
        Given::Number(value) => Value::Number(value),
        Given::Text(value) => Value::Text(value),
    }
}

fn near(found: &[f32], wanted: &[f32], name: &str) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-6, "{name}: {found} for {wanted}");
    }
}

#[test]
fn steering_directions_are_those_of_the_reference() {
    let all = [("\"mean\"", false, "mean"), ("\"mean\"", true, "mean-unit")];
    let components = [("\"pca\"", false, "pca"), ("\"pca-centred\"", false, "pca-centred")];
    for (direction, unit, name) in all.into_iter().chain(components) {
        let unit = unit.to_string();
        let settings = [("direction", direction), ("unit", &unit), ("hold-out", "0"), ("from", "0"), ("to", "1")];
        let (report, asked) = given("steer", &settings, ["positive", "negative"], 1);
        report.unwrap();
        let published = std::mem::take(&mut asked.lock().unwrap().published);
        assert_eq!(published.iter().map(|direction| direction.layer).collect::<Vec<_>>(), [0, 1]);
        published.iter().for_each(|direction| near(&direction.vector, &golden(name)[0], name));
    }
}

#[test]
fn the_same_pairs_twice_give_the_same_directions() {
    for direction in ["\"mean\"", "\"pca\"", "\"pca-centred\""] {
        let settings = [("direction", direction), ("hold-out", "0")];
        let vectors = |batches| {
            let (report, asked) = given("steer", &settings, ["positive", "negative"], batches);
            report.unwrap();
            let asked = asked.lock().unwrap();
            asked.published[0].vector.clone()
        };
        near(&vectors(3), &vectors(1), direction);
    }
}

#[test]
fn an_abliterated_direction_is_the_difference_of_means_with_or_without_the_harmless_part() {
    for (projected, wanted) in [("false", vec![2.0, -1.0, 2.0]), ("true", golden("projected")[0].clone())] {
        let settings = [("projected", projected), ("hold-out", "2"), ("strength", "0.5"), ("to", "1.0")];
        let (report, asked) = given("abliterate", &settings, ["harmful", "harmless"], 2);
        let report = report.unwrap();
        let asked = asked.lock().unwrap();
        let length = |vector: &[f32]| vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        let unit = |vector: &[f32]| vector.iter().map(|value| value / length(vector)).collect::<Vec<f32>>();
        near(&unit(&asked.published[0].vector), &unit(&wanted), projected);
        let places: Vec<(Role, usize)> = asked.projected.iter().map(|(role, layer, ..)| (*role, *layer)).collect();
        let both = |layer| [(Role::AttentionOutput, layer), (Role::Down, layer)];
        assert_eq!(places, [vec![(Role::Embedding, 0)], both(0).to_vec(), both(1).to_vec()].concat());
        assert!(asked.projected.iter().all(|(.., strength)| *strength == 0.5));
        let metric = |name: &str| report.metrics.iter().find(|(known, ..)| known == name).unwrap().1;
        assert!((metric("refusal-score") - 9.0_f64.ln()).abs() < 1e-5 && metric("refusal-rate") == 1.0);
        assert!((metric("divergence") - 0.01).abs() < 1e-7);
    }
}

#[test]
fn an_abliteration_can_be_an_adapter_or_the_direction_alone() {
    let (report, asked) =
        given("abliterate", &[("apply", "\"adapter\""), ("hold-out", "2")], ["harmful", "harmless"], 2);
    report.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!((asked.form, asked.projected.len()), (Form::Adapter, 4));
    let settings = [("apply", "\"direction\""), ("hold-out", "2")];
    let (report, asked) = given("abliterate", &settings, ["harmful", "harmless"], 2);
    report.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!((asked.projected.len(), asked.published.len()), (0, 1));
}

#[test]
fn an_abliteration_without_prompts_to_judge_by_says_what_is_missing() {
    let (report, _) = given("abliterate", &[], ["harmful", "harmless"], 1);
    assert!(report.unwrap_err().to_string().contains("kept out:"));
    let (report, asked) =
        given("abliterate", &[("divergence", "0.001"), ("hold-out", "2")], ["harmful", "harmless"], 2);
    assert!(report.unwrap_err().to_string().contains("raise `divergence`"));
    assert!(asked.lock().unwrap().projected.is_empty());
}
