//! Passes that several ranks divide: the same bits of taps, gradients and captures for every number of ranks.

use std::sync::{Arc, Barrier, Mutex};

use tunebox_compute::fused::TapSet;
use tunebox_compute::precision::Compute;
use tunebox_compute::{Device, Tensor};

use super::captured::seeds_for;
use super::gradients::seeds;
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::decoder::EmbeddingNoise;
use crate::error::{Error, Result};
use crate::policy::{DivergenceTo, Policy, PolicySettings, Slice, TapRequest, View};
use crate::ranks::{RankGroup, Ranks};
use crate::rows::Rows;
use crate::stream::{Site, Token};
use crate::{Model, tiny};

const SITE: Site = Site::ResidualAfter;

/// What a rank sends: the purpose of the call, and the message or an error.
type Sent = (&'static str, std::result::Result<Vec<u8>, String>);

/// What all threads of a group share: their messages, and a barrier before and after they are read.
#[derive(Debug)]
struct Board {
    messages: Mutex<Vec<Sent>>,
    barrier: Barrier,
}

/// A rank that is a thread of this process.
#[derive(Debug)]
struct Thread {
    rank: usize,
    board: Arc<Board>,
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.board.messages.lock().unwrap().len()
    }

    fn gather(&self, purpose: &'static str, message: std::result::Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        self.board.messages.lock().unwrap()[self.rank] = (purpose, message);
        self.board.barrier.wait();
        let all = self.board.messages.lock().unwrap().clone();
        self.board.barrier.wait();
        assert!(all.iter().all(|(other, _)| *other == purpose), "{all:?}");
        all.into_iter().map(|(_, message)| message.map_err(Error::Argument)).collect()
    }
}

