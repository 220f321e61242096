//! Verifying a finished run.

use tunebox_package::Package;

use super::*;

fn table(text: &str) -> Table {
    text.parse().unwrap()
}

#[test]
fn what_one_side_lacks_is_a_difference() {
    let recorded = table("seed = 1\n[model]\nsha256 = \"a\"\nadapter = \"x\"");
    let found = table("seed = 1\n[model]\nsha256 = \"b\"\n[[verifier]]\nname = \"number\"\nsha256 = \"c\"");
    let differences: Vec<_> =
        compare(&recorded, &found, &INPUT_KEYS).into_iter().filter(|one| !one.is_same()).collect();
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
    };
    assert_eq!(verification("b").changed_method().as_deref(), Some(folder.path()));
    assert_eq!(verification("a").changed_method(), None);
}

#[test]
fn a_lock_that_names_a_file_elsewhere_is_damaged() {
    let lock = table("[[artifact]]\nname = \"../secret\"\nsha256 = \"a\"");
    let error = |lock: &Table| recorded_files(Path::new("run"), lock).unwrap_err().to_string();
    assert!(error(&lock).starts_with("`run/run.lock` is damaged: "), "{}", error(&lock));
    assert_eq!(error(&Table::new()), "the run is not finished");
    assert!(recorded_files(Path::new("run"), &table("left = \"nothing\"")).unwrap().is_empty());
}

fn built_in(name: &str) -> Result<Package, Error> {
    Ok(Reference::parse(name, Path::new("."))?.open()?)
}

#[test]
fn without_a_plan_what_the_runs_file_lost_is_told_and_what_only_a_plan_knows_is_not() {
    let recorded = table(
        "steps = 4\n[model]\nfamily = \"f\"\nadapter = \"x\"\n[data]\nrecords = 2\nsha256 = \"a\"\n\
         [validation]\nrecords = 1\nsha256 = \"b\"\ntokens-sha256 = \"c\"\n\
         [method]\nsha256 = \"d\"\nsettings = { beta = 0.5 }\n[[verifier]]\nsha256 = \"e\"\n[[verifier]]\nsha256 = \"f\"",
    );
    let found = table("[data]\nsha256 = \"a\"\n[method]\nsha256 = \"d\"");
    let differing = |components: &[Result<Package, Error>]| {
        let mut compared = compare(&recorded, &found, &INPUT_KEYS);
        let keys = ["method.use", "verifier.0.use", "verifier.1.use"].map(str::to_owned);
        inputs::remove_unknown(&mut compared, &keys, components);
        compared.into_iter().filter(|one| !one.is_same()).map(|one| one.what).collect::<Vec<_>>()
    };
    let unread = || Err(Explanation::new("training", "there is no run here").into());
    let lost = ["model.adapter", "validation.sha256", "method.settings.beta", "verifier.0.sha256", "verifier.1.sha256"];
    assert_eq!(differing(&[built_in("lora")]), lost);
    assert_eq!(differing(&[unread(), unread()]), ["model.adapter", "validation.sha256", "verifier.1.sha256"]);
}

#[test]
fn other_settings_of_a_method_that_is_only_read_are_another_method() {
    let orpo = built_in("orpo").unwrap();
    let of = |more: &[&str]| {
        let set = [&["model.path=.", "data.path=data.jsonl", "method.use=orpo"][..], more].concat();
        inputs::method_table(&RunSettings::from_overrides(&set).unwrap(), &orpo)
    };
    let plain = of(&[]);
    assert_eq!(plain["settings"]["nll"].as_str(), Some("row"), "with every default: {plain:?}");
    assert_eq!(of(&["method.nll=row"]), plain);
    for other in ["method.beta=0.3", "method.nll=answer", "method.nothing=1"] {
        assert_ne!(of(&[other]), plain, "{other}");
    }
}
