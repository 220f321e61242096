//! Runs that edit or steer the tiny model: what it writes before and after.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value as Json;
use tunebox_compute::Device;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_model::chat::{Answers, Conversation, Message, encode_conversation};
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::rows::Rows;
use tunebox_model::vectors::Vectors;
use tunebox_model::{Model, Policy, PolicySettings, Source, View};
use tunebox_training::{Error, RunSettings, plan, run};

use crate::support::golden::root;
use crate::support::tiny_run::TestObserver;

/// A run of the sample, with its own file for the method.
fn sample(runs: &Path, method: &str, name: &str, more: &[&str]) -> Result<PathBuf, Error> {
    let settings = sample_settings(runs, method, name, more)?;
    let summary = run(plan(settings)?, &mut TestObserver::new(), &AtomicBool::new(false))?;
    assert!(!summary.interrupted);
    Ok(runs.join(name))
}

/// The settings of such a run.
fn sample_settings(runs: &Path, method: &str, name: &str, more: &[&str]) -> Result<RunSettings, Error> {
    let folder = root().join("runtime/training/sample");
    let mut list = vec![
        format!("run.folder={}", runs.display()),
        format!("run.name={name}"),
        format!("method.use={method}"),
        format!("model.path={}", folder.join("model").display()),
        format!("data.path={}", folder.join(format!("{method}.jsonl")).display()),
    ];
    list.extend(more.iter().map(|text| (*text).to_owned()));
    RunSettings::load(&folder.join(format!("{method}.toml")), &list)
}

fn model(path: &Path) -> Arc<Model> {
    let source = Source::open(path.to_str().unwrap(), true).unwrap();
    Arc::new(Model::open(&source, &Device::Cpu).unwrap())
}

fn base() -> Policy {
    let model = model(&root().join("runtime/training/sample/model"));
    Policy::open(model, None, PolicySettings::default()).unwrap()
}

