//! Reading run files and `--set`, and the messages about their mistakes.

use tunebox_compute::schedule::Warmup;
use tunebox_model::adapter::Targets;
use tunebox_package::World;

use super::*;

const GOOD: &str = "[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \"dpo\"\nbeta = 0.2\n";

fn read(text: &str, overrides: &[&str]) -> Result<RunSettings, Error> {
    let document = Document::parse("run.toml", text)?;
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    RunSettings::from_document(document, PathBuf::from("folder"), &overrides)
}

fn error_of(text: &str, overrides: &[&str]) -> Explanation {
    read(text, overrides).unwrap_err().explanation()
}

#[test]
fn a_short_file_gets_the_documented_defaults() {
    let file = read(GOOD, &[]).unwrap().file;

    assert_eq!((file.train.batch, file.train.accumulation, file.train.seed), (4, 1, 42));
    assert_eq!((file.train.clip, file.train.schedule.as_str(), file.data.max_length), (1.0, "linear", 1024));
    assert_eq!(file.method.settings["beta"], 0.2);
}

#[test]
fn the_description_of_the_schedule_names_every_schedule() {
    let schema = schema();
    let text = schema["properties"]["train"]["properties"]["schedule"]["description"].as_str().unwrap();
    for name in tunebox_compute::schedule::Schedule::names() {
        assert!(text.contains(&format!("`{name}")), "{name}");
    }
}

#[test]
fn an_unknown_key_is_shown_in_its_line_with_the_nearest_name() {
    let error = error_of(&format!("{GOOD}\n[train]\nbacth = 2\n"), &[]);

    assert_eq!(error.what, "unknown key `bacth`");
    assert_eq!(error.location.as_deref(), Some("run.toml:10:1"));
    let snippet = error.snippet.unwrap();
    assert_eq!((snippet.text.as_str(), snippet.column, snippet.width), ("bacth = 2", 1, 5));
    assert!(error.hint.unwrap().starts_with("did you mean `batch`?"));
}

#[test]
fn an_unknown_table_is_refused() {
    assert_eq!(error_of(&format!("{GOOD}[trian]\n"), &[]).what, "unknown key `trian`");
}

#[test]
fn a_wrong_type_points_at_the_value() {
    let error = error_of(&format!("{GOOD}[train]\nbatch = \"four\"\n"), &[]);

    assert_eq!(error.what, "`train.batch` is text, a whole number is wanted");
    assert_eq!(error.location.as_deref(), Some("run.toml:9:9"));
}

#[test]
fn a_text_in_the_place_of_a_table_is_told_its_form() {
    let hint = error_of("method = \"lora\"\n", &[]).hint;
    assert_eq!(hint.unwrap(), "write `[method]`, and `use = …` on a line below it");
    assert_eq!(error_of(&format!("{GOOD}[train]\nbatch = \"four\"\n"), &[]).hint, None);
}

#[test]
fn a_value_out_of_range_says_the_range() {
    let error = error_of(&format!("{GOOD}[train.adapter]\nrank = 0\n"), &[]);
    assert_eq!(error.what, "`train.adapter.rank` is 0, it must be at least 1 and at most 4096");

    let error = error_of(GOOD, &["train.rate=0"]);
    assert_eq!(error.what, "`train.rate` is 0, it must be above 0 and at most 10");
    assert_eq!(error.location.as_deref(), Some("`--set train.rate=0`"));

    let error = error_of(&format!("{GOOD}[train]\nrate = nan\n"), &[]);
    assert_eq!(error.what, "`train.rate` is nan, it must be a finite number");
}

#[test]
fn a_word_that_is_no_choice_gets_the_choices() {
    let error = error_of(GOOD, &["train.adapter.kind=lara"]);

    assert_eq!(error.what, "`train.adapter.kind` cannot be `lara`");
    assert!(error.hint.unwrap().contains("did you mean `lora`?"));
}

