//! Tests that generation agrees with scoring, and with itself in other batches.

mod devices;
mod turns;

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};

use super::{Completion, Sampling, generate};
use crate::adapter::AdapterSettings;
use crate::configuration::Configuration;
use crate::policy::{Policy, PolicySettings, View};
use crate::tiny::{self, logprobs_of};

fn policy(configuration: Configuration) -> Policy {
    let model = tiny::model(configuration, 1);
    Policy::new(model, &AdapterSettings::default(), PolicySettings::default()).unwrap()
}

fn endless(configuration: Configuration) -> Configuration {
    Configuration { eos: Vec::new(), ..configuration }
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![5, 6, 7, 8, 9, 10], vec![11], vec![12, 13, 14], vec![5, 6, 7, 8, 9, 10]]
}

fn sampling() -> Sampling {
    Sampling { max_tokens: 12, seed: 7, ..Sampling::default() }
}

fn run(policy: &Policy, prompts: &[Vec<u32>], sampling: &Sampling) -> Vec<Completion> {
    generate(policy, &View::Policy, prompts, sampling, &mut |_, _| true).unwrap()
}

#[test]
fn the_cache_gives_the_log_probabilities_of_scoring_in_every_family() {
    for (name, configuration) in tiny::families() {
        let policy = policy(endless(configuration));
        let sampling = Sampling { temperature: 0.7, ..sampling() };
        for (prompt, completion) in prompts().iter().zip(run(&policy, &prompts(), &sampling)) {
            let scored = logprobs_of(&policy, &View::Policy, &tiny::answer(prompt, &completion.ids), 0.7);
            assert_eq!(completion.ids.len(), 12);
            for (written, scored) in completion.logprobs.iter().zip(&scored[prompt.len()..]) {
                assert!((written - scored).abs() < 1e-5, "{name}: {written} written, {scored} scored");
            }
        }
    }
}

#[test]
fn allowed_tokens_are_those_of_the_view_that_samples() {
    let mut policy = policy(endless(tiny::llama()));
    let vocabulary = policy.model().configuration.vocabulary as u32;
    let narrower = Configuration { vocabulary: vocabulary as usize - 1, ..tiny::llama() };
    policy.add_teacher("narrower", tiny::model(narrower, 2)).unwrap();
    let allowing = |ids: &[u32]| Sampling { allowed: Some(ids.to_vec()), ..sampling() };
    let written = run(&policy, &prompts(), &allowing(&[3, vocabulary - 1]));
    assert!(written.iter().flat_map(|completion| &completion.ids).all(|id| [3, vocabulary - 1].contains(id)));
    let teacher = View::Teacher("narrower".into());
    let of_teacher = |ids: &[u32]| generate(&policy, &teacher, &prompts(), &allowing(ids), &mut |_, _| true);
    assert!(of_teacher(&[3, vocabulary - 1]).unwrap_err().to_string().contains("the allowed tokens"));
    assert!(of_teacher(&[]).unwrap_err().to_string().contains("no token is allowed"));
    assert!(of_teacher(&[3]).unwrap().iter().all(|completion| completion.ids.iter().all(|id| *id == 3)));
}

#[test]
fn a_completion_that_outgrows_the_short_factors_goes_on_with_the_long_ones_and_other_keys() {
    const MOST: usize = 10;
    let of = |most| policy(endless(tiny::phi3(most)));
    // The same model, whose short factors serve one token more.
    let (policy, further) = (of(MOST), of(MOST + 1));
    let sampling = Sampling { temperature: 1.0, ..sampling() };
    let written = run(&policy, &prompts(), &sampling);
    for (number, (prompt, completion)) in prompts().iter().zip(&written).enumerate() {
        let alone = Sampling { first_prompt: number as u64, ..sampling.clone() };
        assert_eq!(&run(&policy, std::slice::from_ref(prompt), &alone)[0], completion);
        let scored = |policy: &Policy, ids: &[u32]| logprobs_of(policy, &View::Policy, &tiny::answer(prompt, ids), 1.0);
        let (short, long) =
            (scored(&further, &completion.ids[..=MOST - prompt.len()]), scored(&policy, &completion.ids));
        for at in prompt.len()..long.len() {
            // The token at MOST is drawn by the MOST tokens before it; a row that holds it is longer than that.
            let wanted = if at <= MOST { short[at] } else { long[at] };
            let found = completion.logprobs[at - prompt.len()];
            assert!((found - wanted).abs() < 1e-5, "token {at}: {found} written, {wanted} scored");
        }
    }
}

#[test]
fn completions_do_not_depend_on_batching() {
    let policy = policy(tiny::gemma3());
    let sampling = Sampling { completions: 3, ..sampling() };
    let together = run(&policy, &prompts(), &sampling);
    for (number, prompt) in prompts().into_iter().enumerate() {
        let alone = Sampling { first_prompt: number as u64, ..sampling.clone() };
        let alone = run(&policy, &[prompt], &alone);
        for (alone, together) in alone.iter().zip(&together[number * 3..]) {
            assert_eq!(alone.ids, together.ids);
            assert_eq!(alone.finished, together.finished);
        }
    }
}

#[test]
fn log_probabilities_do_not_depend_on_batching_either() {
    let policy = policy(endless(tiny::qwen2()));
    let sampling = Sampling { completions: 5, temperature: 0.8, top_k: 9, top_p: 0.9, ..sampling() };
    let together = run(&policy, &prompts(), &sampling);
    for (number, prompt) in prompts().into_iter().enumerate() {
        let alone = Sampling { first_prompt: number as u64, ..sampling.clone() };
        for (alone, together) in run(&policy, &[prompt], &alone).iter().zip(&together[number * 5..]) {
            assert_eq!(alone.ids, together.ids);
            let far = alone.logprobs.iter().zip(&together.logprobs).any(|(one, other)| (one - other).abs() > 1e-5);
            assert!(!far, "{:?} alone, {:?} together", alone.logprobs, together.logprobs);
        }
    }
}

