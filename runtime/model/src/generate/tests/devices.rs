//! Tests of generation on each device: against scoring on the same device, and in `f32` against the tokens of the CPU.
//!
//! Tests of accelerators are ignored by default; `tests/optional` runs them where the device is.

use tunebox_compute::Device;
use tunebox_compute::precision::Compute;

use super::{Sampling, endless, prompts, run, sampling};
use crate::adapter::AdapterSettings;
use crate::configuration::Configuration;
use crate::policy::{Policy, PolicySettings, View};
use crate::tiny;

/// The device and the type of activations of a test, and the largest allowed difference of log-probabilities.
struct On {
    device: Device,
    compute: Compute,
    tolerance: f32,
}

impl On {
    fn at(name: &str, compute: Compute, tolerance: f32) -> Self {
        Self { device: tiny::device(name), compute, tolerance }
    }

    fn policy(&self, configuration: Configuration) -> Policy {
        let model = tiny::model_on(endless(configuration), 1, &self.device, self.compute);
        Policy::new(model, &AdapterSettings::default(), PolicySettings::default()).unwrap()
    }

    fn near(&self, what: &str, written: &[f32], scored: &[f32]) {
        assert_eq!(written.len(), scored.len(), "{what}");
        for (written, scored) in written.iter().zip(scored) {
            assert!((written - scored).abs() < self.tolerance, "{what}: {written} written, {scored} scored");
        }
    }
}

/// The log-probability of each token of a row.
fn scored(policy: &Policy, ids: &[u32], temperature: f32) -> Vec<f32> {
    tiny::logprobs_of(policy, &View::Policy, &tiny::answer(&[], ids), temperature)
}

/// Completions are long enough for several pages of the cache and share a prompt of more than one; none crosses from
/// short to long LongRoPE factors.
fn the_cache_gives_the_log_probabilities_of_scoring_in_every_family(on: &On) {
    let prompts = vec![(0..70).map(|at| at * 7 % 40).collect::<Vec<u32>>(), vec![11], vec![5, 6, 7]];
    for (name, configuration) in tiny::dense() {
        let policy = on.policy(Configuration { max_positions: configuration.max_positions.max(160), ..configuration });
        let sampling = Sampling { temperature: 0.7, max_tokens: 60, completions: 2, ..sampling() };
        for (number, completion) in run(&policy, &prompts, &sampling).into_iter().enumerate() {
            let prompt = &prompts[number / 2];
            let ids = [prompt.as_slice(), &completion.ids].concat();
            assert_eq!(completion.ids.len(), 60);
            on.near(name, &completion.logprobs, &scored(&policy, &ids, 0.7)[prompt.len()..]);
        }
    }
}

fn a_completion_that_outgrows_the_short_factors_goes_on_with_the_long_ones(on: &On) {
    const MOST: usize = 10;
    let policy = on.policy(tiny::phi3(MOST));
    let written = run(&policy, &prompts(), &Sampling { temperature: 1.0, ..sampling() });
    for (prompt, completion) in prompts().iter().zip(&written) {
        let ids = [prompt.as_slice(), &completion.ids].concat();
        let (from, scored) = ((MOST + 1).max(prompt.len()), scored(&policy, &ids, 1.0));
        on.near("long", &completion.logprobs[from - prompt.len()..], &scored[from..]);
    }
}

/// Checks every way of sampling, only in `f32`: in 16 bits, rounding changes which tokens are chosen.
fn tokens_are_those_of_the_cpu(on: &On) {
    let cpu = On::at("cpu", Compute::F32, 0.0);
    let plain = Sampling { completions: 3, ..sampling() };
    let ways = [
        plain.clone(),
        Sampling { temperature: 0.0, ..plain.clone() },
        Sampling { top_k: 9, ..plain.clone() },
        Sampling { top_p: 0.8, temperature: 0.6, ..plain.clone() },
        Sampling { min_p: 0.3, ..plain.clone() },
        Sampling { top_k: 20, top_p: 0.9, min_p: 0.05, ..plain },
    ];
    let policies = [&cpu, on].map(|place| place.policy(tiny::gemma3()));
    for way in &ways {
        let [expected, found] = [&policies[0], &policies[1]].map(|policy| run(policy, &prompts(), way));
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected.ids, found.ids, "{way:?}");
            on.near("chosen", &found.logprobs, &expected.logprobs);
        }
    }
}

tiny::on_each_device! {
    [
        the_cache_gives_the_log_probabilities_of_scoring_in_every_family
        a_completion_that_outgrows_the_short_factors_goes_on_with_the_long_ones
    ]
    cpu("cpu", Compute::F32, 1e-5) [];
    cpu_bf16("cpu", Compute::Bf16, 0.1) [];
    cuda_f32("cuda", Compute::F32, 1e-4) ["needs cuda"];
    cuda_bf16("cuda", Compute::Bf16, 0.1) ["needs cuda"];
    metal_f32("metal", Compute::F32, 1e-4) ["needs metal"];
    metal_bf16("metal", Compute::Bf16, 0.1) ["needs metal"];
}

fn in_f32(name: &str) {
    tokens_are_those_of_the_cpu(&On::at(name, Compute::F32, 1e-4));
}

#[test]
#[ignore = "needs cuda"]
fn cuda_f32_tokens_are_those_of_the_cpu() {
    in_f32("cuda");
}

#[test]
#[ignore = "needs metal"]
fn metal_f32_tokens_are_those_of_the_cpu() {
    in_f32("metal");
}