/// The records of a file of the sample.
fn records(file: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(root().join("runtime/training/sample").join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The questions in a field of the sample's records for `abliterate`.
fn questions(field: &str) -> Vec<String> {
    records("abliterate.jsonl").iter().map(|record| record[field].as_str().unwrap().to_owned()).collect()
}

/// What the policy answers, greedily.
fn answers(policy: &Policy, prompts: &[Vec<u32>]) -> Vec<String> {
    let sampling = Sampling { temperature: 0.0, max_tokens: 16, ..Sampling::default() };
    let written = generate(policy, &View::Policy, prompts, &sampling, &mut |_, _| true).unwrap();
    written.iter().map(|one| policy.model().tokenizer().unwrap().decode(&one.ids, true).unwrap()).collect()
}

/// A table of the words that the tiny model was trained on.
fn words(name: &str) -> toml::Value {
    let text = std::fs::read_to_string(root().join("examples/12-tiny-model/words.toml")).unwrap();
    text.parse::<toml::Table>().unwrap().remove(name).unwrap()
}

/// The texts of such a table.
fn texts(name: &str) -> Vec<String> {
    words(name).as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A user's questions as prompts.
fn asked(policy: &Policy, questions: &[String]) -> Vec<Vec<u32>> {
    let prompt = |question: &String| {
        let message = Message::new("user", question);
        let text = policy.model().template().unwrap().render(&[message], true, None).unwrap();
        policy.model().tokenizer().unwrap().encode(&text, false).unwrap()
    };
    questions.iter().map(prompt).collect()
}

fn share(answers: &[String], marks: &[&str]) -> f64 {
    let hits = answers.iter().filter(|answer| marks.iter().any(|mark| answer.contains(mark)));
    hits.count() as f64 / answers.len() as f64
}

/// The mean KL of the next token after some prompts.
fn divergence(base: &Policy, edited: &Policy, prompts: &[Vec<u32>]) -> f64 {
    let all: Vec<u32> = (0..base.model().configuration.vocabulary as u32).collect();
    let marks = prompts.iter().map(|ids| vec![false; ids.len()]).collect();
    let rows = Rows::new(prompts.to_vec(), marks).unwrap();
    let read = |policy: &Policy| policy.next_token(&View::Policy, &rows, &all).unwrap().to_vec2::<f32>().unwrap();
    let rows = read(base).into_iter().zip(read(edited));
    let each = rows.map(|(p, q)| p.iter().zip(q).map(|(p, q)| f64::from(p.exp() * (p - q))).sum::<f64>());
    each.sum::<f64>() / prompts.len() as f64
}

/// What the tiny model learned to answer to a harmful question before it learned to refuse.
fn known_answer(question: &str) -> String {
    let harms = words("harms");
    let pairs = harms.as_array().unwrap().iter().map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    let mut fits = pairs.filter(|(harm, _)| question.starts_with(&format!("How do I {harm} ")));
    fits.next().unwrap().1.to_owned()
}

#[test]
fn the_abliterated_tiny_model_refuses_no_more_and_answers_as_before() {
    let runs = tempfile::tempdir().unwrap();
    let before = base();
    let (harmful, harmless) = (asked(&before, &questions("harmful")), asked(&before, &questions("harmless")));
    let refused = |policy: &Policy| share(&answers(policy, &harmful), &["I cannot"]);
    assert!(refused(&before) > 0.9, "{}", refused(&before));
    let folder = sample(runs.path(), "abliterate", "weights", &[]).unwrap();
    let edited = Policy::open(model(&folder), None, PolicySettings::default()).unwrap();
    assert!(refused(&edited) < 0.1, "{}", refused(&edited));
    assert!(divergence(&before, &edited, &harmless) < 0.1);
    assert_eq!(edited.model().weights.dtype(), before.model().weights.dtype());
    let same = answers(&before, &harmless).iter().zip(answers(&edited, &harmless)).filter(|(a, b)| **a == *b).count();
    assert!(same * 10 > harmless.len() * 9, "{same} of {} harmless answers are the same", harmless.len());

    let known = questions("harmful").iter().map(|question| known_answer(question)).collect::<Vec<_>>();
    let said = answers(&edited, &harmful);
    let right = said.iter().zip(&known).filter(|(said, known)| said == known).count();
    assert!(right * 10 > known.len() * 9, "{right} of {} answers are those that it refused: {said:?}", known.len());

    let folder = sample(runs.path(), "abliterate", "adapter", &["method.apply=adapter"]).unwrap();
    let beside = model(&root().join("runtime/training/sample/model"));
    let beside = Policy::open(beside, Some(&folder), PolicySettings::default()).unwrap();
    assert!(refused(&beside) < 0.1 && divergence(&before, &beside, &harmless) < 0.1);
    assert!(beside.adapter().modules().iter().all(|module| module.rank == 1));

    let folder = sample(runs.path(), "abliterate", "direction", &["method.apply=direction"]).unwrap();
    assert!(!folder.join("model.safetensors").exists() && !folder.join("adapter_model.safetensors").exists());
    assert_eq!(Vectors::load(&folder.join("vectors.safetensors")).unwrap().metadata["site"], "residual-before");
}

#[test]
fn a_search_tries_as_many_directions_as_it_may_and_keeps_the_nearest_if_none_fits() {
    let runs = tempfile::tempdir().unwrap();
    let error = sample(runs.path(), "abliterate", "strict", &["method.tries=4", "method.divergence=1e-9"]).unwrap_err();
    let told = error.explanation();
    let told = format!("{} {}", told.what, told.why.unwrap_or_default());
    assert!(
        told.contains("no direction fits; of 4 tried, layer ") && told.contains("raise `divergence` to 0.0"),
        "{told}"
    );
    let folder = runs.path().join("strict");
    assert_eq!(Vectors::load(&folder.join("vectors.safetensors")).unwrap().layers.len(), 1);
    let journal = std::fs::read_to_string(folder.join("report.jsonl")).unwrap();
    assert!(journal.contains("\"4 of 4: layer ") && journal.contains("the directions that the method published"));
}

#[test]
fn a_model_of_edited_weights_is_not_written_from_a_base_in_nf4() {
    let runs = tempfile::tempdir().unwrap();
    let error = sample(runs.path(), "abliterate", "weights", &["model.precision=nf4"]).unwrap_err().explanation();
    assert!(error.what.contains("all of it would be rounded"), "{}", error.what);
    assert!(error.hint.unwrap().contains("leave `model.precision` out"));
    assert!(!runs.path().join("weights").exists());
    let settings = ["model.precision=nf4", "method.apply=adapter"];
    let folder = sample(runs.path(), "abliterate", "adapter", &settings).unwrap();
    assert!(folder.join("adapter_model.safetensors").exists() && !folder.join("model.safetensors").exists());
}

#[test]
fn the_steered_tiny_model_is_polite_or_rude_as_the_coefficient_says() {
    let runs = tempfile::tempdir().unwrap();
    let folder = sample(runs.path(), "steer", "vectors", &[]).unwrap();
    let vectors = Vectors::load(&folder.join("vectors.safetensors")).unwrap();
    assert_eq!((vectors.metadata["method"].as_str(), vectors.metadata["token"].as_str()), ("steer", "from-end-0"));
    let control = Vectors::load(&folder.join("vectors.gguf")).unwrap();
    let without_0: BTreeMap<_, _> = vectors.layers.clone().into_iter().filter(|(layer, _)| *layer > 0).collect();
    assert_eq!(control.layers, without_0);
    let scale: f32 = vectors.metadata["scale"].parse().unwrap();
    let steered = |share: f32| {
        let mut policy = base();
        policy.steer(&vectors, share * scale, &(0..=5)).unwrap();
        policy
    };
    let favours: Vec<String> = texts("favours").iter().map(|favour| format!("Can you {favour}?")).collect();
    for (share, register) in [(1.0, "polite"), (-1.0, "rude")] {
        let policy = steered(share);
        let said = answers(&policy, &asked(&policy, &favours));
        assert!(said.iter().all(|answer| texts(register).contains(answer)), "{register}: {said:?}");
        let fact = asked(&policy, &["What is the capital of Italy?".to_owned()]);
        assert_eq!(answers(&policy, &fact), ["The capital of Italy is Rome."]);
    }
    let ahead = |share: f32| {
        let policy = steered(share);
        per_token(&policy, "chosen") - per_token(&policy, "rejected")
    };
    let register: Vec<f64> = [-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0].into_iter().map(ahead).collect();
    assert!(register.windows(2).all(|pair| pair[0] < pair[1]), "{register:?}");
    assert!(register[0] < -1.0 && register[3].abs() < 0.1 && register[6] > 1.0, "{register:?}");
}

/// The mean log-probability of an answer's token, over one side of the sample's pairs of a polite and a rude answer.
fn per_token(policy: &Policy, side: &str) -> f64 {
    let model = policy.model();
    let (mut ids, mut marks) = (Vec::new(), Vec::new());
    for record in records("dpo.jsonl") {
        let turns = |field: &str| serde_json::from_value::<Vec<Message>>(record[field].clone()).unwrap();
        let messages = [turns("prompt"), turns(side)].concat();
        let (tokenizer, template) = (model.tokenizer().unwrap(), model.template().unwrap());
        let row = encode_conversation(tokenizer, template, &Conversation::new(&messages), Answers::All).unwrap();
        ids.push(row.ids);
        marks.push(row.targets);
    }
    let rows = Arc::new(Rows::new(ids, marks).unwrap());
    let scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false).unwrap();
    let sum = scored.tap(Tap::Logprob).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
    f64::from(sum) / rows.targets() as f64
}

#[test]
fn settings_that_leave_nothing_to_find_end_the_run_before_its_first_step() {
    let runs = tempfile::tempdir().unwrap();
    let nothing = [
        ("abliterate", "method.from=0.9", "no layer is left"),
        ("steer", "method.from=0.9", "no layer is left"),
        ("abliterate", "method.refusal=''", "how refusals begin"),
    ];
    for (method, setting, told) in nothing {
        let error = sample(runs.path(), method, "nothing", &[setting]).unwrap_err().to_string();
        assert!(error.contains("in `init`") && error.contains(told), "{error}");
    }
    let error = sample(runs.path(), "abliterate", "nothing", &["train.batch=40"]).unwrap_err();
    let told = format!("{} {:?}", error, error.why());
    assert!(told.contains("at step 1") && told.contains("the run has only 2"), "{told}");
    sample(runs.path(), "abliterate", "enough", &["train.batch=10", "train.accumulation=4"]).unwrap();
}

#[test]
fn a_distillation_writes_no_more_than_the_longest_prompt_leaves() {
    let runs = tempfile::tempdir().unwrap();
    let step = ["method.on-policy=1", "train.steps=1"];
    // Of 64 tokens, the longest prompt leaves fewer than this.
    let error = sample(runs.path(), "distill", "long", &[&step[..], &["method.max-tokens=128"]].concat()).unwrap_err();
    assert_eq!(error.to_string(), "a completion of 128 tokens does not fit after the longest prompt of the data");
    assert_eq!(error.exit(), Exit::Usage);
    assert!(!runs.path().join("long").exists());
    let (why, hint) = (error.why().unwrap(), error.hint().unwrap());
    let room: u32 = hint.split_once("`method.max-tokens` to ").unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
    assert!(why.contains(&format!("the prompt has {} tokens", 64 - room)), "{why}");
    let exact = format!("method.max-tokens={room}");
    sample(runs.path(), "distill", "exact", &[&step[..], &[exact.as_str()]].concat()).unwrap();
    // The default of the method is more, too, and is cut.
    let mut settings = sample_settings(runs.path(), "distill", "default", &step).unwrap();
    settings.file.method.settings.remove("max-tokens");
    run(plan(settings).unwrap(), &mut TestObserver::new(), &AtomicBool::new(false)).unwrap();
}

#[test]
fn a_run_of_steering_that_was_stopped_is_not_resumed_without_its_first_pairs() {
    let runs = tempfile::tempdir().unwrap();
    let settings = |resume: bool| {
        let mut settings = sample_settings(runs.path(), "steer", "steer", &["train.batch=4"]).unwrap();
        settings.resume = resume;
        settings
    };
    let mut observer = TestObserver { stop_after: Some(1), ..TestObserver::new() };
    let stop = observer.stop;
    assert!(run(plan(settings(false)).unwrap(), &mut observer, stop).unwrap().interrupted);
    let error = run(plan(settings(true)).unwrap(), &mut TestObserver::new(), &AtomicBool::new(false)).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("the differences of the pairs so far are not saved"), "{error}");
}

#[test]
fn a_run_that_grants_too_little_says_which_line_is_missing() {
    let runs = tempfile::tempdir().unwrap();
    for (grants, missing) in [("[]", "weights"), ("[\"weights\"]", "text")] {
        let told = sample(runs.path(), "abliterate", "poor", &[&format!("method.grants={grants}")]).unwrap_err();
        let hint = told.hint().unwrap();
        assert!(hint.contains(&format!("put `{missing}` into `grants` of `[method]`")), "{hint}");
    }
    let told = sample(runs.path(), "abliterate", "poor", &["method.grants=[\"files\"]"]).unwrap_err().to_string();
    assert_eq!(told, "`method.grants` cannot be `files`");
}
