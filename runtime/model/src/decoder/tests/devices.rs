//! Compares the whole decoder on every available device with the CPU: scores, gradients, readers, patches, edits and
//! files. The compute crate compares each operation alone.

use tunebox_compute::fused::{self, Tap, TapSet};
use tunebox_compute::precision::Compute;
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device};

use super::captured::seeds_for;
use super::gradients::{logprob_seeds, seeds};
use crate::adapter::{AdapterKind, AdapterSettings};
use crate::configuration::Configuration;
use crate::decoder::{self, Recompute};
use crate::edit::Role;
use crate::merge::merge;
use crate::policy::{Policy, PolicySettings, Slice, View};
use crate::stream::{Patch, Site, Token};
use crate::tiny::{self, adapter, logprobs, numbers, stir};

const CONTINUOUS: TapSet = TapSet::of(&[Tap::Entropy, Tap::LogSumSquare, Tap::MeanLogit, Tap::MeanLogprob]);

/// The device and the activation dtype of a test, and its tolerances: `number` is absolute, for single numbers;
/// `gradient` is relative to the length of each slot's gradient, or to `least` of the longest one if that is larger.
struct On {
    device: Device,
    compute: Compute,
    number: f32,
    gradient: f64,
    least: f64,
}

impl On {
    fn at(name: &str, compute: Compute, number: f32, [gradient, least]: [f64; 2]) -> Self {
        Self { device: tiny::device(name), compute, number, gradient, least }
    }

    /// Builds the same policy on the CPU in `f32` and on this device.
    fn both(&self, configuration: &Configuration, adapter: &AdapterSettings, settings: PolicySettings) -> [Policy; 2] {
        [(&Device::Cpu, Compute::F32), (&self.device, self.compute)].map(|(device, compute)| {
            let model = tiny::model_on(configuration.clone(), 1, device, compute);
            tiny::trained(model, adapter, settings)
        })
    }

    /// Asserts that numbers of the CPU and of this device differ by at most `number`.
    fn near(&self, what: &str, [wanted, found]: [Vec<f32>; 2]) {
        assert_eq!(wanted.len(), found.len(), "{what}");
        let off = tiny::largest(&wanted, &found);
        assert!(off <= self.number, "{what}: off by {off}");
        assert!(found.iter().all(|number| number.is_finite()), "{what}");
    }

    /// Asserts that the gradients of the CPU and of this device differ by at most the tolerance `gradient`.
    fn near_gradients(&self, what: &str, both: &[Policy; 2]) {
        self.gradients_within(what, both, self.gradient);
    }

    /// Asserts that the gradients of the CPU and of this device differ by at most `most`, relative to their length.
    fn gradients_within(&self, what: &str, [wanted, found]: &[Policy; 2], most: f64) {
        let gradients = |policy: &Policy| -> Vec<Vec<f32>> {
            let parameters = policy.parameters();
            let one = |slot| fused::to_host_f32(&parameters.gradient(slot).unwrap()).unwrap();
            (0..parameters.slots().len()).map(one).collect()
        };
        let (wanted_all, found_all) = (gradients(wanted), gradients(found));
        let length = |numbers: &[f32]| numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        let largest = wanted_all.iter().map(|numbers| length(numbers)).fold(0.0, f64::max);
        assert!(largest > 0.0, "{what}: nothing is learned");
        let slots = wanted.parameters().slots().iter().zip(&wanted_all).zip(&found_all);
        let off = slots.map(|((slot, wanted), found)| {
            let apart: Vec<f32> = wanted.iter().zip(found).map(|(wanted, found)| wanted - found).collect();
            // Some are exactly 0, and are measured against the others.
            let off = length(&apart) / length(wanted).max(self.least * largest);
            // Short ones may be rounded a lot, and are not nothing.
            let missing = length(found) == 0.0 && length(wanted) > 1e-6 * largest;
            let off = if missing { f64::INFINITY } else { off };
            (off, format!("{}: {off:.1e} of {:.1e}", slot.name, length(wanted) / largest))
        });
        let off: Vec<(f64, String)> = off.collect();
        assert!(off.iter().all(|(off, _)| *off <= most), "{what}: {off:#?}");
    }
}

