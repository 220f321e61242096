//! Claims about environments: whatever one does, there is an answer or a word for what it did; and a run with one
//! learns over several turns, ends in the same bits again, and says what it used.

mod runs;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::{Device, Tensor};
use tunebox_model::generate::Completion;
use tunebox_model::policy::{Seeds, View};
use tunebox_model::rows::Rows;
use tunebox_package::Reference;
use tunebox_sandbox::{Completions, Engine, Error, Limits, Responder, Response, Turn};

use crate::support::golden::root;
use crate::support::guest;
use crate::support::manifested::manifested;
use crate::support::tiny_policy::tiny_policy;
use crate::support::tiny_run::Workspace;

/// An environment written as text; `body` is what `respond` does. Its parameters are start and length of the prompt,
/// the answer and the turns, of twelve bytes each. `$say` answers with a text in memory, `$end` with a reward, `$over`
/// without.
fn written(body: &str) -> Vec<u8> {
    let module = format!(
        r#"(module (memory (export "memory") 1) (global $top (mut i32) (i32.const 4096)) (data (i32.const 1024) "Go on.<|end|>")
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $top) (global.set $top (i32.add (global.get $top) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8)))))
          (func $say (param $at i32) (param $length i32) (result i32)
            (i32.store8 (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (local.get $at))
            (i32.store (i32.const 24) (local.get $length)) (i32.const 16))
          (func $end (param $reward f32) (result i32)
            (i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 20) (i32.const 1))
            (f32.store (i32.const 24) (local.get $reward)) (i32.const 16))
          (func $over (result i32)
            (i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 20) (i32.const 0)) (i32.const 16))
          (func $last (param $turns i32) (param $count i32) (result i32)
            (i32.load (i32.add (local.get $turns) (i32.sub (i32.mul (local.get $count) (i32.const 12)) (i32.const 4)))))
          (func (export "tunebox:method/respond@0.2.0#init") (param i32 i32) (result i32) (i32.const 0))
          (func (export "cabi_post_tunebox:method/respond@0.2.0#respond") (param i32) (global.set $top (i32.const 4096)))
          (func $again (export "tunebox:method/respond@0.2.0#respond")
            (param $prompt i32) (param i32) (param $answer i32) (param i32) (param $turns i32) (param $count i32) (result i32) {body}))"#
    );
    let (resolve, world) = guest::read_world(&root().join("wit"), "environment");
    guest::encode(&module, &resolve, world)
}

/// Says `Go on.` twice, then ends with a reward that depends on the length of the last completion.
const TALKS: &str =
    "(if (i32.lt_u (local.get $count) (i32.const 5)) (then (return (call $say (i32.const 1024) (i32.const 6)))))
    (call $end (f32.convert_i32_u (i32.and (call $last (local.get $turns) (local.get $count)) (i32.const 1))))";

fn turns(texts: &[&str]) -> Vec<Turn> {
    let turn = |(place, text): (usize, &&str)| match place % 2 {
        0 => Turn::Completion((*text).to_owned()),
        _ => Turn::Message((*text).to_owned()),
    };
    texts.iter().enumerate().map(turn).collect()
}

#[test]
fn whatever_an_environment_does_there_is_an_answer() {
    let engine = Engine::new().unwrap();
    let limits = Limits { environment_seconds: 0.1, environment_memory: 4 << 20, ..Limits::default() };
    let again = format!("(call $again {})", "(local.get 0) ".repeat(6));
    for (body, wanted) in [
        (
            "(loop $on (br $on)) (unreachable)",
            "it took longer than 0.1 s; `--set limits.environment-seconds=1` allows it more",
        ),
        ("(unreachable)", "it gave up"),
        (again.as_str(), "it ran out of stack"),
        (
            "(memory.grow (i32.const 100))",
            "(it may use 4.0 MiB of memory); `--set limits.environment-memory=8388608` allows it more",
        ),
        ("(i32.const -8)", "memory"),
        ("(call $say (i32.const -8) (i32.const 4))", "memory"),
        ("(i32.store8 (i32.const 1024) (i32.const 255)) (call $say (i32.const 1024) (i32.const 1))", "utf-8"),
        ("(call $say (i32.const 1024) (i32.const 9000))", "its message has 9,000 bytes, at most 8,192 are passed on"),
        ("(drop (memory.grow (i32.const 40))) (call $say (i32.const 0) (i32.const 2000000))", "of memory"),
        ("(call $end (f32.const nan))", "its reward is NaN"),
        ("(call $end (f32.const -inf))", "its reward is -inf"),
    ] {
        let environment = engine.admit_environment(&written(body), "hostile", &limits).unwrap();
        let mut responder = Responder::new(environment, &[]).unwrap();
        for _ in 0..2 {
            let response = responder.respond("a", "b", &turns(&["c"]), None);
            let Response::Failed(reason) = &response else { panic!("{body}: {response:?}") };
            assert!(reason.contains(wanted), "{body}: {reason}");
        }
    }
}

#[test]
fn an_environment_gets_all_turns_and_gives_messages_and_rewards() {
    let engine = Engine::new().unwrap();
    let respond = |body: &str, texts: &[&str]| {
        let environment = engine.admit_environment(&written(body), "talks", &Limits::default()).unwrap();
        Responder::new(environment, &[]).unwrap().respond("a", "b", &turns(texts), None)
    };
    assert_eq!(respond(TALKS, &["c"]), Response::Message("Go on.".into()));
    assert_eq!(respond(TALKS, &["c", "Go on.", "de", "Go on.", "fgh"]), Response::End(Some(1.0)));
    assert_eq!(respond(TALKS, &["c", "Go on.", "de", "Go on.", "fg"]), Response::End(Some(0.0)));
    assert_eq!(respond("(call $over)", &["c"]), Response::End(None));
}