#[test]
fn verifiers_are_a_list_and_a_wrong_key_of_one_is_shown_at_its_own_line() {
    let list = "[[verifier]]\nuse = \"number\"\n[[verifier]]\nuse = \"text\"\nweight = \"x\"\nmax-lines = 3\n";
    let error = error_of(&format!("{GOOD}{list}"), &[]);
    assert_eq!(error.what, "`verifier.1.weight` is text, a number is wanted");
    assert!(error.location.unwrap().starts_with("run.toml:12:"));

    let settings = read(&format!("{GOOD}{list}"), &["verifier.1.weight=0.5", "verifier.2.use=exact"]).unwrap();
    let weights: Vec<f64> = settings.file.verifier.iter().map(|verifier| verifier.weight).collect();
    assert_eq!(weights, [1.0, 0.5, 1.0]);
    assert_eq!(settings.file.verifier[1].settings["max-lines"], 3);
    assert_eq!(settings.document.location("verifier.1.max-lines", Underline::Key).unwrap().snippet.unwrap().line, 13);
    assert!(error_of(&format!("{GOOD}[[verifier]]\nweight = 2\n"), &[]).what.contains("`verifier.0.use` is missing"));
}

#[test]
fn targets_are_one_word_or_a_list() {
    let targets = |value: &str| read(GOOD, &[value]).unwrap().file.train.adapter.targets;

    assert_eq!(targets("train.adapter.targets=all-linear"), Targets::AllLinear);
    assert_eq!(targets("train.adapter.targets=['q_proj']"), Targets::Modules(vec!["q_proj".into()]));
    assert_eq!(error_of(GOOD, &["train.adapter.targets=all"]).what, "`train.adapter.targets` cannot be `all`");
}

#[test]
fn a_warm_up_is_a_number_of_updates_or_a_share_of_them() {
    let warmup = |value: &str| read(GOOD, &[&format!("train.warmup={value}")]).unwrap().file.train.warmup;
    assert_eq!(
        [warmup("3"), warmup("0"), warmup("0.05")],
        [Warmup::Updates(3), Warmup::Updates(0), Warmup::Share(0.05)]
    );
    for (value, wanted) in [
        ("1.5", "`train.warmup` is 1.5, it must be at least 0 and below 1"),
        ("-2", "`train.warmup` is -2, it must be at least 0 and at most 10000000"),
        ("x", "`train.warmup` is text, a whole number is wanted"),
    ] {
        assert_eq!(error_of(GOOD, &[&format!("train.warmup={value}")]).what, wanted);
    }
    let written = read(GOOD, &["train.warmup=3"]).unwrap().to_toml("a");
    assert!(written.contains("\nwarmup = 3\n"), "{written}");
}

#[test]
fn ranks_and_alphas_have_expressions_as_keys() {
    let given = "[train.adapter.rank-pattern]\n\"layers.0.*\" = 4\nq_proj = 2\n";
    let adapter =
        read(&format!("{GOOD}{given}"), &["train.adapter.alpha-pattern.v_proj=1.5"]).unwrap().file.train.adapter;
    assert_eq!(adapter.rank_pattern, [("layers.0.*".to_owned(), 4), ("q_proj".to_owned(), 2)].into());
    assert_eq!(adapter.alpha_pattern, [("v_proj".to_owned(), 1.5)].into());
    for (value, wanted) in [
        ("rank-pattern.q=0", "`train.adapter.rank-pattern.q` is 0, it must be at least 1 and at most 4096"),
        ("rank-pattern.q=1.5", "`train.adapter.rank-pattern.q` is a number, a whole number is wanted"),
        ("alpha-pattern.q=0", "`train.adapter.alpha-pattern.q` is 0, it must be above 0 and at most 1000000"),
        ("initialize=svd", "`train.adapter.initialize` cannot be `svd`"),
    ] {
        assert_eq!(error_of(GOOD, &[&format!("train.adapter.{value}")]).what, wanted);
    }
}