/// Scores the rows of `tiny::rows` and runs the backward pass. Returns all taps.
fn learn(policy: &Policy) -> Vec<f32> {
    let rows = tiny::rows();
    let mut scored = policy.score(&View::Policy, &rows, CONTINUOUS, 0.8, true).unwrap();
    policy.backward(&mut scored, &seeds(&rows)).unwrap();
    scored.taps.iter().flat_map(|(_, tap)| numbers(tap)).collect()
}

fn every_family_and_kind_learns_alike(on: &On) {
    for (name, configuration) in tiny::dense() {
        for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
            let both = on.both(&configuration, &adapter(kind), PolicySettings::default());
            let what = format!("{name}, {kind:?}");
            on.near(&what, [&both[0], &both[1]].map(learn));
            on.near_gradients(&what, &both);
        }
    }
}

fn a_loss_of_log_probabilities_alone_learns_alike(on: &On) {
    let both = on.both(&tiny::llama(), &adapter(AdapterKind::Lora), PolicySettings::default());
    for policy in &both {
        let mut scored = policy.score(&View::Policy, &tiny::rows(), TapSet::default(), 1.0, true).unwrap();
        policy.backward(&mut scored, &logprob_seeds()).unwrap();
    }
    // Nothing cancels here: no slot is off by much more than its numbers are rounded.
    on.gradients_within("log-probabilities", &both, on.gradient.min(0.05));
}

fn dropout_slices_and_what_is_recomputed_are_the_same(on: &On) {
    let dropped = AdapterSettings { dropout: 0.3, ..adapter(AdapterKind::Lora) };
    let recomputed = PolicySettings { recompute: Recompute::Blocks, ..PolicySettings::default() };
    let sliced = PolicySettings { slice: Slice::Rows(1), ..PolicySettings::default() };
    for (what, settings) in [("whole", PolicySettings::default()), ("recomputed", recomputed), ("sliced", sliced)] {
        let both = on.both(&tiny::gemma3(), &dropped, settings);
        on.near(what, [&both[0], &both[1]].map(learn));
        on.near_gradients(what, &both);
    }
}

fn patches_act_and_readers_read_alike(on: &On) {
    let vector = |name: &str| Stream::new(8, name).normals(16);
    let both = on.both(&tiny::qwen3(), &adapter(AdapterKind::Lora), PolicySettings::default()).map(|mut policy| {
        for patch in [
            Patch::add(vec![0, 1], Site::ResidualAfter, &vector("a"), 0.7, true),
            Patch::add(vec![1], Site::ResidualBefore, &vector("b"), -0.4, false),
            Patch::ablate(vec![0, 1], Site::AttentionOutput, &vector("c")),
            Patch::project(vec![1], Site::MlpOutput, &vector("d"), 0.8),
        ] {
            policy.patch(patch.unwrap()).unwrap();
        }
        policy
    });
    on.near("taps", [&both[0], &both[1]].map(learn));
    on.near_gradients("patched", &both);
    let read = |policy: &Policy| {
        let read = |token| policy.capture(&View::Policy, &tiny::rows(), &[0, 1], Site::ResidualAfter, token).unwrap();
        [read(Token::FromEnd(0)), read(Token::FromEnd(2))].iter().flat_map(numbers).collect::<Vec<f32>>()
    };
    on.near("read", [&both[0], &both[1]].map(read));
    let next = |policy: &Policy| numbers(&policy.next_token(&View::Policy, &tiny::rows(), &[0, 7, 39]).unwrap());
    on.near("next token", [&both[0], &both[1]].map(next));
    let apart = |policy: &Policy| numbers(&policy.divergence(&View::Policy, &View::Reference, &tiny::rows()).unwrap());
    on.near("divergence", [&both[0], &both[1]].map(apart));
}

fn captured_activations_and_their_gradients_are_alike(on: &On) {
    let rows = tiny::rows();
    for kind in [AdapterKind::Lora, AdapterKind::Full] {
        for (site, token) in [(Site::ResidualAfter, Token::Targets), (Site::AttentionOutput, Token::FromEnd(1))] {
            let both = on.both(&tiny::qwen3(), &adapter(kind), PolicySettings::default());
            let learn = |policy: &Policy| {
                let mut captured = policy.capture_for_learning(&rows, &[1, 0], site, token).unwrap();
                let seeds = seeds_for(&captured.values);
                policy.backward_captured(&mut captured, &seeds).unwrap();
                numbers(&captured.values)
            };
            let what = format!("{kind:?}, {site:?}");
            on.near(&what, [&both[0], &both[1]].map(learn));
            on.near_gradients(&what, &both);
        }
    }
}

