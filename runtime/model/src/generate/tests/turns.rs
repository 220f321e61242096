//! Tests of completions that go on after replies: they agree with scoring, and with themselves in other batches.

use super::*;
use crate::generate::{BATCH, Reply, Turns, generate_turns};
use crate::rows::Rows;
use crate::stream::{Patch, Site};

/// The most tokens of a completion, those of replies included.
const ROOM: usize = 40;

/// A model of which half of the tokens end a completion.
fn ending(configuration: Configuration) -> Policy {
    policy(Configuration { eos: (0..20).collect(), ..configuration })
}

/// Replies twice with tokens that depend on the completion, then ends it with a reward that does.
fn reply(completion: &Completion) -> Reply {
    let last = *completion.ids.last().unwrap();
    match completion.replies.len() {
        2 => Reply::End(Some(last as f32)),
        turns => Reply::Tokens((0..2 + turns as u32).map(|place| (last + 7 * place) % 40).collect()),
    }
}

fn run_turns(policy: &Policy, prompts: &[Vec<u32>], sampling: &Sampling, room: usize) -> Vec<Completion> {
    let turns = Turns { room, reply: &mut |_, completion| Ok(reply(completion)) };
    generate_turns(policy, &View::Policy, prompts, sampling, turns).unwrap()
}

/// The row of a completion and its prompt, whose targets are what the model wrote.
fn row_of(prompt: &[u32], completion: &Completion) -> Arc<Rows> {
    let ids = [prompt, &completion.ids].concat();
    let is_own = |at: usize| at >= prompt.len() && !completion.is_reply(at - prompt.len());
    let marks = (0..ids.len()).map(is_own).collect();
    Arc::new(Rows::new(vec![ids], vec![marks]).unwrap())
}

/// Checks that each log-probability of the model's own tokens is that of scoring the row, and each other one 0.
fn check_scores(policy: &Policy, prompt: &[u32], completion: &Completion, name: &str) {
    let scored = logprobs_of(policy, &View::Policy, &row_of(prompt, completion), 1.0);
    assert_eq!(completion.logprobs.len(), completion.ids.len());
    for (at, (written, scored)) in completion.logprobs.iter().zip(&scored[prompt.len()..]).enumerate() {
        assert!((written - scored).abs() < 1e-5, "{name}: {written} written, {scored} scored at {at}");
        assert_eq!(completion.is_reply(at), *written == 0.0);
    }
}

#[test]
fn turns_have_the_log_probabilities_of_scoring_in_every_family() {
    for (name, configuration) in tiny::families() {
        let policy = ending(configuration);
        let written = run_turns(&policy, &prompts(), &sampling(), ROOM);
        assert!(written.iter().any(|completion| completion.replies.len() == 2), "{name}: {written:?}");
        for (prompt, completion) in prompts().iter().zip(&written) {
            check_scores(&policy, prompt, completion, name);
        }
    }
}

#[test]
fn patches_of_answers_leave_replies_as_they_are() {
    let mut policy = ending(tiny::llama());
    let wanted = run_turns(&policy, &prompts(), &sampling(), ROOM);
    let vector: Vec<f32> = (0..policy.model().configuration.hidden).map(|at| (at % 3) as f32 - 1.0).collect();
    policy.patch(Patch::add(vec![0, 1], Site::ResidualAfter, &vector, 0.7, true).unwrap()).unwrap();
    let written = run_turns(&policy, &prompts(), &sampling(), ROOM);
    assert_ne!(written, wanted);
    assert!(written.iter().any(|completion| !completion.replies.is_empty()));
    for (prompt, completion) in prompts().iter().zip(&written) {
        check_scores(&policy, prompt, completion, "patched");
    }
}

#[test]
fn turns_do_not_depend_on_batching() {
    let policy = ending(tiny::gemma3());
    let sampling = Sampling { completions: 12, ..sampling() };
    let together = run_turns(&policy, &prompts(), &sampling, ROOM);
    assert!(together.len() > BATCH, "more than one batch");
    for (number, prompt) in prompts().into_iter().enumerate() {
        let alone = Sampling { first_prompt: number as u64, ..sampling.clone() };
        let alone = run_turns(&policy, &[prompt], &alone, ROOM);
        for (alone, together) in alone.iter().zip(&together[number * 12..]) {
            assert_eq!((&alone.ids, &alone.replies), (&together.ids, &together.replies));
            assert_eq!((alone.finished, alone.reward), (together.finished, together.reward));
        }
    }
}

