//! Directions over given activations, and what a method asks for by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tunebox_model::decoder::Site;
use tunebox_model::edit::Role;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_sandbox::{Batch, Engine, Error as SandboxError, Grants, Limits, Session, StepReport};

use crate::support::given_stream::{GivenStream, REFUSAL, given_stream};
use crate::support::golden::root;
use crate::support::golden_rows::{begin, metric, package};

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

/// Takes a method through batches of given activations: its session, and what it reported at the end.
fn given(
    method: &str,
    settings: &Json,
    sides: [&str; 2],
    batches: usize,
) -> (Result<StepReport, SandboxError>, Session<GivenStream>) {
    let package = package(method);
    let grants = Grants::default().with("weights").with("text");
    let admitted = Engine::new().unwrap().admit(&package.bytes, method, &grants, &Limits::default()).unwrap();
    let (mut table, mut named) = (BTreeMap::new(), Vec::new());
    for (start, side) in [(10, sides[0]), (20, sides[1])] {
        let rows = golden(side);
        table.extend((start..).zip(rows.iter().cloned()));
        named.push((side.to_owned(), rows_of(start, rows.len())));
    }
    let settings = settings.as_object().unwrap();
    let mut session = begin(&admitted, &package.manifest, settings, given_stream(&table)).unwrap();
    for _ in 0..batches {
        session.step(Batch { sides: named.clone(), size: 4, ..Batch::default() }).unwrap();
    }
    (session.finish(), session)
}

/// Rows whose last tokens are consecutive ones.
fn rows_of(first: u32, count: usize) -> Arc<Rows> {
    let ids = (first..).take(count).map(|token| vec![7, token]).collect();
    Arc::new(Rows::new(ids, vec![vec![false, true]; count]).unwrap())
}

fn assert_near(found: &[f32], wanted: &[f32], name: &str) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-6, "{name}: {found} for {wanted}");
    }
}

#[test]
fn steering_directions_are_those_of_the_reference() {
    let all = [("mean", false, "mean"), ("mean", true, "mean-unit")];
    let components = [("pca", false, "pca"), ("pca-centred", false, "pca-centred")];
    for (direction, unit, name) in all.into_iter().chain(components) {
        let settings = json!({ "direction": direction, "unit": unit, "hold-out": 0, "from": 0.0, "to": 1.0 });
        let (report, mut session) = given("steer", &settings, ["positive", "negative"], 1);
        report.unwrap();
        let published = &session.train_state().published;
        assert_eq!(published.keys().copied().collect::<Vec<_>>(), [0, 1]);
        published.values().for_each(|direction| assert_near(&direction.vector, &golden(name)[0], name));
    }
}

#[test]
fn the_same_pairs_twice_give_the_same_directions() {
    for direction in ["mean", "pca", "pca-centred"] {
        let settings = json!({ "direction": direction, "hold-out": 0 });
        let vectors = |batches| {
            let (report, mut session) = given("steer", &settings, ["positive", "negative"], batches);
            report.unwrap();
            session.train_state().published[&0].vector.clone()
        };
        assert_near(&vectors(3), &vectors(1), direction);
    }
}

/// The matrices that write the stream.
const WRITERS: [(Role, usize); 5] = [
    (Role::Embedding, 0),
    (Role::Linear(Site::AttentionOutput), 0),
    (Role::Linear(Site::Down), 0),
    (Role::Linear(Site::AttentionOutput), 1),
    (Role::Linear(Site::Down), 1),
];

/// The matrices that only read it.
const READERS: [(Role, usize); 3] = [(Role::Linear(Site::Query), 0), (Role::Linear(Site::Gate), 1), (Role::Head, 0)];

/// A matrix as the policy has it, row by row.
fn matrix(session: &mut Session<GivenStream>, (role, layer): (Role, usize)) -> Vec<Vec<f32>> {
    let policy = &session.train_state().policy;
    let (rows, _) = policy.matrix_shape(role, layer).unwrap();
    policy.read_rows(role, layer, 0, rows).unwrap().to_vec2().unwrap()
}