fn edits_and_files_are_those_of_the_cpu(on: &On) {
    for (configuration, kind) in [(tiny::biased(), AdapterKind::Lora), (tiny::joined(), AdapterKind::Full)] {
        let both = on.both(&configuration, &adapter(kind), PolicySettings::default()).map(|mut policy| {
            let direction = Stream::new(8, "direction").normals(16);
            policy.project_out(Role::Linear(decoder::Site::AttentionOutput), 1, &direction, 1.0, false).unwrap();
            policy.project_out(Role::Embedding, 0, &direction, 0.5, false).unwrap();
            policy
        });
        on.near("edited", [&both[0], &both[1]].map(|policy| logprobs(policy, &View::Policy)));
        let folders = [&both[0], &both[1]].map(|policy| {
            let folder = tempfile::tempdir().unwrap();
            policy.save(folder.path()).unwrap();
            policy.save_edits(folder.path()).unwrap();
            merge(policy, &folder.path().join("merged"), DType::F32).unwrap();
            folder
        });
        // Where all weights are trained, an edit is among them and has no file of its own.
        let files: &[&str] = match kind {
            AdapterKind::Full => &["model.safetensors", "merged/model.safetensors"],
            _ => &["adapter_model.safetensors", "edits.safetensors", "merged/model.safetensors"],
        };
        for file in files {
            let bytes = [&folders[0], &folders[1]].map(|folder| std::fs::read(folder.path().join(file)).unwrap());
            assert!(bytes[0] == bytes[1], "{kind:?}: `{file}` is another");
        }
        let [_, mut there] = on.both(&configuration, &adapter(kind), PolicySettings::default());
        let fresh = logprobs(&there, &View::Policy);
        there.restore(folders[0].path()).unwrap();
        there.restore_edits(folders[0].path()).unwrap();
        let restored = logprobs(&there, &View::Policy);
        assert_ne!(fresh, restored);
        on.near("restored", [logprobs(&both[0], &View::Policy), restored]);
    }
}

fn the_reference_and_snapshots_stay_what_they_were(on: &On) {
    let [_, mut policy] = on.both(&tiny::llama(), &adapter(AdapterKind::Dora), PolicySettings::default());
    let (reference, then) = (logprobs(&policy, &View::Reference), logprobs(&policy, &View::Policy));
    policy.snapshot("then").unwrap();
    stir(&policy);
    policy.note_update();
    assert_eq!(reference, logprobs(&policy, &View::Reference));
    assert_eq!(then, logprobs(&policy, &View::Snapshot("then".into())));
    assert_ne!(then, logprobs(&policy, &View::Policy));
}

fn experts_are_refused_on_all_devices_but_the_cpu(on: &On) {
    let configuration = tiny::olmoe();
    let plain = tiny::model(configuration.clone(), 1);
    let found = crate::Weights::from_tensors(tiny::tensors(&plain), &configuration, &on.device);
    assert_eq!(found.is_ok(), on.device.is_cpu());
}

// In bf16 a slot is off by a few hundredths of its length, where much of it cancels by up to a fifth: so are those of
// PyTorch, with the same weights, adapters and rows.
tiny::on_each_device! {
    [
        every_family_and_kind_learns_alike
        a_loss_of_log_probabilities_alone_learns_alike
        dropout_slices_and_what_is_recomputed_are_the_same
        patches_act_and_readers_read_alike
        captured_activations_and_their_gradients_are_alike
        experts_are_refused_on_all_devices_but_the_cpu
        edits_and_files_are_those_of_the_cpu
        the_reference_and_snapshots_stay_what_they_were
    ]
    cpu("cpu", Compute::F32, 0.0, [0.0, 0.01]) [];
    cpu_bf16("cpu", Compute::Bf16, 0.1, [0.25, 0.05]) [];
    cuda_f32("cuda", Compute::F32, 1e-4, [1e-4, 0.01]) ["needs cuda"];
    cuda_bf16("cuda", Compute::Bf16, 0.1, [0.25, 0.05]) ["needs cuda"];
    metal_f32("metal", Compute::F32, 1e-4, [1e-4, 0.01]) ["needs metal"];
    metal_bf16("metal", Compute::Bf16, 0.1, [0.25, 0.05]) ["needs metal"];
}