#[test]
fn an_answer_ends_with_the_step_and_its_start_counts() {
    let engine = Engine::new().unwrap();
    let limits = Limits { environment_seconds: 3_600.0, ..Limits::default() };
    let slow = engine.admit_environment(&written("(loop $on (br $on)) (unreachable)"), "slow", &limits).unwrap();
    let mut responder = Responder::new(slow, &[]).unwrap();
    for _ in 0..2 {
        let end = Instant::now() + Duration::from_millis(50);
        assert!(matches!(responder.respond("a", "b", &turns(&["c"]), Some(end)), Response::Failed(_)));
    }
}

#[test]
fn what_is_no_environment_is_refused_before_anything_runs() {
    let engine = Engine::new().unwrap();
    let bytes = |name: &str| Reference::verifier(name, &root()).unwrap().open().unwrap().bytes;
    let admit = |bytes: &[u8], limits: &Limits| engine.admit_environment(bytes, "other", limits).err().unwrap();
    let refusal = admit(&bytes("grpo"), &Limits::default());
    assert!(matches!(refusal, Error::IsolatedImports { world: "environment", .. }), "{refusal}");
    assert_eq!(admit(&bytes("number"), &Limits::default()).to_string(), "`other` is no environment");
    let small = Limits { environment_component_bytes: 1_024, ..Limits::default() };
    assert!(matches!(admit(&bytes("number"), &small), Error::TooLarge { .. }));
}

#[test]
fn tokens_of_messages_get_no_gradient() {
    // The log-probabilities of a row of prompt, turn, message and turn, and the gradient of a loss of all of them.
    let learn = |replies: Vec<Range<usize>>, seed: f32| {
        let policy = tiny_policy(2, 16, 0.0);
        let prompts = Arc::new(Rows::new(vec![vec![1, 2, 3]], vec![vec![false; 3]]).unwrap());
        let ids = vec![4, 5, 6, 7, 8, 9];
        let completion = Completion { logprobs: vec![-1.0; 6], ids, replies, ..Completion::default() };
        let rows = Completions::new(prompts, vec![completion]).unwrap().rows;
        let mut scored = policy.score(&View::Policy, &rows, TapSet::default(), 1.0, true).unwrap();
        let logprobs = scored.tap(Tap::Logprob).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let seeds: Vec<f32> = (0..9).map(|at| if (5..7).contains(&at) { seed } else { 1.0 }).collect();
        let seeds = Tensor::from_vec(seeds, (1, 9), &Device::Cpu).unwrap();
        policy.backward(&mut scored, &Seeds::from_iter([(Tap::Logprob, seeds)])).unwrap();
        (logprobs, policy.parameters().gradients().to_vec1::<f32>().unwrap())
    };
    let message = || std::iter::once(2..4).collect();
    let (logprobs, gradient) = learn(message(), 0.0);
    assert_eq!(logprobs[5..7], [0.0; 2]);
    assert!(logprobs[3..5].iter().chain(&logprobs[7..]).all(|logprob| *logprob < 0.0), "{logprobs:?}");
    assert!(gradient.iter().any(|value| *value != 0.0));
    assert_eq!(learn(message(), 1_000.0).1, gradient, "whatever a loss asks of the message");
    assert_ne!(learn(Vec::new(), 1_000.0).1, gradient, "as it would of what the model wrote");
}

/// A model that ends half of its completions at any token, prompts as messages, and an environment with this body.
fn workspace(body: &str, name: &str) -> Workspace {
    let place = Workspace::new();
    let config = std::fs::read_to_string(place.path("model/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["eos_token_id"] = (0..128).chain([256]).collect::<Vec<u32>>().into();
    place.write("model/config.json", &config.to_string());
    // The model may end a turn with most bytes; the end token of texts stays the only one.
    place.write("model/generation_config.json", &json!({ "eos_token_id": [256] }).to_string());
    let prompt = |number: usize| {
        let prompt = [json!({ "role": "user", "content": format!("Say {number}{}", "!".repeat(number % 5)) })];
        json!({ "prompt": prompt, "answer": "x" })
    };
    place.write_lines("data.jsonl", (0..8).map(prompt));
    let component = manifested(name, written(body), json!({ "world": "environment", "shape": "turns" }));
    std::fs::write(place.path("environment.wasm"), component).unwrap();
    place
}

/// The settings of a small run in such a folder.
fn settings(place: &Workspace, method: &str) -> Vec<String> {
    let settings =
        ["data.max-length=140", "method.completions=4", "train.steps=3", "train.batch=4", "train.rate=0.001"];
    let own = [format!("method.use={method}"), place.set("environment.use", "environment.wasm")];
    settings.map(str::to_owned).into_iter().chain(own).collect()
}

/// Trains with an environment of this body under further settings.
fn train(body: &str, name: &str, more: &[&str]) -> Result<Workspace, tunebox_training::Error> {
    let place = workspace(body, name);
    let settings = settings(&place, "grpo");
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.train(name, &settings).map(|_| place)
}