/// Runs `work` on every rank of a group of threads and returns the results in the order of the ranks.
fn on_ranks<T: Send>(count: usize, work: impl Fn(RankGroup) -> T + Sync) -> Vec<T> {
    let messages = Mutex::new(vec![("", Ok(Vec::new())); count]);
    let board = Arc::new(Board { messages, barrier: Barrier::new(count) });
    std::thread::scope(|scope| {
        let start = |rank| {
            let group = RankGroup::new(Arc::new(Thread { rank, board: Arc::clone(&board) }));
            let work = &work;
            scope.spawn(move || work(group))
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Rows of unequal lengths: answers to two prompts in turns, rows that share a short beginning, and one without a
/// target.
fn rows() -> Arc<Rows> {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for number in 0..36_u32 {
        let (prompt, length) = if number < 24 { (5 + number % 2 * 40, 20 + number * 7 % 31) } else { (3, 60 + number) };
        let row: Vec<u32> = tiny::ids(prompt, prompt).chain(tiny::ids(number + 60, length)).collect();
        targets.push((0..row.len() as u32).map(|at| number != 4 && at >= prompt && at % 3 < 2).collect());
        ids.push(row);
    }
    Arc::new(Rows::new(ids, targets).unwrap())
}

/// A model, an adapter, noise and slices.
struct Case {
    model: Arc<Model>,
    adapter: AdapterSettings,
    noise: bool,
    slice: Slice,
}

/// The bits of two rounds of scores, of two captures for learning, of the gradient of all four, and of what is
/// captured.
fn run(case: &Case, ranks: RankGroup) -> Vec<u32> {
    let settings = PolicySettings { slice: case.slice, ..PolicySettings::default() };
    let mut policy = tiny::trained(Arc::clone(&case.model), &case.adapter, settings);
    policy.set_ranks(ranks).unwrap();
    policy.set_embedding_noise(case.noise.then_some(EmbeddingNoise { alpha: 5.0, seed: 3 }));
    let rows = rows();
    let mut bits = Vec::new();
    let mut add = |tensor: &Tensor| bits.extend(tiny::bits(tensor));
    let divergence = Some(DivergenceTo { view: View::Reference, beta: 0.5 });
    for request in [TapRequest::from(TapSet::OF_ONE_HEAD), TapRequest::new(TapSet::OF_ONE_HEAD, divergence)] {
        let mut scored = policy.score(&View::Policy, &rows, request, 0.8, true).unwrap();
        scored.taps.iter().for_each(|(_, tap)| add(tap));
        policy.backward(&mut scored, &seeds(&rows)).unwrap();
    }
    for (layers, site, token) in [(vec![1, 0], Site::MlpOutput, Token::Targets), (vec![0], SITE, Token::FromEnd(1))] {
        let mut captured = policy.capture_for_learning(&rows, &layers, site, token).unwrap();
        add(&captured.values);
        let seeds = seeds_for(&captured.values);
        policy.backward_captured(&mut captured, &seeds).unwrap();
        let plain = policy.capture(&View::Policy, &rows, &layers, site, token).unwrap();
        let same = tiny::numbers(&plain) == tiny::numbers(&captured.values);
        assert_eq!(same, !case.noise && case.adapter.dropout == 0.0, "values with and without learning");
    }
    add(policy.parameters().gradients());
    add(&policy.capture(&View::Policy, &rows, &[1, 0], SITE, Token::FromEnd(1)).unwrap());
    add(&policy.next_token(&View::Reference, &rows, &[3, 9]).unwrap());
    add(&policy.divergence(&View::Policy, &View::Reference, &rows).unwrap());
    bits
}

fn check(name: &str, case: &Case) {
    let alone = run(case, RankGroup::default());
    assert!(alone.iter().filter(|bits| f32::from_bits(**bits) != 0.0).count() > 1000);
    for count in 2..=5 {
        for (rank, found) in on_ranks(count, |ranks| run(case, ranks)).into_iter().enumerate() {
            let first = found.iter().zip(&alone).position(|(one, other)| one != other);
            assert_eq!(first, None, "{name}, rank {rank} of {count}: the number at this index has other bits");
        }
    }
}

#[test]
fn every_family_has_the_same_bits_at_any_number_of_ranks() {
    for (name, configuration) in tiny::families() {
        let model = tiny::model(configuration.clone(), 1);
        let adapter = AdapterSettings { rank: 3, ..AdapterSettings::default() };
        check(name, &Case { model, adapter, noise: false, slice: Slice::Whole });
        let model = tiny::model_on(configuration, 1, &Device::Cpu, Compute::Bf16);
        let adapter = AdapterSettings { kind: AdapterKind::Dora, rank: 3, ..AdapterSettings::default() };
        check(&format!("{name} in bf16"), &Case { model, adapter, noise: false, slice: Slice::Rows(7) });
    }
}

#[test]
fn dropout_and_noise_are_those_of_the_whole_batch() {
    let adapter = AdapterSettings { rank: 3, dropout: 0.3, ..AdapterSettings::default() };
    let model = tiny::model(tiny::gemma3(), 1);
    check("dropout", &Case { model: Arc::clone(&model), adapter: adapter.clone(), noise: false, slice: Slice::Whole });
    check("both", &Case { model: Arc::clone(&model), adapter, noise: true, slice: Slice::Rows(9) });
    let adapter = AdapterSettings { rank: 3, ..AdapterSettings::default() };
    check("noise", &Case { model, adapter, noise: true, slice: Slice::Tokens(300) });
}

#[test]
fn an_error_of_one_rank_is_an_error_on_all() {
    let failed = on_ranks(3, |ranks| {
        let mut policy =
            Policy::new(tiny::model(tiny::llama(), 1), &AdapterSettings::default(), PolicySettings::default()).unwrap();
        let (rank, _) = ranks.position();
        policy.set_ranks(ranks).unwrap();
        if rank == 1 {
            policy.set_deadline(Some(std::time::Instant::now()));
        }
        policy.score(&View::Policy, &rows(), TapSet::default(), 1.0, true).map(|_| ()).unwrap_err().to_string()
    });
    assert_eq!(failed, ["the time for this call is over"; 3]);
}

#[test]
fn every_rank_computes_the_whole_gradient_of_weights_that_are_trained_themselves() {
    let adapter = AdapterSettings { kind: AdapterKind::Full, ..AdapterSettings::default() };
    check("full", &Case { model: tiny::model(tiny::llama(), 1), adapter, noise: true, slice: Slice::Rows(9) });
    let modules_to_save = vec!["embed_tokens".into()];
    let adapter = AdapterSettings { rank: 3, modules_to_save, ..AdapterSettings::default() };
    check("some", &Case { model: tiny::model(tiny::qwen2(), 1), adapter, noise: true, slice: Slice::Rows(9) });
}

#[test]
fn messages_of_any_length_arrive_whole() {
    let length = |rank: usize| [0, 7, 40 << 20][rank];
    let message = |rank: usize| (0..length(rank)).map(|at| (at * 7 + rank) as u8).collect::<Vec<u8>>();
    for all in on_ranks(3, |ranks| ranks.gather("score", Ok(message(ranks.position().0))).unwrap()) {
        assert_eq!(all.len(), 3);
        for (rank, found) in all.into_iter().enumerate() {
            assert!(found == message(rank), "the message of rank {rank}");
        }
    }
}
