//! Data and settings that are wrong: told with their place, before anything is written.

use tunebox_foundation::explain::Explain;

use crate::support::tiny_run::{TestObserver, Workspace, records};

#[test]
fn the_seventh_line_that_is_not_json_is_named_and_nothing_is_written() {
    let place = Workspace::new();
    let mut lines: Vec<String> = records(9).lines().map(str::to_owned).collect();
    lines[6] = r#"{"messages": [}"#.into();
    place.write("data.jsonl", &lines.join("\n"));
    let error = place.train("bad", &["train.steps=2"], &mut TestObserver::new()).unwrap_err().explanation();

    assert_eq!(error.category, "data");
    assert!(error.what.starts_with("the line is not JSON"), "{}", error.what);
    assert!(error.location.unwrap().ends_with("data.jsonl:7:15"));
    assert!(error.hint.unwrap().contains("--set data.skip-bad=true"));
    assert!(!place.path("runs").exists());
}

#[test]
fn lines_that_are_skipped_are_listed() {
    let place = Workspace::new();
    let text = format!("{}not json\n{}", records(2), r#"{"messages": []}"#);
    place.write("data.jsonl", &text);
    let plan = place.plan("skips", &["data.skip-bad=true"]).unwrap();
    let skipped: Vec<u64> = plan.run.data.report.skipped.iter().map(|skipped| skipped.line).collect();

    assert_eq!(skipped, [3, 4]);
    assert_eq!(plan.run.data.examples.len(), 2);
}

#[test]
fn data_without_a_record_is_an_error() {
    let place = Workspace::new();
    place.write("data.jsonl", "\n\n");
    let error = place.plan("empty", &[]).err().unwrap();

    assert!(error.to_string().ends_with("holds no record to learn from"), "{error}");
}

#[test]
fn an_unknown_setting_of_the_method_is_shown_where_it_was_given() {
    let place = Workspace::new();
    let error = place.plan("setting", &["method.label-smothing=0.1"]).err().unwrap().explanation();

    assert_eq!(error.what, "unknown key `label-smothing`");
    assert_eq!(error.location.as_deref(), Some("`--set method.label-smothing=0.1`"));
    assert!(error.hint.unwrap().contains("did you mean `label-smoothing`?"));
}