#[test]
fn a_completion_without_a_reply_is_that_of_plain_generation() {
    let policy = ending(tiny::qwen2());
    let turns = Turns { room: 12, reply: &mut |_, _| Ok(Reply::End(None)) };
    let ended = generate_turns(&policy, &View::Policy, &prompts(), &sampling(), turns).unwrap();
    assert_eq!(ended, run(&policy, &prompts(), &sampling()));
    let turns = Turns { room: 12, reply: &mut |_, _| Ok(Reply::Cut) };
    let cut = generate_turns(&policy, &View::Policy, &prompts(), &sampling(), turns).unwrap();
    assert!(cut.iter().all(|completion| !completion.finished && completion.reward.is_none()));
}

#[test]
fn the_model_writes_the_last_token_and_no_more_than_it_may() {
    let policy = ending(tiny::llama());
    for (most, room) in [(5, 40), (12, 9), (12, 40), (1, 40)] {
        let sampling = Sampling { max_tokens: most, completions: 8, ..sampling() };
        for completion in run_turns(&policy, &prompts(), &sampling, room) {
            assert!(completion.own_tokens() <= most && completion.ids.len() <= room, "{completion:?}");
            assert!(!completion.last_turn().is_empty(), "{completion:?}");
            assert_eq!(completion.finished, completion.reward.is_some());
        }
    }
}

#[test]
fn a_reply_ends_where_the_models_positions_end() {
    let policy = ending(Configuration { max_positions: 14, ..tiny::llama() });
    let written = run_turns(&policy, &prompts(), &Sampling { completions: 8, ..sampling() }, 1_000);
    assert!(written.iter().any(|completion| !completion.replies.is_empty()));
    for (number, completion) in written.iter().enumerate() {
        assert!(prompts()[number / 8].len() + completion.ids.len() <= 14);
    }
}

#[test]
fn a_completion_that_outgrows_the_short_factors_in_a_reply_scores_as_it_was_written() {
    let policy = ending(tiny::phi3(10));
    let written = run_turns(&policy, &prompts(), &Sampling { completions: 8, ..sampling() }, ROOM);
    let grown = written.iter().enumerate().filter(|(number, completion)| {
        let prompt = prompts()[number / 8].len();
        completion.replies.iter().any(|reply| (reply.start..reply.end).contains(&(10 - prompt.min(10))))
    });
    assert!(grown.count() > 0, "no reply crosses the border");
    for (number, completion) in written.iter().enumerate() {
        let prompt = &prompts()[number / 8];
        let scored = logprobs_of(&policy, &View::Policy, &row_of(prompt, completion), 1.0);
        // A row that is longer than the border is scored with the long factors alone.
        for at in 10_usize.saturating_sub(prompt.len()) + 1..completion.ids.len() {
            let (written, scored) = (completion.logprobs[at], scored[prompt.len() + at]);
            assert!((written - scored).abs() < 1e-5, "{written} written, {scored} scored at {at}");
        }
    }
}

#[test]
fn a_reply_outside_of_the_vocabulary_and_a_failed_one_are_errors() {
    let policy = ending(tiny::llama());
    let mut tokens = |_: usize, _: &Completion| Ok(Reply::Tokens(vec![1_000_000]));
    let turns = Turns { room: ROOM, reply: &mut tokens };
    let error = generate_turns(&policy, &View::Policy, &prompts(), &sampling(), turns).unwrap_err();
    assert!(error.to_string().contains("the reply holds token `1000000`"), "{error}");
    let mut fails = |_: usize, _: &Completion| Err(crate::error::Error::Argument("no".into()));
    let turns = Turns { room: ROOM, reply: &mut fails };
    assert!(generate_turns(&policy, &View::Policy, &prompts(), &sampling(), turns).is_err());
}
