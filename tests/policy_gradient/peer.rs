//! The first step on a real model beside TRL's.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, json};
use tunebox_compute::precision::Compute;
use tunebox_model::Slice;

use super::{batch, metric, root, session, with};
use crate::support::fixed_completions::FixedCompletions;

/// What `peers/trl_grpo.py` wrote.
#[derive(Deserialize)]
struct Peer {
    prompts: Vec<Vec<u32>>,
    completions: Vec<Vec<Vec<u32>>>,
    rewards: Vec<Vec<f32>>,
    longest: u32,
    runs: Vec<PeerRun>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PeerRun {
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
        let (completions, rewards) = (self.completions.concat(), self.rewards.concat());
        let train_state = FixedCompletions::train_state(&model, &adapter, run.compute, slice, &completions, &rewards);
        let settings = json!({
            "completions": 2, "max-tokens": self.longest, "loss": run.loss_type.replace('_', "-"), "beta": run.beta,
        });
        let mut session = session("grpo", &with(&Map::new(), settings), train_state).unwrap();
        let report = session.step(batch(self.prompts.clone())).unwrap();
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
        let what = format!("{} β {}", run.loss_type, run.beta);
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

/// How far the second numbers lie from the first ones in total, as a share of the first ones.
fn apart(pairs: &[(f64, f64)]) -> f64 {
    pairs.iter().map(|(a, b)| (a - b).abs()).sum::<f64>() / pairs.iter().map(|(a, _)| a.abs()).sum::<f64>()
}

/// Needs what the test above needs. Losses are not compared: on fresh completions they are 0 but for the divergence.
#[test]
#[ignore = "needs a real model and the adapter of `peers/trl_grpo.py`"]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn bf16_changes_the_first_step_on_a_real_model_no_more_than_in_trl() {
    let peer = Peer::parse();
    let formats = |compute| peer.runs.iter().filter(move |run| run.compute == compute);
    let both: Vec<_> = formats(Compute::F32).zip(formats(Compute::Bf16)).collect();
    let ours: Vec<_> =
        both.iter().map(|(f32, bf16)| [*f32, *bf16].map(|run| peer.first_step(run, Slice::Whole))).collect();
    let norms = apart(&ours.iter().map(|[f32, bf16]| (f32.gradient_norm, bf16.gradient_norm)).collect::<Vec<_>>());
    let trl_norms = apart(&both.iter().map(|(f32, bf16)| (f32.gradient_norm, bf16.gradient_norm)).collect::<Vec<_>>());
    let kl = apart(&ours.iter().map(|[f32, bf16]| (f32.kl, bf16.kl)).collect::<Vec<_>>());
    let divergence = |run: &PeerRun| run.kl.unwrap_or(0.0);
    let trl_kl = apart(&both.iter().map(|(f32, bf16)| (divergence(f32), divergence(bf16))).collect::<Vec<_>>());
    println!("gradient norm {norms:.6}, TRL {trl_norms:.6}; kl {kl:.6}, TRL {trl_kl:.6}");
    assert!(norms <= trl_norms, "gradient norms lie {norms} from those in f32, TRL's {trl_norms}");
    assert!(kl <= trl_kl, "divergences lie {kl} from those in f32, TRL's {trl_kl}");
}