#[test]
fn a_missing_model_is_named_with_the_flag_that_gives_it() {
    let error = error_of("[data]\npath = \"d\"\n[method]\nuse = \"lora\"\n", &[]);

    assert_eq!(error.what, "`model.path` is missing");
    assert!(error.hint.unwrap().contains("--model"));
}

#[test]
fn text_that_is_not_toml_is_shown_where_it_breaks() {
    let error = error_of("[model]\npath = \n", &[]);

    assert!(error.what.starts_with("the run file is not valid TOML"), "{}", error.what);
    assert!(error.location.unwrap().starts_with("run.toml:2:"));
}

#[test]
fn an_override_replaces_the_file_and_starts_paths_at_the_present_folder() {
    let settings = read(GOOD, &["data.path=other.jsonl", "run.name=42", "train.steps=7"]).unwrap();

    assert_eq!(settings.file.train.steps, Some(7));
    assert_eq!(settings.file.run.name.as_deref(), Some("42"));
    assert_eq!(settings.path("data.path", "other.jsonl"), PathBuf::from("other.jsonl"));
    assert_eq!(settings.path("model.path", "m"), PathBuf::from("folder/m"));
}

#[test]
fn a_path_is_told_without_steps_to_where_it_is_already() {
    let settings = RunSettings::from_text("./run.toml", GOOD, ".".into(), &[]).unwrap();
    assert_eq!(settings.path("model.path", "runs/.sample/model").to_str(), Some("runs/.sample/model"));
    assert_eq!(settings.path("model.path", "./../m").to_str(), Some("../m"));
}

#[test]
fn the_settings_of_a_run_name_a_package_though_a_file_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["calm", "calm@0.1.0"] {
        std::fs::write(folder.path().join(file), "").unwrap();
    }
    let written = |method: &str| {
        let text = format!("[model]\npath = \"m\"\n[data]\npath = \"d\"\n[method]\nuse = \"{method}\"\n");
        let settings = RunSettings::from_text("run.toml", &text, folder.path().to_owned(), &[]).unwrap();
        let again: toml::Table = settings.to_toml("again").parse().unwrap();
        again["method"]["use"].as_str().unwrap().to_owned()
    };
    assert_eq!(written("calm@0.1.0"), "calm@0.1.0");
    assert_eq!(Path::new(&written("./calm")), folder.path().join("calm"));
}

#[test]
fn what_the_file_names_and_is_not_there_is_shown_in_the_line_that_names_it() {
    let settings = read(&GOOD.replace("dpo", "lorra"), &[]).unwrap();
    let error = settings.method_reference().unwrap_err().explanation();
    assert_eq!((error.what.as_str(), error.location.as_deref()), ("there is no method `lorra`", Some("run.toml:6:7")));
    assert_eq!(error.snippet.unwrap().text, "use = \"lorra\"");
    assert_eq!(error.hint.as_deref(), Some("did you mean `lora`?"));

    let typed = read(GOOD, &["method.use=lorra"]).unwrap().method_reference().unwrap_err().explanation();
    assert_eq!(typed.location, None, "it was typed just now");

    let inner = settings.error("train.rate", Underline::Key, Explanation::new("config", "broken"));
    let location = inner.explanation().location;
    assert_eq!(
        settings.with_location("data.path", inner).explanation().location,
        location,
        "an error with a location keeps it"
    );
}

#[test]
fn an_override_without_a_value_is_refused() {
    assert_eq!(error_of(GOOD, &["train.batch"]).what, "`--set train.batch` is not of the form `table.key=value`");
    assert_eq!(error_of(GOOD, &["rank=8"]).hint.unwrap(), "did you mean `--set train.adapter.rank=8`?");
    assert!(error_of(GOOD, &["focus=1"]).hint.unwrap().contains("`--set method.focus=1`"));
}

