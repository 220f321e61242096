//! The first step on a real model beside TRL's.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, json};
use tunebox_compute::precision::Compute;
use tunebox_model::Slice;

use super::{batch, session, with};
use crate::support::fixed_completions::FixedCompletions;
use crate::support::golden::root;
use crate::support::golden_rows::metric;

/// What `peers/trl_grpo.py` wrote.
#[derive(Deserialize)]
struct Peer {
    sets: Vec<FixedSet>,
    longest: u32,
    runs: Vec<PeerRun>,
}

/// Ids of prompts and of the completions of each, with their rewards.
#[derive(Deserialize)]
struct FixedSet {
    prompts: Vec<Vec<u32>>,
    completions: Vec<Vec<Vec<u32>>>,
    rewards: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PeerRun {
    set: usize,
    loss_type: String,
    beta: f64,
    loss: f64,
    gradient_norm: f64,
    kl: Option<f64>,
    compute: Compute,
}

/// What the first step of a run reports.
struct FirstStep {
    loss: f64,
    gradient_norm: f64,
    kl: f64,
}

impl Peer {
    fn parse() -> Self {
        let text = std::fs::read_to_string(root().join("tests/golden/methods/trl_grpo.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The same step by the component, in the number format of the peer's run.
    fn first_step(&self, run: &PeerRun, slice: Slice) -> FirstStep {
        let folder =
            |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("absent `{name}`: it is not set")));
        let (model, adapter) = (folder("TUNEBOX_PEER_MODEL"), folder("TUNEBOX_PEER_ADAPTER"));
        let set = &self.sets[run.set];
        let (completions, rewards) = (set.completions.concat(), set.rewards.concat());
        let train_state = FixedCompletions::train_state(&model, &adapter, run.compute, slice, &completions, &rewards);
        let settings = json!({
            "completions": 2, "max-tokens": self.longest, "loss": run.loss_type.replace('_', "-"), "beta": run.beta,
        });
        let mut session = session("grpo", &with(&Map::new(), settings), train_state).unwrap();
        let report = session.step(batch(set.prompts.clone())).unwrap();
        let gradient_norm = session.train_state().policy.parameters().gradient_norm().unwrap();
        let kl = if run.beta > 0.0 { metric(&report, "kl") } else { 0.0 };
        FirstStep { loss: metric(&report, "loss"), gradient_norm, kl }
    }
}

/// Needs the model and the adapter that the script was given: TUNEBOX_PEER_MODEL, TUNEBOX_PEER_ADAPTER.
#[test]
#[ignore = "needs a real model and the adapter of `peers/trl_grpo.py`"]
fn the_first_step_on_a_real_model_is_that_of_trl() {
    let peer = Peer::parse();
    for (number, run) in peer.runs.iter().filter(|run| run.compute == Compute::F32).enumerate() {
        let FirstStep { loss, gradient_norm, kl } = peer.first_step(run, [Slice::Whole, Slice::Rows(1)][number % 2]);
        let what = format!("set {}, {} β {}", run.set, run.loss_type, run.beta);
        assert!((loss - run.loss).abs() <= 1e-4, "{what}: loss {loss}, TRL {}", run.loss);
        assert!(
            (gradient_norm - run.gradient_norm).abs() <= 1e-3 * run.gradient_norm,
            "{what}: norm {gradient_norm}, TRL {}",
            run.gradient_norm
        );
        if let Some(wanted) = run.kl.filter(|_| run.beta > 0.0) {
            assert!((kl - wanted).abs() <= 1e-4, "{what}: kl {kl}, TRL {wanted}");
        }
    }
}

/// Needs what the test above needs. Compares step by step, because a single step in which bf16 changes much outweighs all
/// others in a mean. Losses are not compared: on fresh completions they are 0 but for the divergence.
#[test]
#[ignore = "needs a real model and the adapter of `peers/trl_grpo.py`"]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn bf16_changes_the_first_step_on_a_real_model_no_more_than_in_trl() {
    let peer = Peer::parse();
    let in_f32 = |bf16: &PeerRun| {
        let same = |run: &&PeerRun| (run.set, &run.loss_type, run.beta) == (bf16.set, &bf16.loss_type, bf16.beta);
        peer.runs.iter().filter(|run| run.compute == Compute::F32).find(same).unwrap()
    };
    let change = |f32: f64, bf16: f64| (bf16 / f32 - 1.0).abs();
    let (mut steps, mut farther) = (0, [0; 2]);
    for run in peer.runs.iter().filter(|run| run.compute == Compute::Bf16) {
        let (exact, [ours_exact, ours]) =
            (in_f32(run), [in_f32(run), run].map(|run| peer.first_step(run, Slice::Whole)));
        let norms =
            [change(ours_exact.gradient_norm, ours.gradient_norm), change(exact.gradient_norm, run.gradient_norm)];
        let divergences = [change(ours_exact.kl, ours.kl), change(exact.kl.unwrap(), run.kl.unwrap())];
        println!("set {}: gradient norm {norms:.4?}, divergence {divergences:.4?} (ours, TRL's)", run.set);
        steps += 1;
        farther.iter_mut().zip([norms, divergences]).for_each(|(count, [ours, trl])| *count += usize::from(ours > trl));
    }
    let [norms, divergences] = farther;
    assert!(norms <= steps / 2, "gradient norms lie farther from those in f32 than TRL's in {norms} of {steps} steps");
    assert!(divergences <= steps / 2, "so do divergences in {divergences} of {steps} steps");
}
