//! What a method does with tokens of its own: rows, columns, stop texts, allowed tokens, and activations with a gradient.
//! The method is in `own_tokens/method`.

use serde_json::json;
use tunebox_foundation::explain::Explain;

use crate::support::built::built;
use crate::support::tiny_run::{TestObserver, Workspace};

/// The method of this test.
const METHOD: &str = "tests/own_tokens/method";

/// A folder with records whose answers are as long as their lists; the last record has no list.
fn workspace(lists: [usize; 2]) -> Workspace {
    let place = Workspace::new();
    // A token of the tiny tokenizer is a byte; the end token follows the answer.
    let record = |numbers: usize| json!({"prompt": "one", "completion": " two", "advantage": vec![0.5; numbers]});
    let absent = json!({"prompt": "one", "completion": " more than that"});
    place.write_lines("data.jsonl", [record(lists[0]), record(lists[1]), absent]);
    place
}

const STEPS: [&str; 3] = ["train.steps=4", "train.batch=3", "data.max-length=64"];

#[test]
fn a_method_reads_columns_of_tokens_and_makes_and_samples_rows_as_it_says() {
    let (place, own) = (workspace([5, 5]), built(METHOD));
    place.train("tokens", &[&STEPS[..], &[&own]].concat()).unwrap();
    let rows = place.metrics("tokens");
    let metric = |name: &str| rows.iter().map(|row| row[name].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(metric("difference"), [0.0; 4], "rows of the same tokens have the same scores");
    assert_eq!(metric("advantages"), [5.0; 4]);
    assert_eq!(metric("absent"), [16.0; 4], "NaN at the targets of the record without the list");
    assert_eq!(metric("indices"), [3.0; 4], "0 + 1 + 2");
    assert_eq!((metric("others"), metric("wrong")), (vec![0.0; 4], vec![0.0; 4]));
    assert!(metric("finished").iter().all(|share| *share > 0.0), "{:?}", metric("finished"));
    assert_eq!(metric("ends"), [1.0; 4]);
    let losses = metric("loss");
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "activations shrink: {losses:?}");
    place.replay("tokens", &[own]);
}

#[test]
fn a_list_of_another_length_than_the_answer_is_refused_by_its_line() {
    let (place, own) = (workspace([5, 4]), built(METHOD));
    let settings = [&STEPS[..], &["train.batch=1", "data.shuffle=false", &own]].concat();
    let mut observer = TestObserver::new();
    let error = place.train_with("wrong", &settings, &mut observer).unwrap_err();
    let wanted = "data.jsonl` has 4 numbers in `advantage`, one for each of its 5 target tokens is wanted";
    assert!(error.to_string().contains("the record in line 2 of `"), "{error}");
    assert!(error.to_string().ends_with(wanted), "{error} {:?}", error.explanation());
    assert!(observer.steps.is_empty(), "the first batch does not hold that record: {:?}", observer.steps);
}

#[test]
fn a_column_that_no_record_has_is_refused_by_its_name() {
    let (place, own) = (workspace([5, 5]), built(METHOD));
    let settings = [&STEPS[..], &[&own, "method.column=reward"]].concat();
    let error = place.train("absent", &settings).unwrap_err();
    let wanted = "the records have no column `reward` with a number for each token";
    assert!(error.to_string().ends_with(wanted), "{error}");
}

#[test]
fn numbers_past_the_maximum_length_are_cut_with_their_tokens() {
    let (place, own) = (workspace([5, 5]), built(METHOD));
    let settings = ["train.steps=1", "train.batch=3", "data.max-length=6", "method.tokens=3"];
    place.train("cut", &[&settings[..], &[&own]].concat()).unwrap();
    let row = &place.metrics("cut")[0];
    assert_eq!((row["advantages"].as_f64(), row["absent"].as_f64()), (Some(3.0), Some(3.0)));
}