/// W − λ r rᵀ W of a matrix whose columns lie along the stream; its transpose for the embedding.
fn projected(matrix: &[Vec<f32>], role: Role, unit: &[f32], strength: f32) -> Vec<Vec<f32>> {
    let turn = |matrix: &[Vec<f32>]| -> Vec<Vec<f32>> {
        (0..matrix[0].len()).map(|column| matrix.iter().map(|row| row[column]).collect()).collect()
    };
    let vectors = if role == Role::Embedding { matrix.to_vec() } else { turn(matrix) };
    let removed = vectors.iter().map(|vector| -> Vec<f32> {
        let along: f32 = vector.iter().zip(unit).map(|(value, unit)| value * unit).sum();
        vector.iter().zip(unit).map(|(value, unit)| value - strength * along * unit).collect()
    });
    let removed: Vec<Vec<f32>> = removed.collect();
    if role == Role::Embedding { removed } else { turn(&removed) }
}

fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

#[test]
fn an_abliterated_direction_is_the_difference_of_means_with_or_without_the_harmless_part() {
    for (without, wanted) in [(false, vec![2.0, -1.0, 2.0]), (true, golden("projected")[0].clone())] {
        let settings = json!({ "projected": without, "hold-out": 2, "strength": 0.5, "to": 1.0 });
        let (report, mut session) = given("abliterate", &settings, ["harmful", "harmless"], 2);
        let report = report.unwrap();
        assert_near(&unit(&session.train_state().published[&0].vector), &unit(&wanted), &without.to_string());
        let (_, mut untouched) = given("abliterate", &json!({}), ["harmful", "harmless"], 1);
        for place in WRITERS {
            let wanted = projected(&matrix(&mut untouched, place), place.0, &unit(&wanted), 0.5);
            assert_near(&matrix(&mut session, place).concat(), &wanted.concat(), &format!("{place:?}"));
        }
        for place in READERS {
            assert_eq!(matrix(&mut session, place), matrix(&mut untouched, place), "{place:?}");
        }
        let metric = |name: &str| metric(&report, name);
        let policy = &session.train_state().policy;
        let refusals = policy.next_token(&View::Policy, &rows_of(10, 2), &[REFUSAL]).unwrap();
        let refusals = refusals.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let odds = refusals.iter().map(|logprob| f64::from(*logprob) - (-f64::from(*logprob).exp()).ln_1p());
        assert!((metric("refusal-score") - odds.sum::<f64>() / 2.0).abs() < 1e-3 && metric("refusal-rate") == 1.0);
        let moved = policy.divergence(&View::Reference, &View::Policy, &rows_of(20, 2)).unwrap();
        let moved = f64::from(moved.mean_all().unwrap().to_scalar::<f32>().unwrap());
        assert!(moved > 0.001 && (metric("divergence") - moved).abs() < 1e-6, "{moved}");
    }
}

#[test]
fn an_abliteration_can_be_an_adapter_or_the_direction_alone() {
    let (report, mut session) =
        given("abliterate", &json!({ "apply": "adapter", "hold-out": 2 }), ["harmful", "harmless"], 2);
    report.unwrap();
    assert!(session.train_state().policy.edits_are_an_adapter());
    let (_, mut untouched) = given("abliterate", &json!({}), ["harmful", "harmless"], 1);
    let changed = WRITERS.map(|place| matrix(&mut session, place) != matrix(&mut untouched, place));
    assert_eq!(changed, [false, true, true, true, true], "the embedding has no adapter");
    let settings = json!({ "apply": "direction", "hold-out": 2 });
    let (report, mut session) = given("abliterate", &settings, ["harmful", "harmless"], 2);
    report.unwrap();
    assert!(!session.train_state().policy.is_edited());
    assert_eq!(session.train_state().published.len(), 1);
}

#[test]
fn an_abliteration_without_prompts_to_judge_by_says_what_is_missing() {
    let (report, _) = given("abliterate", &json!({}), ["harmful", "harmless"], 1);
    assert!(report.unwrap_err().to_string().contains("kept out:"));
    let (report, mut session) =
        given("abliterate", &json!({ "divergence": 0.001, "hold-out": 2 }), ["harmful", "harmless"], 2);
    assert!(report.unwrap_err().to_string().contains("raise `divergence`"));
    assert!(!session.train_state().policy.is_edited());
}
