//! What is said about speed, and about bf16 beside f32, is what `tests/peers/results/` holds; `tests/peers/measure.py` and
//! `compare_compute.py` fill its files.

mod bars;
mod curves;
mod drawing;
mod formats;
mod results;
mod table;

use crate::support::golden::{assert_file, assert_section, root};
use results::{COMPARED, Comparison, OURS, Results};
use serde_json::json;

const RESULTS: &str = "tests/peers/results";

/// A kind of machine, with what was measured on one.
pub(crate) struct Machine {
    /// The name of its data file.
    pub(crate) kind: String,
    pub(crate) results: Results,
}

impl Machine {
    /// Its processor and its number of cores.
    pub(crate) fn name(&self) -> String {
        let name = |question: &serde_json::Value| {
            let machine = &question["machine"];
            format!("{}, {} cores", machine["processor"].as_str().unwrap_or("unknown"), machine["cores"])
        };
        self.results.notes(name).join(" and ")
    }

    /// LoRA steps beside their fastest peers.
    pub(crate) fn dense(&self) -> Vec<Comparison> {
        self.results.fastest().into_iter().filter(|one| one.work == COMPARED[0].1).collect()
    }
}

/// All machines, by name.
fn measured() -> Vec<Machine> {
    let files = std::fs::read_dir(root().join(RESULTS)).unwrap().map(|entry| entry.unwrap().path());
    let mut machines: Vec<Machine> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
            Machine { kind, results: Results::parse(&std::fs::read_to_string(&path).unwrap()) }
        })
        .collect();
    machines.sort_by(|a, b| a.kind.cmp(&b.kind));
    machines
}

#[test]
fn the_pages_say_what_was_measured() {
    let machines = measured();
    assert_section("README.md", "ahead", &table::head(&machines));
    assert_section("README.md", "speed", &table::summary(&machines));
    assert_file("tests/peers/README.md", &table::page(&machines));
}

#[test]
fn the_pictures_show_what_was_measured() {
    for Machine { kind, results } in measured() {
        let compared = results.fastest();
        if !compared.is_empty() {
            assert_file(&format!("{RESULTS}/{kind}.svg"), &bars::picture(&compared));
        }
        if let Some(growth) = curves::picture(&results.rows("growth")) {
            assert_file(&format!("{RESULTS}/{kind}-growth.svg"), &growth);
        }
    }
}

#[test]
fn the_data_names_no_place() {
    for machine in measured() {
        for text in machine.results.texts() {
            let place =
                text.contains('\\') || text.contains("/home") || text.contains("/work") || text.starts_with('/');
            assert!(!place, "`{text}` in {RESULTS} names a place");
        }
    }
}

#[test]
fn in_f32_both_sides_learn_alike() {
    let machines = measured();
    let rows: Vec<_> = machines.iter().flat_map(|machine| machine.results.rows("formats")).collect();
    assert!(!rows.is_empty());
    for row in rows {
        for one in formats::differences(&row).into_iter().flatten() {
            let what = format!("{}, {}", row.word("setting"), row.word("model"));
            assert!(one.between <= 1e-3, "{what}: {} from PyTorch, so bf16 says nothing", one.between);
        }
    }
}

/// A row of three pairs; the peer's figure is missing in one where it had no memory.
fn made_up_rows() -> serde_json::Value {
    let side = |rates: [f64; 3], peak: f64| {
        json!(rates.map(|rate| json!({ "rate": rate, "peak_bytes": peak, "step_seconds": 1.0 / rate })))
    };
    let sides = json!({
        "tunebox": side([3.0, 1.0, 2.0], 1e9),
        "PEFT loop": side([1.0, 1.0, 1.0], 4e9),
        "TRL": side([0.5, 0.5, 0.5], 2e9),
        "PEFT loop bf16": side([4.0, 4.0, 4.0], 5e8),
    });
    let row = json!({ "model": "M", "setting": "1 × 8", "unit": "tokens/s", "sides": sides });
    let mut lacking = row.clone();
    lacking["sides"] = json!({
        "tunebox": side([3.0, 3.0, 3.0], 1e9),
        "PEFT loop": [{ "rate": 1.0, "step_seconds": 1.0, "peak_bytes": 1e9 }, { "out_of_memory": true }],
    });
    lacking["setting"] = json!("1 × 16");
    let question = json!({ "rows": [row, lacking], "machine": {}, "versions": {} });
    json!({ "questions": { "dense": question.clone(), "growth": question } })
}

fn made_up() -> Results {
    Results::parse(&made_up_rows().to_string())
}

