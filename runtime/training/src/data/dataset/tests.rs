//! Hints about lines and files that hold no record.

use tunebox_model::chat::Encoded;

use super::super::fault;
use super::super::parse::shape_of_line;
use super::super::shape::Record;
use super::super::source::{Format, Line};
use super::problem::WrongLine;
use super::*;

#[test]
fn a_file_of_records_that_are_too_long_gets_a_hint_to_raise_the_length() {
    let report = Report { lines: 2, dropped: vec![1, 2], length: 4, ..Report::default() };
    let hint = |report: &Report| no_example("a.jsonl", report, &[Shape::Preference], Format::Lines, None).hint.unwrap();
    assert!(hint(&report).starts_with("raise `data.max-length`"), "{}", hint(&report));
    assert!(hint(&Report::default()).contains("\"rejected\""), "{}", hint(&Report::default()));
}

#[test]
fn a_line_that_is_no_record_gets_an_example_of_what_the_method_takes() {
    let hint = |method: &str| {
        let (fault, _) = Record::parse(b"broken", &Shape::of_method(method).unwrap()).unwrap_err();
        fault.hint.unwrap()
    };
    let pair = r#"every line is one JSON object, such as {"prompt": "…", "chosen": "…", "rejected": "…"}"#;
    assert_eq!(hint("preference"), pair);
    assert!(hint("supervised").starts_with(r#"a text is a line `{"text": "…"}`; every line"#));
    assert!(hint("supervised").ends_with(r#"such as {"prompt": "…", "completion": "…"}"#));
    for shape in Shape::all() {
        assert_eq!(shape_of_line(shape.facts().example.as_bytes(), &[shape]), Some(shape));
    }
}

#[test]
fn records_of_another_shape_in_the_sample_get_a_hint_at_the_file_that_fits() {
    let hint = |name: &str, shape| {
        let line = Line { number: 1, column: 1, text: Ok(b"{}".to_vec()) };
        let fault = fault::unwanted_shape(Shape::Messages, &[shape]);
        let wrong = WrongLine { file: name, format: Format::Lines, line: &line, has_valid: false };
        wrong.explain((fault, 1), &[shape]).hint.unwrap()
    };
    for (shape, file) in [(Shape::Unpaired, "kto"), (Shape::Prompts, "grpo"), (Shape::Contrast, "steer")] {
        let hint = hint("calm/runs/.sample/lora.jsonl", shape);
        assert!(hint.contains(&format!("; `calm/runs/.sample/{file}.jsonl` has such records: ")), "{hint}");
    }
    // A later line of that file: no other file is named for it, nor the file itself.
    assert_eq!(
        hint("calm/runs/.sample/kto.jsonl", Shape::Unpaired),
        "this method takes records with `prompt`, `completion` and `label`"
    );
    assert_eq!(
        hint("lora.jsonl", Shape::Unpaired),
        "this method takes records with `prompt`, `completion` and `label`"
    );
}

#[test]
fn long_examples_keep_their_beginning_and_those_without_a_target_are_dropped() {
    // A row whose targets begin at index `start`.
    let row = |length: usize, start: usize| {
        let ids = (0..length as u32).collect();
        Encoded { ids, targets: (0..length).map(|at| at >= start).collect(), merged: false }
    };
    let truncated = |row: Encoded| {
        let mut example = Example { sides: vec![row], ..Example::default() };
        let cut = example.truncate(8);
        (cut, example.sides.remove(0).ids)
    };
    assert_eq!(truncated(row(2, 1)), (Some(false), vec![0, 1]));
    assert_eq!(truncated(row(40, 1)), (Some(true), (0..8).collect()));
    assert_eq!(truncated(row(40, 39)).0, None);
}

#[test]
fn every_token_of_a_long_text_is_learned_in_one_piece() {
    for (tokens, length, leading) in [(21, 8, 0), (21, 8, 1), (22, 8, 1), (9, 8, 1), (8, 8, 1), (5, 2, 1), (40, 3, 2)] {
        let ids: Vec<u32> = (0..tokens).collect();
        let row = Encoded { targets: ids.iter().map(|id| *id > 0).collect(), ids, merged: false };
        let numbers = (1..tokens).map(|id| id as f32).collect();
        let example = Example {
            sides: vec![row],
            index: 7,
            token_columns: [("weight".to_owned(), Ok(numbers))].into(),
            ..Example::default()
        };
        let pieces = example.split(length, leading);
        let (mut learned, mut numbers) = (Vec::new(), Vec::new());
        for (number, piece) in pieces.iter().enumerate() {
            let Encoded { ids, targets, .. } = &piece.sides[0];
            assert!(ids.len() <= length && ids.len() == targets.len() && piece.index == 7);
            let first = targets.iter().position(|target| *target).unwrap();
            assert_eq!(ids[first - 1] + 1, ids[first], "the token before it predicts it");
            let head = if number == 0 { 0 } else { leading.min(length - 2) };
            assert_eq!(ids[..head], (0..head as u32).collect::<Vec<_>>());
            learned.extend(ids.iter().zip(targets).filter(|(_, target)| **target).map(|(id, _)| *id));
            numbers.extend(piece.token_columns["weight"].clone().unwrap());
        }
        assert_eq!(learned, (1..tokens).collect::<Vec<_>>());
        assert_eq!(numbers, learned.iter().map(|id| *id as f32).collect::<Vec<_>>());
        assert_eq!(pieces.len() == 1, tokens as usize <= length);
    }
}
