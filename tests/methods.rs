//! Claims about the built-in methods: their numbers, where they start, and what accumulation leaves alone.
//!
//! The numbers are rows of `golden/methods/`, made in f64 by `golden/methods.py`; here the real components run
//! inside the sandbox in a run whose scores are given. f32 against f64 costs up to 1e-5 of a number.

use std::collections::BTreeMap;

use crate::support::given_scores::GivenScores;
use crate::support::golden::assert_section;
use crate::support::golden_rows::{self, begin, metric, name, package};
use crate::support::tiny_run::{Workspace, numbers};
use serde_json::json;
use tunebox_sandbox::{Engine, Error, Grants, Limits};

/// Within 1e-5 of the number, or of `floor` where that is more.
fn assert_near(found: f64, wanted: f64, floor: f64, what: &str) {
    assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(floor), "{what}: {found}, wanted {wanted}");
}

/// Every row of a method. Gradients that are differences of larger numbers are held to 1e-5 of those: of 0.0125 for
/// `apo-down`, whose own are as small as 4e-5, and of 0.05 for `discopop`, whose blend is twenty times as steep as u.
fn golden_rows(method: &str, count: usize) {
    let engine = Engine::new().unwrap();
    let rows = golden_rows::rows(method);
    assert_eq!(rows.len(), count);
    for row in rows {
        let what = format!("{method} {}", serde_json::Value::Object(row.settings.clone()));
        let floor = if row.settings.get("loss").is_some_and(|loss| loss == "discopop") { 0.05 } else { 0.0125 };
        let beta = row.settings.get("beta").and_then(serde_json::Value::as_f64).unwrap_or(0.1);
        let records: Vec<usize> = (0..row.records()).collect();
        let (report, arrived) = row.run(&engine, &records);
        assert_near(metric(&report, "loss"), row.loss, 0.0, &what);
        for (name, wanted) in &row.metrics {
            // Rewards and margins are β times differences of log-probabilities near 30.
            assert_near(metric(&report, name), *wanted, beta, &format!("{what}: {name}"));
        }
        for (number, side) in row.sides.keys().enumerate().filter(|(_, side)| row.gradients.contains_key(*side)) {
            for (record, wanted) in row.gradients[side].iter().enumerate() {
                let zeros = vec![0.0; wanted.len()];
                let found = arrived.get(&name(number, record)).unwrap_or(&zeros);
                assert_eq!(found.len(), wanted.len());
                for (found, wanted) in found.iter().zip(wanted) {
                    assert_near(f64::from(*found), *wanted, floor, &format!("{what}: gradient of {side} {record}"));
                }
            }
        }
        for (record, wanted) in row.each.iter().flatten().enumerate() {
            let (report, _) = row.run(&engine, &[record]);
            assert_near(metric(&report, "loss"), *wanted, 0.0, &format!("{what}: record {record}"));
        }
    }
}

#[test]
fn the_numbers_of_dpo_are_those_of_the_table() {
    golden_rows("dpo", 46);
}

#[test]
fn both_answers_of_a_pair_go_through_the_model_together() {
    let row = golden_rows::rows("dpo").remove(0);
    let passes = |joins| row.run_by(&Engine::new().unwrap(), &[0, 1], joins).2;
    // Dropout keeps the answers that are learned from apart, not those of the reference.
    assert_eq!((passes(false), passes(true)), (3, 2));
}

#[test]
fn the_numbers_of_cpo_are_those_of_the_table() {
    golden_rows("cpo", 9);
}

#[test]
fn the_numbers_of_orpo_are_those_of_the_table() {
    golden_rows("orpo", 2);
}

#[test]
fn the_numbers_of_kto_are_those_of_the_table() {
    golden_rows("kto", 3);
}

/// A folder with records of unequal length in the shape of a method.
fn workspace(method: &str) -> Workspace {
    let place = Workspace::new();
    let line = |number: usize| {
        let (prompt, answer) = (format!("{number}+{number}? {}", "Please. ".repeat(number % 3)), 2 * number);
        let other = format!("{}{}", answer + 1, "?".repeat(number % 4));
        match method {
            "lora" => json!({ "prompt": prompt, "completion": format!("{answer}") }),
            "kto" if number.is_multiple_of(3) => json!({ "prompt": prompt, "completion": other, "label": false }),
            "kto" => json!({ "prompt": prompt, "completion": format!("{answer}"), "label": true }),
            _ => json!({ "prompt": prompt, "chosen": format!("{answer}"), "rejected": other }),
        }
    };
    place.write_lines("data.jsonl", (0..16).map(line));
    place
}

/// Every built-in method that learns from records, with settings worth a run of their own.
const RUNS: [(&str, &[&str]); 12] = [
    ("lora", &[]),
    ("dpo", &[]),
    ("dpo", &["method.loss=ipo"]),
    ("dpo", &["method.loss=sigmoid 0.5, sft 1.0", "method.ld-alpha=0.5"]),
    ("dpo", &["method.use-weighting=true", "method.f-divergence=js"]),
    ("orpo", &[]),
    ("orpo", &["method.nll=answer"]),
    ("cpo", &[]),
    ("cpo", &["method.loss=simpo", "method.nll-weight=0", "method.beta=2.5"]),
    ("cpo", &["method.loss=alphapo"]),
    ("kto", &[]),
    ("kto", &["method.loss=apo-zero-unpaired", "method.undesirable-weight=1.33"]),
];

