//! What the report of a run says, when it is written, and that hostile text in it becomes neither markup nor script.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tunebox_training::{Event, Observer, compare_runs, run, try_steps, write_report};

use crate::support::golden::{assert_file, root};
use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_run::{TestObserver, Workspace};

const PAGE: &str = "report.html";

fn page(place: &Workspace, run: &str) -> String {
    place.text(run, PAGE)
}

/// The state that a page names first.
fn state(page: &str) -> String {
    let (_, rest) = page.split_once("<span class=\"state ").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

/// Whether a browser loads the page again.
fn loads_again(page: &str) -> bool {
    page.contains("<meta http-equiv=\"refresh\"")
}

/// A copy of the run in `golden/report` in a folder of this name.
fn golden_run(name: &str) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    for file in ["metrics.jsonl", "report.jsonl", "run.lock", "run.toml"] {
        std::fs::copy(root().join("tests/golden/report").join(file), folder.join(file)).unwrap();
    }
    (place, folder)
}

#[test]
fn the_report_of_a_run_is_the_golden_page() {
    let (_place, folder) = golden_run("pirate");
    let page = std::fs::read_to_string(write_report(&folder).unwrap()).unwrap();
    assert_file("tests/golden/report/report.html", &page);
}

#[test]
fn the_page_of_two_runs_is_the_golden_page() {
    let (_one, first) = golden_run("first");
    let (_other, second) = golden_run("second");
    let lock = std::fs::read_to_string(second.join("run.lock")).unwrap();
    std::fs::write(
        second.join("run.lock"),
        lock.replace("rate = 5e-3", "rate = 1e-3").replace(&"d".repeat(64), &"0".repeat(64)),
    )
    .unwrap();
    let metrics = std::fs::read_to_string(second.join("metrics.jsonl")).unwrap();
    std::fs::write(second.join("metrics.jsonl"), metrics.replace("\"loss\":", "\"loss\":1")).unwrap();
    let comparison = compare_runs(&[first, second]).unwrap();

    let differences: Vec<(&str, Vec<Option<String>>)> =
        comparison.differences.iter().map(|difference| (difference.key.as_str(), difference.values.clone())).collect();
    let digests = ["d", "0"].map(|letter| Some(letter.repeat(64)));
    let rates = ["0.005", "0.001"].map(|rate| Some(rate.to_owned()));
    assert_eq!(differences, [("method.sha256", digests.to_vec()), ("train.rate", rates.to_vec())]);
    assert_eq!(comparison.runs[1].metric("loss").unwrap().last, 10.392);
    assert_file("tests/golden/report/compare.html", &comparison.page);
}

#[test]
fn a_rate_that_a_run_file_leaves_out_is_compared_by_the_one_of_the_plan() {
    let (_one, first) = golden_run("first");
    let (_other, second) = golden_run("second");
    let change = |folder: &Path, rate: &str| {
        let lock = std::fs::read_to_string(folder.join("run.lock")).unwrap();
        assert!(lock.contains("rate = 5e-3\n"));
        std::fs::write(folder.join("run.lock"), lock.replace("rate = 5e-3\n", rate)).unwrap();
    };
    change(&first, "rate = 1e-3\n");
    change(&second, "");
    let comparison = compare_runs(&[first, second]).unwrap();
    let rate = comparison.differences.iter().find(|difference| difference.key == "train.rate").unwrap();
    assert_eq!(rate.short_values(), ["0.001", "0.005"]);
}

/// Reads the page of a run when it begins.
#[derive(Default)]
struct Looking(String);

impl Observer for Looking {
    fn event(&mut self, event: &Event) {
        if let Event::Planned { folder, .. } = event {
            self.0 = std::fs::read_to_string(folder.join(PAGE)).unwrap();
        }
    }
}

#[test]
fn a_run_that_goes_on_has_a_page_that_loads_itself_again_and_one_that_ended_does_not() {
    let place = Workspace::new();
    let mut looking = Looking::default();
    let data = place.set("data.validation", "data.jsonl");
    let plan = place.plan("one", &["train.steps=3", &data]).unwrap();
    run(plan, &mut looking, TestObserver::new().stop).unwrap();

    assert_eq!((state(&looking.0).as_str(), loads_again(&looking.0)), ("running", true));
    let last = page(&place, "one");
    assert_eq!((state(&last).as_str(), loads_again(&last)), ("finished", false));
    assert!(last.contains("step 3 of 3") && last.contains("validation loss") && last.contains("peak memory"), "{last}");
    assert!(last.contains("What is 0 and 0?") && last.contains("after step 3"), "answers to prompts of the data");
    write_report(&place.path("runs/one")).unwrap();
    assert!(page(&place, "one") == last, "the folder holds all that the page shows");
}

#[test]
fn a_stopped_run_keeps_what_its_page_showed_when_it_goes_on() {
    let place = Workspace::new();
    let settings = ["train.steps=6", "train.save-every=2"];
    place.stop("halved", &settings, 3);
    let stopped = page(&place, "halved");
    assert_eq!((state(&stopped).as_str(), loads_again(&stopped)), ("stopped", false));
    assert!(stopped.contains("the run did not finish"));
    place.resume("halved", &settings).unwrap();
    let last = page(&place, "halved");
    assert_eq!(state(&last), "finished");
    assert!(last.contains("before step 1 and at the end") && last.contains("after step 6"));
}

