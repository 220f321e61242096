//! What the README says about speed is what `tests/peers/results.json` holds; `tests/peers/measure.py` fills that file.

mod bars;
mod curves;
mod drawing;
mod results;
mod table;

use crate::support::golden::{assert_file, between, root};
use results::{OURS, Results};
use serde_json::json;

const RESULTS: &str = "tests/peers/results.json";

fn measured() -> Results {
    Results::parse(&std::fs::read_to_string(root().join(RESULTS)).unwrap())
}

#[test]
fn the_readme_says_what_was_measured() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert_file("README.md", &between(&readme, "speed", &table::part(&measured())));
}

#[test]
fn the_pictures_show_what_was_measured() {
    let results = measured();
    let compared = results.comparisons();
    if !compared.is_empty() {
        assert_file("tests/peers/speed.svg", &bars::picture(&compared));
    }
    if let Some(growth) = curves::picture(&results.rows("growth")) {
        assert_file("tests/peers/growth.svg", &growth);
    }
}

#[test]
fn the_data_names_no_place() {
    for text in measured().texts() {
        let place = text.contains('\\') || text.contains("/home") || text.contains("/work") || text.starts_with('/');
        assert!(!place, "`{text}` in {RESULTS} names a place");
    }
}

/// A row of three pairs; the peer's figure is missing in one where it had no memory.
fn made_up() -> Results {
    let side = |rates: [f64; 3], peak: f64| {
        json!(rates.map(|rate| json!({ "rate": rate, "peak_bytes": peak, "step_seconds": 1.0 / rate })))
    };
    let sides = json!({
        "tunebox": side([3.0, 1.0, 2.0], 1e9),
        "PEFT loop": side([1.0, 1.0, 1.0], 4e9),
        "TRL": side([0.5, 0.5, 0.5], 2e9),
        "tunebox bf16": side([6.0, 6.0, 6.0], 1e9),
        "PEFT loop bf16": side([1.5, 1.5, 1.5], 4e9),
        "llama.cpp": side([4.0, 4.0, 4.0], 5e8),
    });
    let row = json!({ "model": "M", "setting": "1 × 8", "unit": "tokens/s", "sides": sides });
    let mut lacking = row.clone();
    lacking["sides"] = json!({
        "tunebox": side([3.0, 3.0, 3.0], 1e9),
        "PEFT loop": [{ "rate": 1.0, "step_seconds": 1.0, "peak_bytes": 1e9 }, { "out_of_memory": true }],
    });
    lacking["setting"] = json!("1 × 16");
    let question = json!({ "rows": [row, lacking], "machine": {}, "versions": {} });
    Results::parse(&json!({ "questions": { "dense": question.clone(), "growth": question } }).to_string())
}

#[test]
fn a_row_is_compared_by_medians_with_its_fastest_peer_and_with_those_of_fewer_bits() {
    let compared = made_up().comparisons();
    let said: Vec<_> = compared.iter().map(|one| (one.peer.as_str(), one.speed(), one.memory())).collect();
    assert_eq!(said, [("PEFT loop", 2.0, 0.25), ("PEFT loop bf16", 4.0, 0.25), ("llama.cpp", 1.5, 2.0)]);
}

#[test]
fn what_did_not_fit_is_left_open_in_the_table_and_said_in_the_picture() {
    let results = made_up();
    let part = table::part(&results);
    assert!(part.contains("| PEFT loop | 1.00 s, 3.7 GiB | – |"), "{part}");
    assert!(
        part.contains("| LoRA, every token a label, 1 × 8 | M | 2.00 tokens/s, 0.9 GiB | PEFT loop: 1.00, 3.7 GiB |"),
        "{part}"
    );
    assert!(part.contains("| 6.00 tokens/s bf16, 0.9 GiB | PEFT loop bf16: 1.50, 3.7 GiB | 4.00 × |"), "{part}");
    let picture = curves::picture(&results.rows("growth")).unwrap();
    assert!(picture.contains(&format!(">{}<", curves::STOPPED)), "{picture}");
    assert!(picture.contains(&format!(">{OURS}<")), "{picture}");
}

#[test]
fn questions_that_were_not_asked_are_left_out() {
    let results = Results::parse(r#"{"questions": {}}"#);
    assert!(results.comparisons().is_empty());
    assert!(curves::picture(&results.rows("growth")).is_none());
    assert_eq!(table::part(&results), "No figures yet: `tests/peers/results.json` holds no answer.\n");
}

#[test]
fn marks_on_an_axis_are_round_and_no_more_than_five() {
    for (least, wanted) in [(0.3, 0.5), (1.0, 1.0), (1.2, 2.0), (30.0, 50.0), (7.0, 10.0)] {
        assert!((curves::round_step(least) - wanted).abs() < 1e-9, "{least}");
    }
}