#[test]
fn an_adapter_that_is_set_takes_the_place_of_the_one_that_the_file_describes() {
    let text = format!("{GOOD}[train.adapter]\nrank = 3\n");
    let (old, usual) = ("model.adapter=runs/a", AdapterTable::default().rank);
    let rank = |overrides: &[&str]| {
        let settings = read(&text, overrides).unwrap();
        (settings.is_given("train.adapter"), settings.file.train.adapter.rank)
    };
    assert_eq!(rank(&[]), (true, 3));
    assert_eq!(rank(&[old]), (false, usual));
    assert_eq!(rank(&[old, "train.adapter.rank=5"]), (true, 5), "which is refused");
}

#[test]
fn a_run_on_the_sample_is_numbered_as_any_other() {
    let runs = tempfile::tempdir().unwrap();
    for method in ["lora", "dpo", "grpo", "steer"] {
        let overrides = [format!("run.folder={}", runs.path().display()), format!("method.use={method}")];
        assert_eq!(RunSettings::sample(&overrides).unwrap().file.run.name, None, "{method}");
    }
}

#[test]
fn the_written_settings_read_back_the_same() {
    let first = read(GOOD, &["train.rate=1e-5", "limits.step-seconds=3"]).unwrap();
    let second = read(&first.to_toml("again"), &["run.folder=runs"]).unwrap();

    let named = RunTable { name: Some("again".into()), ..RunTable::default() };
    let first = RunFile { run: named, ..first.file };
    assert_eq!(serde_json::to_value(&first).unwrap(), serde_json::to_value(&second.file).unwrap());
}

#[test]
fn every_key_of_the_schema_has_a_description() {
    fn walk(name: &str, schema: &serde_json::Value) {
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            assert!(below["description"].is_string(), "`{name}.{key}` has no description");
            walk(key, below);
        }
    }
    walk("run", schema());
}

/// The messages of all errors of one check, each with its location.
fn errors_of(text: &str, overrides: &[&str]) -> Vec<(String, String)> {
    let first = error_of(text, overrides);
    let location = |error: &Explanation| error.location.clone().unwrap_or_default();
    std::iter::once(&first).chain(&first.further).map(|error| (error.what.clone(), location(error))).collect()
}

#[test]
fn every_problem_is_reported_at_once_by_position_whatever_finds_it() {
    let text = "[train]\nlearning_rate = 1\nrate = nan\nmomentum = 0.5\nschedule = \"linaer\"\n[train.adapter]\nrank = 0\n\
                [model]\npath = \"m\"\nprecision = \"nf5\"\n[method]\nuse = \"grpo\"\nbata = 1\nepsilon = -1\n";
    let found = errors_of(text, &["train.seed=x", "nothing"]);
    let wanted = [
        ("unknown key `learning_rate`", "run.toml:2:1"),
        ("`train.rate` is nan, it must be a finite number", "run.toml:3:8"),
        ("the optimizer `adamw` does not use `train.momentum`", "run.toml:4:1"),
        ("`linaer` is no schedule", "run.toml:5:12"),
        ("`train.adapter.rank` is 0, it must be at least 1 and at most 4096", "run.toml:7:8"),
        ("`model.precision` cannot be `nf5`", "run.toml:10:13"),
        ("`grpo` learns from rewards, and the run has no verifier", "run.toml:12:7"),
        ("unknown key `bata`", "run.toml:13:1"),
        ("`epsilon` is -1, it must be at least 0 and below 1", "run.toml:14:11"),
        ("`--set nothing` is not of the form `table.key=value`", ""),
        ("`train.seed` is text, a whole number is wanted", "`--set train.seed=x`"),
        ("`data.path` is missing", "run.toml"),
    ];
    // The list of schedules is left out.
    let short = |what: &'_ str| what.split(';').next().unwrap().to_owned();
    let found: Vec<(String, &str)> = found.iter().map(|(what, location)| (short(what), location.as_str())).collect();
    assert_eq!(found, wanted.map(|(what, location)| (what.to_owned(), location)));
}

