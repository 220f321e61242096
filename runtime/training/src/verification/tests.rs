//! What a look at a finished run compares.

use super::*;

fn table(text: &str) -> Table {
    text.parse().unwrap()
}

#[test]
fn what_one_side_lacks_is_a_difference() {
    let recorded = table("seed = 1\n[model]\nsha256 = \"a\"\nadapter = \"x\"");
    let found = table("seed = 1\n[model]\nsha256 = \"b\"\n[[verifier]]\nname = \"number\"\nsha256 = \"c\"");
    let differences: Vec<_> = compare(&recorded, &found, &INPUTS).into_iter().filter(|one| !one.same()).collect();
    let of = |what: &str, recorded: &str, found: &str| Comparison {
        what: what.into(),
        recorded: recorded.into(),
        found: found.into(),
    };
    let wanted =
        [of("model.adapter", "x", "absent"), of("model.sha256", "a", "b"), of("verifier.0.sha256", "absent", "c")];
    assert_eq!(differences, wanted);
}

#[test]
fn a_method_that_was_built_anew_is_named_by_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let method = format!("method.use={}", folder.path().display());
    let overrides = ["model.path=.".to_owned(), "data.path=data.jsonl".into(), method];
    let verification = |found: &str| Verification {
        name: "first".into(),
        artifact: Vec::new(),
        inputs: vec![Comparison { what: "method.sha256".into(), recorded: "a".into(), found: found.into() }],
        surroundings: Vec::new(),
        unread: None,
        unnamed: None,
        folder: "runs/first".into(),
        revised: Vec::new(),
        settings: RunSettings::from_overrides(&overrides).unwrap(),
        place: tempfile::tempdir().unwrap(),
    };
    assert_eq!(verification("b").changed_method().as_deref(), Some(folder.path()));
    assert_eq!(verification("a").changed_method(), None);
}

#[test]
fn a_lock_that_names_a_file_elsewhere_is_damaged() {
    let lock = table("[[artifact]]\nname = \"../secret\"\nsha256 = \"a\"");
    assert!(matches!(recorded_files(Path::new("run"), &lock), Err(Error::Damaged { .. })));
    assert!(matches!(recorded_files(Path::new("run"), &Table::new()), Err(Error::Unfinished { .. })));
    assert!(recorded_files(Path::new("run"), &table("left = \"nothing\"")).unwrap().is_empty());
}