#[test]
fn a_completion_ends_where_the_models_positions_end_whatever_its_neighbors() {
    let short = Configuration { max_positions: 10, ..endless(tiny::llama()) };
    let found = run(&policy(short.clone()), &prompts(), &sampling());
    assert_eq!(found.iter().map(|completion| completion.ids.len()).collect::<Vec<_>>(), vec![4, 9, 7, 4]);
    let full = Configuration { max_positions: 6, ..short };
    assert!(generate(&policy(full), &View::Policy, &prompts(), &sampling(), &mut |_, _| true).is_err());
}

#[test]
fn more_completions_than_a_batch_holds_are_all_written() {
    let policy = policy(tiny::llama());
    let many = Sampling { completions: 40, max_tokens: 3, ..sampling() };
    let few = Sampling { completions: 2, max_tokens: 3, ..sampling() };
    let (many, few) = (run(&policy, &prompts(), &many), run(&policy, &prompts(), &few));
    assert_eq!(many.len(), 160);
    assert_eq!(many[40].ids, few[2].ids);
    assert_eq!(many[41].ids, few[3].ids);
}

#[test]
fn the_same_seed_gives_the_same_and_another_seed_another_text() {
    let policy = policy(endless(tiny::llama()));
    let first = run(&policy, &prompts(), &sampling());
    assert_eq!(first, run(&policy, &prompts(), &sampling()));
    assert_ne!(first, run(&policy, &prompts(), &Sampling { seed: 8, ..sampling() }));
}

#[test]
fn completions_of_one_prompt_differ() {
    let policy = policy(endless(tiny::llama()));
    let found = run(&policy, &prompts()[..1], &Sampling { completions: 2, ..sampling() });
    assert_ne!(found[0].ids, found[1].ids);
}

#[test]
fn temperature_zero_takes_the_likeliest_token_of_scoring() {
    let policy = policy(endless(tiny::qwen2()));
    let found = run(&policy, &prompts(), &Sampling { temperature: 0.0, ..sampling() });
    for (prompt, completion) in prompts().iter().zip(found) {
        let rows = tiny::answer(prompt, &completion.ids);
        let scored = policy.score(&View::Policy, &rows, TapSet::of(&[Tap::TopOne]), 1.0, false).unwrap();
        let first_choice = tiny::numbers(scored.tap(Tap::TopOne).unwrap());
        assert!(first_choice[prompt.len()..].iter().all(|value| *value == 1.0));
    }
}

#[test]
fn an_end_token_finishes_a_completion_and_stays_in_it() {
    let everything = (0..40).collect();
    let policy = policy(Configuration { eos: everything, ..tiny::llama() });
    for completion in run(&policy, &prompts(), &sampling()) {
        assert!(completion.finished);
        assert_eq!(completion.ids.len(), 1);
    }
}

#[test]
fn the_limit_of_tokens_cuts_a_completion_off_unfinished() {
    let policy = policy(endless(tiny::llama()));
    for completion in run(&policy, &prompts(), &sampling()) {
        assert!(!completion.finished);
        assert_eq!((completion.ids.len(), completion.logprobs.len()), (12, 12));
    }
}

#[test]
fn a_listener_can_end_one_completion() {
    let policy = policy(endless(tiny::llama()));
    let mut heard = 0;
    let mut listen = |number: usize, _| {
        heard += usize::from(number == 1);
        !(number == 1 && heard == 4)
    };
    let found = generate(&policy, &View::Policy, &prompts(), &sampling(), &mut listen).unwrap();
    assert_eq!(found.iter().map(|completion| completion.ids.len()).collect::<Vec<_>>(), vec![12, 4, 12, 12]);
}

#[test]
fn an_empty_prompt_is_an_error() {
    let policy = policy(tiny::llama());
    assert!(generate(&policy, &View::Policy, &[Vec::new()], &sampling(), &mut |_, _| true).is_err());
}

#[test]
fn stop_texts_without_a_tokenizer_are_an_error() {
    let policy = policy(tiny::llama());
    let sampling = Sampling { stop: vec!["end".into()], ..sampling() };
    assert!(generate(&policy, &View::Policy, &prompts(), &sampling, &mut |_, _| true).is_err());
}

/// A policy with a tokenizer of words: token 7 is `w7`.
fn speaking() -> Policy {
    let folder = tempfile::tempdir().unwrap();
    let words: serde_json::Map<String, serde_json::Value> = (0..40).map(|id| (format!("w{id}"), id.into())).collect();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "w0" },
    });
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let mut model = Arc::into_inner(tiny::model(endless(tiny::llama()), 1)).unwrap();
    model.tokenizer = Some(crate::tokenizer::Tokenizer::from_folder(folder.path()).unwrap());
    Policy::new(Arc::new(model), &AdapterSettings::default(), PolicySettings::default()).unwrap()
}

#[test]
fn a_stop_text_finishes_a_completion_where_it_appears_even_across_tokens() {
    let policy = speaking();
    let whole = run(&policy, &prompts(), &sampling());
    let stop = format!("w{} w{}", whole[0].ids[3], whole[0].ids[4]);
    let cut = run(&policy, &prompts(), &Sampling { stop: vec![stop], ..sampling() });
    assert_eq!(cut[0].ids, whole[0].ids[..5]);
    assert!(cut[0].finished);
}
