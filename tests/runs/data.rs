//! Data and settings that are wrong: told with their place, before anything is written.

use tunebox_foundation::explain::Explain;
use tunebox_sandbox::Compiling;
use tunebox_training::data::Dataset;
use tunebox_training::{RunSettings, verify};

use crate::support::tiny_run::{Workspace, records};

#[test]
fn the_seventh_line_that_is_not_json_is_named_and_nothing_is_written() {
    let place = Workspace::new();
    let mut lines: Vec<String> = records(9).lines().map(str::to_owned).collect();
    lines[6] = r#"{"messages": [}"#.into();
    place.write("data.jsonl", &lines.join("\n"));
    let error = place.train("bad", &["train.steps=2"]).unwrap_err().explanation();

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

/// The settings that read these files.
fn files(place: &Workspace, list: &str) -> String {
    format!("data.files={}", list.replace("PLACE", &place.path("").display().to_string()))
}

#[test]
fn several_files_are_one_data_set_with_their_weights() {
    let place = Workspace::new();
    place.write("sums.csv", "question,answer\n2+2?,4\n3+3?,6\n");
    place.write("more.json", &format!("[{}]", records(3).trim_end().replace('\n', ",\n")));
    let list = r#"["PLACE/data.jsonl", {path="PLACE/sums.csv", weight=2.5}, "PLACE/more.json"]"#;
    let settings = [files(&place, list)];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let plan = place.plan("several", &settings).unwrap();
    let data = &plan.run.data;
    assert_eq!(data.examples.len(), 16 + 2 * 2 + 1 + 3);
    let records: Vec<u64> = data.report.files.iter().map(|file| file.records).collect();
    assert_eq!((records, data.report.files[1].weight), (vec![16, 2, 3], 2.5));
    let layout = data.report.files[1].layout.as_deref().unwrap();
    assert!(layout.starts_with("question, answer read as prompt and completion"), "{layout}");

    // The same files, weights and seed are the same data; another weight or a changed file is another.
    let digest = |list: &str| {
        let set = files(&place, list);
        place.plan("other", &[&set]).unwrap().run.data.digest
    };
    assert_eq!(digest(list), data.digest);
    assert_ne!(digest(&list.replace("2.5", "2")), data.digest);
    place.write("sums.csv", "question,answer\n2+2?,4\n3+3?,7\n");
    assert_ne!(digest(list), data.digest);
}

#[test]
fn a_run_of_several_files_is_replayed_and_a_changed_file_is_found() {
    let place = Workspace::new();
    place.write("sums.csv", "question,answer\n2+2?,4\n3+3?,6\n");
    let set = files(&place, r#"[{path="PLACE/data.jsonl", weight=0.5}, {path="PLACE/sums.csv", weight=3}]"#);
    place.train("mixed", &[&set, "train.steps=3"]).unwrap();
    let run = place.path("runs/mixed");
    let differences = || {
        let verification = verify(&run, &[], false, Compiling::default()).unwrap();
        verification.inputs.into_iter().filter(|one| !one.is_same()).map(|one| one.what).collect::<Vec<_>>()
    };
    assert!(differences().is_empty(), "{:?}", differences());
    place.replay("mixed", &[]);
    place.write("sums.csv", "question,answer\n2+2?,4\n3+3?,7\n");
    assert_eq!(differences(), ["data.sha256", "data.tokens-sha256"]);
}

#[test]
fn a_folder_is_read_by_its_split() {
    let place = Workspace::new();
    std::fs::create_dir_all(place.path("rivers/data")).unwrap();
    place.write("rivers/data/train-00000-of-00002.jsonl", &records(3));
    place.write("rivers/data/train-00001-of-00002.jsonl", &records(4));
    place.write("rivers/data/validation-00000-of-00001.jsonl", &records(2));
    let path = place.set("data.path", "rivers");
    let validation = place.set("data.validation", "rivers");
    let plan = place.plan("folder", &[&path, &validation]).unwrap();
    assert_eq!((plan.run.data.examples.len(), plan.run.validation.unwrap().examples.len()), (7, 2));
    let error = place.plan("other", &[&path, "data.split=test"]).err().unwrap();
    assert!(error.to_string().ends_with("has no data file of the split `test`"), "{error}");
}

#[test]
fn columns_are_named_by_the_map_and_a_wrong_name_is_located() {
    let place = Workspace::new();
    place.write("data.jsonl", "{\"frage\": \"2+2?\", \"antwort\": \"4\"}\n");
    let map = ["data.map.prompt=frage", "data.map.completion=antwort"];
    assert_eq!(place.plan("mapped", &map).unwrap().run.data.examples.len(), 1);
    let error = place.plan("wrong", &["data.map.promt=frage"]).err().unwrap().explanation();
    assert_eq!(error.what, "`promt` is no field of a record");
    assert_eq!(error.location.as_deref(), Some("`--set data.map.promt=frage`"));
    let error = place.plan("list", &["data.map={prompt=[7]}"]).err().unwrap().explanation();
    assert_eq!(error.what, "`data.map.prompt` is a list, text in quotes is wanted");
    let both = ["data.path=a.jsonl", "data.files=[\"b.jsonl\"]"];
    let error = RunSettings::from_overrides(
        &[&["model.path=m".to_owned(), "method.use=lora".into()], both.map(str::to_owned).as_slice()].concat(),
    );
    assert_eq!(error.unwrap_err().to_string(), "`data.path` and `data.files` are both given");
}

#[test]
fn a_part_of_the_data_is_held_back_by_the_seed_and_never_learned() {
    let place = Workspace::new();
    place.write("more.jsonl", &records(20));
    let set = files(&place, r#"["PLACE/data.jsonl", {path="PLACE/more.jsonl", weight=2}]"#);
    let rows = |data: &Dataset| data.examples.iter().map(|example| example.sides[0].ids.clone()).collect::<Vec<_>>();
    let plan = |more: &[&str]| {
        let run = place.plan("part", &[&[set.as_str()], more].concat()).unwrap().run;
        let held_back = run.validation.unwrap();
        assert!(rows(&held_back).iter().all(|row| !rows(&run.data).contains(row)));
        assert_eq!(run.summary.report.held_back, held_back.examples.len());
        (held_back.examples.len(), run.data.examples.len(), held_back.token_digest)
    };
    // The first sixteen records of the second file are those of the first one.
    let tenth = plan(&["data.validation=0.25"]);
    assert_eq!(tenth.0, 5);
    assert_eq!(plan(&["data.validation=5"]), tenth);
    assert_ne!(plan(&["data.validation=5", "train.seed=7"]).2, tenth.2);
    for (value, wanted) in [("20", "`data.validation` holds back 20 of 20 records"), ("1.5", "1.5 is neither a share")]
    {
        let error = place.plan("none", &[&set, &format!("data.validation={value}")]).err().unwrap().explanation();
        assert!(error.what.starts_with(wanted), "{}", error.what);
        assert_eq!(error.location.unwrap(), format!("`--set data.validation={value}`"));
    }
}

#[test]
fn a_run_with_a_part_held_back_is_resumed_replayed_and_recorded() {
    let place = Workspace::new();
    let settings = ["data.validation=4", "train.steps=6", "train.validate-every=2", "train.save-every=2"];
    place.train("whole", &settings).unwrap();
    place.kill("resumed", &settings, 3);
    place.resume("resumed", &settings).unwrap();
    assert_eq!(place.bytes("whole", "adapter_model.safetensors"), place.bytes("resumed", "adapter_model.safetensors"));
    let lock: toml::Table = place.text("whole", "run.lock").parse().unwrap();
    let records = |table: &str| lock[table]["records"].as_integer().unwrap();
    assert_eq!((records("data"), records("validation")), (12, 4));
    let name = lock["validation"]["name"].as_str().unwrap();
    assert!(name.starts_with("4 records held back of "), "{name}");
    let (inputs, _) = place.replay("whole", &[]);
    assert!(inputs.iter().all(|input| input.is_same()), "{inputs:?}");
    let another = ["data.validation=5", "train.steps=8", "train.validate-every=2", "train.save-every=2"];
    assert!(place.resume("whole", &another).unwrap_err().to_string().contains("cannot go on"));
}

#[test]
fn long_texts_are_split_into_pieces_or_cut_and_both_are_counted() {
    let place = Workspace::new();
    std::fs::create_dir_all(place.path("books")).unwrap();
    place.write("books/rhine.txt", &"The Rhine flows north. ".repeat(9));
    place.write("books/elbe.md", "The Elbe.");
    let data = place.set("data.path", "books");
    let plan = |more: &[&str]| place.plan("texts", &[&[data.as_str(), "data.max-length=64"], more].concat()).unwrap();
    let split = plan(&[]).run.data;
    let whole = plan(&["data.max-length=4096"]).run.data;
    assert_eq!((whole.examples.len(), whole.report.split_texts), (2, 0));
    assert_eq!((split.report.split_texts, split.report.pieces), (1, split.examples.len() - 1));
    assert_eq!((split.report.targets, split.report.truncated), (whole.report.targets, 0));
    let cut = plan(&["data.long-texts=cut"]).run.data;
    assert_eq!((cut.examples.len(), cut.report.truncated, cut.report.split_texts), (2, 1, 0));
    // Single files hold back pieces.
    let one = place.set("data.path", "books/rhine.txt");
    assert!(place.plan("one", &[&one, "data.max-length=64", "data.validation=0.2"]).unwrap().run.validation.is_some());
}

#[test]
fn a_model_without_a_chat_template_is_given_one_that_its_adapter_keeps() {
    let place = Workspace::new();
    let own = place.plan("own", &[]).unwrap().run.data.token_digest;
    let settings = r#"{ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>" }"#;
    place.write("model/tokenizer_config.json", settings);
    let error = place.plan("none", &[]).err().unwrap().explanation();
    assert_eq!(error.what, "the record has messages and the model has no chat template");
    assert!(error.hint.unwrap().contains("`model.chat-template`"));
    let refused = |value: &str| {
        let error = place.plan("none", &[&format!("model.chat-template={value}")]).err().unwrap().explanation();
        (error.what, error.hint.unwrap())
    };
    let (what, hint) = refused("mistral");
    assert_eq!(what, "the chat template `mistral` cannot be read");
    assert!(hint.starts_with("built in are chatml, gemma, llama3;"), "{hint}");
    assert!(refused("chatml").0.starts_with("the chat template ends a turn with `<|im_end|>`, which is no token of"));

    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}\
                  {% if add_generation_prompt %}assistant: {% endif %}";
    place.write("chat.jinja", source);
    let template = place.set("model.chat-template", "chat.jinja");
    let short = ["train.steps=2", "train.save-every=1"];
    place.train("given", &[&[template.as_str()], &short[..]].concat()).unwrap();
    assert_eq!(place.text("given", "chat_template.jinja"), source);
    place.stop("stopped", &[&[template.as_str()], &short[..]].concat(), 1);
    assert_eq!(place.text("stopped", "steps/000001/chat_template.jinja"), source);
    assert!(place.text("given", "run.lock").contains("chat_template.jinja"));
    place.replay("given", &[]);
    let going_on = place.set("model.adapter", "runs/given");
    let plan = place.plan("on", &[&going_on]);
    let given = place.plan("again", &[&template]).unwrap().run.data.token_digest;
    assert_eq!((given.as_str(), plan.unwrap().run.data.token_digest.as_str()), (own.as_str(), own.as_str()));
}
