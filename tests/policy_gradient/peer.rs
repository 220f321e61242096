//! The first step on a real model beside TRL's.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, json};
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
}

/// Needs the model and the adapter that the script was given: TUNEBOX_PEER_MODEL, TUNEBOX_PEER_ADAPTER.
#[test]
#[ignore = "needs a real model and the adapter of `peers/trl_grpo.py`"]
fn the_first_step_on_a_real_model_is_that_of_trl() {
    let folder =
        |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("absent `{name}`: it is not set")));
    let text = std::fs::read_to_string(root().join("tests/golden/methods/trl_grpo.json")).unwrap();
    let peer: Peer = serde_json::from_str(&text).unwrap();
    for (number, run) in peer.runs.iter().enumerate() {
        let slice = [Slice::Whole, Slice::Rows(1)][number % 2];
        let (model, adapter) = (folder("TUNEBOX_PEER_MODEL"), folder("TUNEBOX_PEER_ADAPTER"));
        let (completions, rewards) = (peer.completions.concat(), peer.rewards.concat());
        let train_state = FixedCompletions::train_state(&model, &adapter, slice, &completions, &rewards);
        let settings = json!({
            "completions": 2, "max-tokens": peer.longest, "loss": run.loss_type.replace('_', "-"), "beta": run.beta,
        });
        let mut session = session("grpo", &with(&Map::new(), settings), train_state).unwrap();
        let report = session.step(batch(peer.prompts.clone())).unwrap();
        let norm = session.train_state().policy.parameters().gradient_norm().unwrap();
        let (loss, what) = (metric(&report, "loss"), format!("{} β {}", run.loss_type, run.beta));
        assert!((loss - run.loss).abs() <= 1e-4, "{what}: loss {loss}, TRL {}", run.loss);
        assert!(
            (norm - run.gradient_norm).abs() <= 1e-3 * run.gradient_norm,
            "{what}: norm {norm}, TRL {}",
            run.gradient_norm
        );
        if let Some(kl) = run.kl.filter(|_| run.beta > 0.0) {
            assert!((metric(&report, "kl") - kl).abs() <= 1e-4, "{what}: kl {}, TRL {kl}", metric(&report, "kl"));
        }
    }
}