#[test]
fn a_run_shows_its_estimated_cost_beside_what_it_cost() {
    let place = Workspace::new();
    let summary = place.train("priced", &["train.steps=12", "run.hourly-price=3600"]).unwrap();
    let (step, estimate) = summary.estimate.unwrap();
    let cost = summary.cost.unwrap();
    assert_eq!(step, 3);
    assert!(estimate.seconds > 0.0 && cost.seconds > 0.0);
    assert!((cost.price.unwrap() - cost.seconds).abs() < 1e-3 * cost.seconds, "one a second: {cost:?}");
    assert!(cost.energy.is_some_and(|energy| energy.joules > 0.0));
    let page = page(&place, "priced");
    for wanted in ["time in all", "price", "energy", "estimated after step 3"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let short = place.train("short", &["train.steps=5"]).unwrap();
    assert!(short.estimate.is_none() && short.cost.is_some());
}

#[test]
fn a_trial_estimates_the_cost_of_a_run_and_leaves_nothing_of_it() {
    let place = Workspace::new();
    let data = place.set("data.validation", "data.jsonl");
    let folder = tempfile::tempdir().unwrap();
    for settings in [["train.steps=40", "method.use=lora"], ["train.epochs=3", "method.use=lora"]] {
        let plan = place.plan("tried", &[&settings[..], &[data.as_str()]].concat()).unwrap();
        let trial = try_steps(plan, folder.path()).unwrap();
        assert!(trial.steps >= 3 && trial.cost.seconds > 0.0, "{trial:?}");
    }
    assert!(!place.path("runs/tried").exists() && !folder.path().join("trial").exists());
}

/// Logs markup in every step, and traps in the third.
const HOSTILE: &str = r#"
(data (i32.const 272) "</pre><script>alert(1)</script>\e2\80\ae")
(global $steps (mut i32) (i32.const 0))
(func $step (param i32) (result i32)
  (call $run/log (i32.const 272) (i32.const 34))
  (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
  (if (i32.eq (global.get $steps) (i32.const 3)) (then (unreachable)))
  (call $done))
"#;

#[test]
fn a_run_that_failed_says_why_and_the_lines_of_its_method_are_text() {
    let place = Workspace::new();
    let method =
        place.write_component("method.use", "talks.wasm", &manifested("talks", guest::component(HOSTILE), json!({})));
    place.train("failed", &[&method, "train.steps=9"]).unwrap_err();

    let page = page(&place, "failed");
    assert_eq!((state(&page).as_str(), loads_again(&page)), ("failed", false));
    assert!(page.contains("The run failed.") && page.contains("unreachable"), "{page}");
    assert!(page.contains("step 2: &lt;&#x2f;pre&gt;&lt;script&gt;alert(1)"), "{page}");
    assert_harmless(&page);
}

/// The names of the elements of a page.
fn elements(page: &str) -> BTreeSet<&str> {
    let found = page
        .split('<')
        .skip(1)
        .map(|rest| rest.split([' ', '>', '/', '\n']).find(|part| !part.is_empty()).unwrap_or(""));
    found.collect()
}

/// Fails if a page has an element or an attribute that could act or load something, or a style that its policy forbids.
fn assert_harmless(page: &str) {
    const ELEMENTS: &str = "!doctype html head meta title style body header main footer section div span p h1 h2 \
                            h3 strong b i progress figure figcaption svg g path rect circle text details summary table \
                            thead tbody tr th td pre";
    let known: BTreeSet<&str> = ELEMENTS.split_whitespace().collect();
    let unknown: Vec<_> = elements(page).into_iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let tags = page.split('<').skip(1).filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag.to_lowercase()));
    for tag in tags {
        // What stands in quotes is the value of an attribute.
        let names: String = tag.split('"').step_by(2).collect();
        assert!([" on", " style=", " href", " src", "url("].iter().all(|part| !names.contains(part)), "{tag}");
    }
    let (_, style) = page.split_once("<style>").unwrap();
    let digest = Sha256::digest(style.split_once("</style>").unwrap().0);
    let digest = base64::engine::general_purpose::STANDARD.encode(digest);
    let policy = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; \
         base-uri 'none'; form-action 'none'\">"
    );
    let head = page.split_once(&policy).expect("the policy").0;
    assert!(head.ends_with("<meta charset=\"utf-8\">\n"), "nothing comes before the policy: {head}");
}

const ATTACK: &str =
    "\u{202e}</title></pre></td></svg>\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}";

/// A row of a file, with its text.
fn line(value: &Value) -> String {
    format!("{value}\n")
}