/// A gradient clipped far below Adam's ε gives an update proportional to itself, so that the weights show it; its
/// length before clipping is reported.
#[test]
fn an_update_is_the_same_however_its_records_fall_into_micro_batches() {
    for (method, settings) in RUNS {
        let place = workspace(method);
        let run = |batch: usize| {
            let (batch, accumulation) = (format!("train.batch={batch}"), format!("train.accumulation={}", 8 / batch));
            let method = format!("method.use={method}");
            let own =
                [method.as_str(), "train.steps=1", "train.clip=1e-9", "data.shuffle=false", &batch, &accumulation];
            let run = batch.replace(['.', '='], "-");
            place.train(&run, &[&own[..], settings].concat()).unwrap();
            let row = place.metrics(&run).remove(0);
            let numbers = ["loss", "gradient-norm"].map(|name| row[name].as_f64().unwrap());
            (numbers, place.bytes(&run, "adapter_model.safetensors"))
        };
        let whole = run(8);
        for batch in [2, 1] {
            let found = run(batch);
            for (found, wanted) in found.0.iter().zip(&whole.0) {
                let off = (found - wanted).abs() / wanted.abs().max(1e-3);
                assert!(off <= 1e-6, "{method} {settings:?} in micro-batches of {batch}: {found}, whole {wanted}");
            }
            let off = apart(&found.1, &whole.1);
            assert!(off <= 1e-6, "{method} {settings:?} in micro-batches of {batch}: the weights are {off} apart");
        }
    }
}

/// How far the weights of one adapter are from another's, over the length of the update: the factors B begin at 0.
fn apart(one: &[u8], other: &[u8]) -> f64 {
    let read = |bytes: &[u8]| numbers(bytes, "lora_B").into_iter().map(f64::from).collect::<Vec<f64>>();
    let (one, other) = (read(one), read(other));
    let length = |numbers: Vec<f64>| numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    length(one.iter().zip(&other).map(|(a, b)| a - b).collect()) / length(other)
}

#[test]
fn losses_begin_where_the_policy_is_the_reference() {
    let two = std::f64::consts::LN_2;
    let starts: [(&str, &str, f64); 8] = [
        ("dpo", "sigmoid", two),
        ("dpo", "hinge", 1.0),
        ("dpo", "ipo", 25.0),
        ("dpo", "sigmoid-norm", two),
        ("dpo", "bco-pair", 2.0 * two),
        ("dpo", "apo-zero", 1.0),
        ("kto", "kto", 0.5),
        ("kto", "apo-zero-unpaired", 0.5),
    ];
    for (method, loss, wanted) in starts {
        let place = workspace(method);
        let own = [format!("method.use={method}"), format!("method.loss={loss}"), "train.steps=1".into()];
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        place.train("start", &own).unwrap();
        let row = place.metrics("start").remove(0);
        let number = |name: &str| row[name].as_f64().unwrap();
        assert_near(number("loss"), wanted, 0.0, loss);
        assert_eq!(number("rewards-margins"), 0.0, "{method} {loss}");
        if method == "dpo" {
            assert_eq!(number("rewards-accuracies"), 0.0, "a tie is not won");
        }
    }
}

#[test]
fn optimal_transport_refuses_a_part_of_an_update() {
    let place = workspace("dpo");
    let own = ["method.use=dpo", "method.loss=aot", "train.batch=4", "train.accumulation=2", "train.steps=1"];
    let error = place.train("parts", &own).unwrap_err();
    let tunebox_training::Error::Step { source, .. } = error else { panic!("{error}") };
    assert!(source.to_string().contains("set `train.accumulation = 1` and `train.batch = 8`"), "{source}");
    place.train("whole", &["method.use=dpo", "method.loss=aot", "train.batch=8", "train.steps=1"]).unwrap();
}

#[test]
fn settings_that_make_no_sense_together_are_refused_before_the_first_step() {
    let engine = Engine::new().unwrap();
    for (method, settings, words) in [
        ("dpo", json!({ "loss": "sigmod" }), "`sigmod` is not a loss"),
        ("dpo", json!({ "label-smoothing": 0.1 }), "`cdpo`"),
        ("dpo", json!({ "loss": "exo-pair" }), "above 0"),
        ("cpo", json!({ "loss": "hinge", "label-smoothing": 0.1 }), "must be 0"),
    ] {
        let package = package(method);
        let component = engine.admit(&package.bytes, method, &Grants::default(), &Limits::default()).unwrap();
        let (train_state, ..) = GivenScores::over(BTreeMap::new(), false);
        match begin(&component, &package.manifest, settings.as_object().unwrap(), train_state).err().unwrap() {
            refusal @ Error::Refused { .. } => assert!(refusal.to_string().contains(words), "{settings}: {refusal}"),
            other => panic!("{settings}: {other}"),
        }
    }
}

#[test]
fn methods_that_only_learn_touch_neither_weights_nor_text() {
    for method in ["lora", "dpo", "orpo", "cpo", "kto"] {
        let imports = package(method).imports;
        for powerful in ["weights", "text", "sample", "patch", "hidden", "reward"] {
            assert!(!imports.iter().any(|import| import == powerful), "{method} imports {powerful}");
        }
    }
}

/// The settings of a method as a table for its page.
fn table(method: &str) -> String {
    let manifest = package(method).manifest;
    let mut text = String::from("| setting | default | takes | what it does |\n|---|---|---|---|\n");
    for setting in &manifest.settings {
        let default = setting.default.as_ref().map_or_else(|| "–".into(), |value| format!("`{value}`"));
        let takes = tunebox_package::settings::range(setting);
        text += &format!("| `{}` | {default} | {takes} | {} |\n", setting.name, setting.doc.replace('|', "\\|"));
    }
    text
}

#[test]
fn the_settings_on_the_pages_are_those_of_the_manifests() {
    for method in ["dpo", "orpo", "cpo", "kto", "abliterate", "steer"] {
        assert_section(&format!("methods/{method}/README.md"), "settings", &table(method));
    }
}
