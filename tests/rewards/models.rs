//! Runs whose verifier is a reward model.

use candle_core::Tensor;
use serde_json::{Value, json};
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_training::{RunSettings, plan};

use crate::support::reward_models::{golden, write};
use crate::support::tiny_run::Workspace;

/// A folder with a tiny random policy, prompts, and a reward model in `judge`.
fn workspace(golden: &Value, change: impl Fn(&str, Tensor) -> Tensor) -> Workspace {
    let place = Workspace::new();
    place.write_lines("data.jsonl", (0..8).map(|number| json!({ "prompt": format!("Say {number}") })));
    write(&place.path("judge"), golden, change);
    place
}

/// The settings of a small run of `grpo` that learns from the reward model in `judge`.
fn run_settings(place: &Workspace) -> Vec<String> {
    let settings = ["method.use=grpo", "method.completions=8", "method.max-tokens=8", "data.max-length=64"];
    let model = format!("verifier.0.use=model:{}", place.path("judge").display());
    settings.iter().map(ToString::to_string).chain([model]).collect()
}

fn borrowed(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[test]
fn grpo_raises_the_mean_reward_of_a_reward_model() {
    let place = workspace(&golden("qwen2"), |_, tensor| tensor);
    let more = ["train.steps=16", "train.batch=8", "train.rate=0.03"].map(str::to_owned);
    let settings = [run_settings(&place), more.into()].concat();
    place.train("learns", &borrowed(&settings)).unwrap();
    let rows = place.metrics("learns");
    let rewards: Vec<f64> = rows.iter().filter_map(|row| row.get("reward-judge-mean")?.as_f64()).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&rewards[..4]), mean(&rewards[12..]));
    assert!(last > first + 0.5, "{rewards:?}");
    assert!(rows.iter().all(|row| row.get("reward-judge-failed").is_none_or(|failed| *failed == 0.0)));
}

#[test]
fn a_run_records_its_reward_model_and_notices_another() {
    let place = workspace(&golden("qwen2"), |_, tensor| tensor);
    let settings = [run_settings(&place), vec!["train.steps=4".into(), "train.save-every=2".into()]].concat();
    let settings = borrowed(&settings);
    place.stop("judged", &settings, 2);
    let template = place.path("judge/chat_template.jinja");
    let before = std::fs::read(&template).unwrap();
    std::fs::write(&template, "{{ messages[0].content }}").unwrap();
    let error = place.resume("judged", &settings).err().unwrap();
    assert!(error.to_string().contains("the verifiers are others"), "{error}");
    std::fs::write(&template, before).unwrap();
    place.resume("judged", &settings).unwrap();
    let (inputs, _) = place.replay("judged", &[]);
    assert!(inputs.iter().any(|one| one.what == "verifier.0.sha256" && one.is_same()), "{inputs:?}");
    let card = place.text("judged", "README.md");
    assert!(card.contains("| reward model `judge`, SHA-256 | `"), "{card}");
}

#[test]
fn a_logit_that_is_no_number_is_no_verdict() {
    // Each finite, and infinite multiplied.
    let infinite = |name: &str, tensor: Tensor| match name {
        "score.weight" | "model.norm.weight" => (tensor * 1e30).unwrap(),
        _ => tensor,
    };
    let place = workspace(&golden("llama"), infinite);
    let settings = [run_settings(&place), vec!["train.steps=1".into()]].concat();
    let error = place.train("infinite", &borrowed(&settings)).err().unwrap();
    assert!(error.to_string().starts_with("the verifier `judge` failed on"), "{error}");
    assert!(error.why().unwrap().starts_with("its verdict is "), "{:?}", error.why());
}

#[test]
fn the_time_of_a_reward_model_counts_towards_the_step() {
    let place = workspace(&golden("llama"), |_, tensor| tensor);
    let more = ["train.steps=1", "limits.step-wall-seconds=0.001"].map(str::to_owned);
    let settings = [run_settings(&place), more.into()].concat();
    let error = place.train("slow", &borrowed(&settings)).err().unwrap();
    assert_eq!(error.exit(), Exit::Sandbox, "{error}");
}

/// The plan of a run file in the workspace with these lines for its verifier.
fn plan_with(place: &Workspace, verifier: &str) -> Result<(), tunebox_training::Error> {
    let text = format!(
        "[model]\npath = \"model\"\ninitialize = \"random\"\n[data]\npath = \"data.jsonl\"\nmax-length = 64\n\
         [method]\nuse = \"grpo\"\n[[verifier]]\n{verifier}\n[run]\nfolder = {:?}\n",
        place.path("runs").display().to_string()
    );
    place.write("run.toml", &text);
    plan(RunSettings::load(&place.path("run.toml"), &[])?).map(drop)
}

#[test]
fn mistakes_about_a_reward_model_are_located_in_the_run_file() {
    let place = workspace(&golden("deberta_v3"), |_, tensor| tensor);
    plan_with(&place, "use = \"model:judge\"\nname = \"kind\"\nweight = 0.5").unwrap();
    for (verifier, wanted) in [
        ("use = \"model:model\"", "is not a reward model"),
        ("use = \"model:juge\"", "there is no reward model `juge`"),
        ("use = \"model:judge\"\nbeta = 1", "a reward model has no setting `beta`"),
        ("use = \"model:judge\"\n[[verifier]]\nuse = \"model:judge\"", "two verifiers are called `judge`"),
    ] {
        let error = plan_with(&place, verifier).err().unwrap();
        let explanation = error.explanation();
        assert!(error.to_string().contains(wanted), "{verifier}: {error}");
        assert!(explanation.location.unwrap().contains("run.toml:"), "{verifier}");
        assert!(explanation.hint.is_some(), "{verifier}");
        assert_eq!(error.exit(), Exit::Usage, "{verifier}");
    }
}

#[test]
fn the_estimated_memory_counts_the_reward_model_and_the_plan_names_its_files() {
    let place = workspace(&golden("deberta_v3"), |_, tensor| tensor);
    let settings = run_settings(&place);
    let judged = place.plan("judged", &borrowed(&settings)).unwrap().run.summary.memory;
    let bytes = std::fs::metadata(place.path("judge/model.safetensors")).unwrap().len();
    assert!(judged.reward_models > bytes && judged.reward_models < 100 * bytes, "{judged:?}");
    let readable = tunebox_training::list_read_files(&place.settings(&borrowed(&settings)).unwrap());
    assert!(readable.contains(&place.path("judge")), "{readable:?}");
}