#[test]
fn a_row_is_compared_by_medians_with_each_peer_the_fastest_first() {
    let compared = made_up().comparisons();
    let said: Vec<_> = compared[0].iter().map(|one| (one.peer.as_str(), one.speed(), one.memory())).collect();
    assert_eq!(said, [("PEFT loop bf16", 0.5, 2.0), ("PEFT loop", 2.0, 0.25), ("TRL", 4.0, 0.5)]);
    assert_eq!(compared.len(), 1, "a peer without memory is not compared");
    let fastest = made_up().fastest();
    assert_eq!((fastest.len(), fastest[0].peer.as_str()), (1, "PEFT loop bf16"));
}

#[test]
fn the_head_speaks_of_the_machine_that_is_least_ahead() {
    let slow = made_up().fastest()[0].speed();
    let mut faster = made_up_rows();
    faster["questions"]["dense"]["rows"][0]["sides"]["tunebox"][1]["rate"] = json!(30.0);
    faster["questions"]["dense"]["rows"][0]["sides"]["tunebox"][2]["rate"] = json!(30.0);
    let machine = |kind: &str, results| Machine { kind: kind.into(), results };
    let machines = [machine("b", Results::parse(&faster.to_string())), machine("a", made_up())];
    let head = table::head(&machines);
    assert!(head.contains(&format!("{slow:.2} to {slow:.2} times")), "{head}");
    let summary = table::summary(&machines);
    assert!(summary.contains("results/a.svg"), "{summary}");
    assert!(
        summary.contains("| 7.50 × PEFT loop bf16, memory 2.00 × | 0.50 × PEFT loop bf16, memory 2.00 × |"),
        "{summary}"
    );
    assert_eq!(table::head(&[]), "");
}

#[test]
fn what_did_not_fit_is_left_open_in_the_table_and_said_in_the_picture() {
    let results = made_up();
    let part = table::section(&Machine { kind: "a".into(), results: made_up() });
    assert!(part.contains("| PEFT loop | 1.00 s, 3.7 GiB | – |"), "{part}");
    assert!(
        part.contains("| LoRA, every token a label, 1 × 8, M | tunebox | 2.00 tokens/s | 0.9 GiB | 3 | |"),
        "{part}"
    );
    assert!(part.contains("| | PEFT loop bf16 | 4.00 tokens/s | 0.5 GiB | 3 | 0.50 ×, 2.00 × |"), "{part}");
    let picture = curves::picture(&results.rows("growth")).unwrap();
    assert!(picture.contains(&format!(">{}<", curves::STOPPED)), "{picture}");
    assert!(picture.contains(&format!(">{OURS}<")), "{picture}");
}

#[test]
fn the_difference_of_two_curves_is_a_share_of_the_mean_in_f32() {
    let curves = |f32: [f64; 3], bf16: [f64; 3]| json!([{ "f32": { "loss": f32 }, "bf16": { "loss": bf16 } }]);
    let sides = json!({
        "tunebox": curves([3.0, -1.0, 2.0], [3.1, -0.9, 2.1]),
        "PyTorch": curves([4.0, -1.0, 1.0], [2.8, -1.0, 1.0]),
    });
    let row = json!({ "model": "M", "setting": "SFT, 3 × 1 answers", "unit": "curves", "sides": sides });
    let results = Results::parse(&json!({ "questions": { "formats": { "rows": [row] } } }).to_string());
    let table = formats::table(&results.rows("formats"));
    assert!(table.contains("| SFT, 3 × 1 answers | M | 5.00 %, PyTorch 20.00 % | – | – |"), "{table}");
    assert!(table.contains("at most 33.333 % apart"), "{table}");
    assert!(
        table.contains("Of 1 curves, 1 lie no farther from f32 in tunebox than in PyTorch by the mean, and 0 by"),
        "{table}"
    );
}

#[test]
fn questions_that_were_not_asked_are_left_out() {
    let results = Results::parse(r#"{"questions": {}}"#);
    assert!(results.comparisons().is_empty());
    assert!(curves::picture(&results.rows("growth")).is_none());
    assert_eq!(table::section(&Machine { kind: "a".into(), results }), "");
}

#[test]
fn marks_on_an_axis_are_round_and_no_more_than_five() {
    for (least, wanted) in [(0.3, 0.5), (1.0, 1.0), (1.2, 2.0), (30.0, 50.0), (7.0, 10.0)] {
        assert!((curves::round_step(least) - wanted).abs() < 1e-9, "{least}");
    }
}