#[test]
fn hostile_text_in_any_file_of_a_run_is_text_on_its_page() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a<b>\"&'c");
    std::fs::create_dir(&folder).unwrap();
    let mut lock = toml::Table::new();
    for table in ["method", "model", "data", "validation"] {
        let text = |key: &str| (key.to_owned(), toml::Value::from(ATTACK));
        lock.insert(table.into(), toml::Table::from_iter(["name", "version", "sha256", "signer"].map(text)).into());
    }
    lock.insert("steps".into(), 3.into());
    lock.insert("device".into(), ATTACK.into());
    std::fs::write(folder.join("run.lock"), lock.to_string()).unwrap();
    std::fs::write(folder.join("run.toml"), format!("# {ATTACK}\n")).unwrap();
    let metrics = [
        json!({ "step": 1, ATTACK: 2.0, "loss": 3.0, "reward": 1e300, "method": ATTACK }),
        json!({ "step": 2, ATTACK: 1.0, "loss": 1.0, "reward": 1.0 }),
        json!({ "step": 2, "closing": true, ATTACK: 1.0 }),
    ];
    std::fs::write(folder.join("metrics.jsonl"), metrics.iter().map(line).collect::<String>()).unwrap();
    let sample = json!({ "prompt": ATTACK, "completion": ATTACK, "reward": 1.0, "verdicts": [[ATTACK, 1.0]] });
    let answer = json!({ "prompt": ATTACK, "wanted": ATTACK, "answer": ATTACK });
    let rows = [
        json!({ "step": 0, "plan": { "family": ATTACK, "adapter": ATTACK, "rank": 1 } }),
        json!({ "step": 0, "answers": [answer] }),
        json!({ "step": 1, "log": ATTACK }),
        json!({ "step": 1, "warning": ATTACK }),
        json!({ "step": 1, "completions": [sample] }),
    ];
    std::fs::write(folder.join("report.jsonl"), rows.iter().map(line).collect::<String>()).unwrap();

    let report = std::fs::read_to_string(write_report(&folder).unwrap()).unwrap();
    let compared = compare_runs(&[folder.clone(), folder.clone()]).unwrap().page;
    for page in [report, compared] {
        assert_harmless(&page);
        assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("\\u{202e}"), "the text is shown");
        assert!(!page.contains("<script") && !page.contains('\u{202e}') && !page.contains(" 49}"), "{page}");
    }
}

#[test]
fn what_a_method_learned_from_is_shown_every_few_steps() {
    let place = Workspace::new();
    let prompt = |number: usize| json!({ "prompt": format!("Say {number}<b>"), "answer": "x" });
    place.write_lines("data.jsonl", (0..8).map(prompt));
    let settings = [
        "method.use=grpo",
        "data.max-length=40",
        "method.completions=4",
        "train.batch=4",
        "train.steps=7",
        "train.show-completions=3",
        "verifier.0.use=overlong",
        "verifier.0.length=40",
        "verifier.0.buffer=40",
        "verifier.0.unit=characters",
    ];
    let sampled = |run: &str, settings: &[&str]| {
        let mut watcher = TestObserver::new();
        place.train_with(run, settings, &mut watcher).unwrap();
        let samples = watcher.events.into_iter().filter_map(|event| match event {
            Event::Sampled { step, samples } => Some((step, samples)),
            _ => None,
        });
        samples.collect::<Vec<_>>()
    };
    let shown = sampled("shown", &settings);
    let steps: Vec<u64> = shown.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [1, 3, 6, 7], "the first, every third, the last");
    for (_, samples) in &shown {
        let prompts: BTreeSet<&str> = samples.iter().map(|sample| sample.prompt.as_str()).collect();
        assert!((1..=4).contains(&samples.len()) && prompts.len() <= 2, "{samples:?}");
        for pair in samples.windows(2).filter(|pair| pair[0].prompt == pair[1].prompt) {
            assert!(pair[0].reward > pair[1].reward, "the best of a prompt first: {samples:?}");
        }
    }
    let page = page(&place, "shown");
    assert!(page.contains("Completions and their rewards") && page.contains("Say ") && page.contains("&lt;b&gt;"));
    let quiet = [&settings[..5], &["train.show-completions=0"], &settings[6..]].concat();
    assert!(sampled("quiet", &quiet).is_empty());
    let adapter = |run: &str| place.bytes(run, "adapter_model.safetensors");
    assert!(adapter("shown") == adapter("quiet"), "what is shown changes nothing");
}

#[test]
fn a_finished_run_that_changed_no_answers_shows_none() {
    let (_place, folder) = golden_run("steered");
    let rows = std::fs::read_to_string(folder.join("report.jsonl")).unwrap();
    let is_kept = |row: &&str| !row.starts_with("{\"step\":12,\"answers");
    let kept: String = rows.lines().filter(is_kept).map(|row| format!("{row}\n")).collect();
    std::fs::write(folder.join("report.jsonl"), kept).unwrap();
    let page = std::fs::read_to_string(write_report(&folder).unwrap()).unwrap();
    assert!(!page.contains("Answers before and after"), "{page}");
}

#[test]
fn a_folder_that_is_no_run_has_no_report() {
    let place = tempfile::tempdir().unwrap();
    assert!(write_report(place.path()).is_err());
    assert!(!Path::new(&place.path().join(PAGE)).exists());
}