#[test]
fn the_number_of_problems_in_one_message_is_bounded() {
    let unknown: String = (0..50).map(|number| format!("key-{number} = 1\n")).collect();
    let found = errors_of(&format!("{GOOD}[train]\n{unknown}"), &[]);
    assert_eq!((found.len(), found[20].0.as_str()), (21, "30 more problems are not shown"));
    let many: String = (0..5000).map(|number| format!("key-{number} = 1\n")).collect();
    assert_eq!(errors_of(&format!("{GOOD}[train]\n{many}"), &[])[20].0, "at least 180 more problems are not shown");
}

#[test]
fn a_key_of_another_trainer_or_table_is_told_its_name_here() {
    let hint = |table: &str, key: &str| error_of(&format!("{GOOD}{table}\n{key} = 1\n"), &[]).hint.unwrap();
    assert_eq!(hint("[train]", "learning_rate"), "did you mean `rate`?");
    assert_eq!(hint("[train]", "lora_alpha"), "did you mean `alpha` of `[train.adapter]`?");
    assert_eq!(hint("[train]", "max-length"), "did you mean `max-length` of `[data]`?");
    assert_eq!(hint("[train.adapter]", "per_device_train_batch_size"), "did you mean `batch` of `[train]`?");
    assert_eq!(hint("[run]", "nothing-alike"), "keys of `[run]`: name, folder, hourly-price, tensorboard");
    let of_method = |key: &str| error_of(&GOOD.replace("beta = 0.2", &format!("{key} = 1\n[train]\nx = 1")), &[]);
    let further = |key: &str| of_method(key).hint.unwrap();
    assert_eq!(further("num_train_epochs"), "did you mean `epochs` of `[train]`?");
    assert!(further("max_new_tokens").contains("settings: loss, beta"), "`dpo` has no such setting");
    assert_eq!(error_of(GOOD, &["lr=1e-4"]).hint.unwrap(), "did you mean `--set train.rate=1e-4`?");
}

#[test]
fn a_method_that_learns_from_rewards_needs_a_verifier_before_anything_is_opened() {
    let text = GOOD.replace("dpo", "grpo");
    let plain = read(&text.replace("beta = 0.2\n", ""), &[]).unwrap();
    let problems = crate::plan::setting_problems(&plain);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].to_string(), "`grpo` learns from rewards, and the run has no verifier");
    let judged = read(&format!("{text}[[verifier]]\nuse = \"number\"\n"), &[]).unwrap();
    assert!(crate::plan::setting_problems(&judged).is_empty());
}

#[test]
fn the_run_file_of_a_moved_run_names_the_run_where_it_is() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("moved/x");
    std::fs::create_dir_all(&run).unwrap();
    let file = run.join("run.toml");
    std::fs::write(&file, format!("{GOOD}[run]\nfolder = \"/elsewhere/runs\"\nname = \"y\"\n")).unwrap();
    let named = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        let run = RunSettings::load(&file, &overrides).unwrap().file.run;
        (PathBuf::from(run.folder), run.name.unwrap())
    };
    assert_eq!(named(&[]), ("/elsewhere/runs".into(), "y".into()), "no run is there");
    std::fs::write(run.join(crate::lock::FILE), "").unwrap();
    assert_eq!(named(&[]), (resolve(&place.path().join("moved")), "x".into()));
    assert_eq!(named(&["run.name=z"]), (resolve(&place.path().join("moved")), "z".into()));
    assert_eq!(named(&["run.folder=/there"]), ("/there".into(), "x".into()));
}

#[test]
fn no_setting_of_a_component_can_be_called_as_a_key_of_its_table() {
    let of_table = |name: &str| {
        let table = &schema()["properties"][name];
        let tables = [&table["properties"], &table["items"]["properties"], &table["anyOf"][0]["properties"]];
        let mut keys: Vec<&str> =
            tables.into_iter().find_map(serde_json::Value::as_object).unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    };
    for world in [World::Method, World::Verifier, World::Environment] {
        let mut reserved = world.reserved_settings().to_vec();
        reserved.sort_unstable();
        assert_eq!(reserved, of_table(world.name()));
    }
}
