//! Edits of weights: compared with patches, in every form, and saved to files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::explain::Explain;

use crate::adapter::{AdapterKind, AdapterSettings};
use crate::configuration::BlockNorms;
use crate::decoder::hook::SiteHooks;
use crate::edit::{self, Form, Matrix, Role};
use crate::policy::{Policy, PolicySettings, View};
use crate::stream::{Patch, Site, normalize};
use crate::tiny::{self, largest, logprobs, numbers, plain};
use crate::{Model, Source, Weights, decoder, families, merge};

fn direction() -> Vec<f32> {
    Stream::new(8, "direction").normals(16)
}

/// Removes the direction from every matrix that writes to the residual stream.
fn orthogonalize(policy: &mut Policy, keep_norms: bool) {
    policy.project_out(Role::Embedding, 0, &direction(), 1.0, keep_norms).unwrap();
    write_less(policy, keep_norms);
}

fn write_less(policy: &mut Policy, keep_norms: bool) {
    for layer in 0..2 {
        policy.project_out(Role::Linear(decoder::Site::AttentionOutput), layer, &direction(), 1.0, keep_norms).unwrap();
        policy.project_out(Role::Linear(decoder::Site::Down), layer, &direction(), 1.0, keep_norms).unwrap();
    }
}

#[test]
fn edited_weights_do_what_hooks_do() {
    // With a tied head or a second norm the two differ by definition.
    let comparable = tiny::dense().into_iter().filter(|(_, shape)| !shape.tied && shape.norms == BlockNorms::INPUTS);
    for (name, configuration) in comparable {
        let base = logprobs(&plain(configuration.clone()), &View::Policy);
        let mut hooked = plain(configuration.clone());
        for site in [Site::ResidualBefore, Site::AttentionOutput, Site::MlpOutput] {
            hooked.patch(Patch::ablate(vec![0, 1], site, &direction()).unwrap()).unwrap();
        }
        let mut edited = plain(configuration);
        orthogonalize(&mut edited, false);
        let (hooked, found) = (logprobs(&hooked, &View::Policy), logprobs(&edited, &View::Policy));
        assert!(largest(&base, &found) > 0.1, "{name}: nothing to see");
        assert!(largest(&hooked, &found) < 1e-4, "{name}: off by {}", largest(&hooked, &found));
        assert_eq!(base, logprobs(&edited, &View::Reference), "{name}: the base has changed");
    }
}

#[test]
fn nothing_is_written_along_the_direction_any_more() {
    for (name, configuration) in tiny::dense() {
        let mut policy = plain(configuration.clone());
        orthogonalize(&mut policy, false);
        let direction = normalize(&direction()).unwrap();
        let mut left: Vec<f32> = Vec::new();
        let embedding = policy.read_rows(Role::Embedding, 0, 0, configuration.vocabulary).unwrap();
        left.extend(along(&embedding.to_vec2().unwrap(), &direction));
        for (role, layer) in [(Role::Linear(decoder::Site::AttentionOutput), 0), (Role::Linear(decoder::Site::Down), 1)]
        {
            let rows = policy.read_rows(role, layer, 0, 16).unwrap().t().unwrap().to_vec2().unwrap();
            left.extend(along(&rows, &direction));
        }
        assert!(left.iter().all(|value| value.abs() <= 1e-5), "{name}");
    }
}

fn along(rows: &[Vec<f32>], direction: &[f32]) -> Vec<f32> {
    rows.iter().map(|row| row.iter().zip(direction).map(|(a, b)| a * b).sum()).collect()
}

#[test]
fn rows_keep_their_lengths_where_that_is_asked_for() {
    let before = plain(tiny::llama());
    let mut after = plain(tiny::llama());
    orthogonalize(&mut after, true);
    for (role, rows) in [
        (Role::Embedding, 40),
        (Role::Linear(decoder::Site::AttentionOutput), 16),
        (Role::Linear(decoder::Site::Down), 16),
    ] {
        let length = |policy: &Policy| {
            let rows = policy.read_rows(role, 1, 0, rows).unwrap();
            rows.sqr().unwrap().sum(1).unwrap().sqrt().unwrap().to_vec1::<f32>().unwrap()
        };
        assert!(largest(&length(&before), &length(&after)) < 1e-5);
    }
    assert!(largest(&logprobs(&before, &View::Policy), &logprobs(&after, &View::Policy)) > 0.1);
}

#[test]
fn an_edit_kept_as_an_adapter_scores_alike_and_leaves_the_weights() {
    for configuration in [tiny::llama(), tiny::gemma3(), tiny::joined()] {
        let mut edited = plain(configuration.clone());
        write_less(&mut edited, false);
        edited.project_out(Role::Linear(decoder::Site::Key), 0, &[1.0; 16], 0.5, false).unwrap();
        let mut beside = plain(configuration.clone());
        beside.keep_edits_as(Form::Adapter).unwrap();
        write_less(&mut beside, false);
        beside.project_out(Role::Linear(decoder::Site::Key), 0, &[1.0; 16], 0.5, false).unwrap();
        let wanted = logprobs(&edited, &View::Policy);
        assert!(largest(&wanted, &logprobs(&beside, &View::Policy)) < 1e-5);

        let folder = tempfile::tempdir().unwrap();
        beside.edits_as_adapter().unwrap().unwrap().save(beside.model(), folder.path()).unwrap();
        let model = tiny::model(configuration, 1);
        let loaded = Policy::open(model, Some(folder.path()), PolicySettings::default()).unwrap();
        assert!(largest(&wanted, &logprobs(&loaded, &View::Policy)) < 1e-5);
    }
}

#[test]
fn several_edits_of_one_matrix_are_as_many_ranks() {
    let mut beside = plain(tiny::llama());
    beside.keep_edits_as(Form::Adapter).unwrap();
    let other = Stream::new(8, "other").normals(16);
    beside.project_out(Role::Linear(decoder::Site::Down), 1, &direction(), 1.0, false).unwrap();
    beside.project_out(Role::Linear(decoder::Site::Down), 1, &other, 0.5, false).unwrap();
    beside.project_out(Role::Linear(decoder::Site::Down), 0, &other, 0.5, false).unwrap();
    let adapter = beside.edits_as_adapter().unwrap().unwrap();
    assert_eq!(
        adapter.modules().iter().map(|module| (module.layer, module.rank)).collect::<Vec<_>>(),
        [(0, 1), (1, 2)]
    );
    let folder = tempfile::tempdir().unwrap();
    adapter.save(beside.model(), folder.path()).unwrap();
    let model = tiny::model(tiny::llama(), 1);
    let loaded = Policy::open(model, Some(folder.path()), PolicySettings::default()).unwrap();
    assert!(largest(&logprobs(&beside, &View::Policy), &logprobs(&loaded, &View::Policy)) < 1e-5);
}

#[test]
fn an_edited_model_opens_again_as_it_was_edited() {
    let folder = tempfile::tempdir().unwrap();
    let mut edited = plain(tiny::qwen3());
    orthogonalize(&mut edited, false);
    merge::merge(&edited, folder.path(), edited.model().weights.dtype()).unwrap();
    let source = Source::open(folder.path().to_str().unwrap(), true).unwrap();
    let model = Arc::new(Model::open(&source, &Device::Cpu).unwrap());
    let opened = Policy::open(model, None, PolicySettings::default()).unwrap();
    assert_eq!(logprobs(&edited, &View::Policy), logprobs(&opened, &View::Policy));
}

#[test]
fn a_checkpoint_holds_edits_of_either_form() {
    for form in [Form::Weights, Form::Adapter] {
        let folder = tempfile::tempdir().unwrap();
        let mut edited = plain(tiny::llama());
        edited.keep_edits_as(form).unwrap();
        write_less(&mut edited, false);
        edited.save_edits(folder.path()).unwrap();
        let mut resumed = plain(tiny::llama());
        resumed.restore_edits(folder.path()).unwrap();
        assert_eq!(logprobs(&edited, &View::Policy), logprobs(&resumed, &View::Policy));
        let modules = |policy: &Policy| policy.edits_as_adapter().unwrap().map(|adapter| adapter.modules().len());
        assert_eq!(modules(&edited), modules(&resumed));
    }
}

#[test]
fn how_edits_are_kept_is_saved_before_the_first_one() {
    for (saved, before) in [(Form::Adapter, Form::Weights), (Form::Weights, Form::Adapter)] {
        let folder = tempfile::tempdir().unwrap();
        let [mut kept, mut resumed] = [saved, before].map(|form| {
            let mut policy = plain(tiny::llama());
            policy.keep_edits_as(form).unwrap();
            policy
        });
        kept.save_edits(folder.path()).unwrap();
        resumed.restore_edits(folder.path()).unwrap();
        assert_eq!(resumed.edits_are_an_adapter(), kept.edits_are_an_adapter());
        write_less(&mut kept, false);
        write_less(&mut resumed, false);
        assert_eq!(logprobs(&kept, &View::Policy), logprobs(&resumed, &View::Policy));
    }
}

#[test]
fn edits_of_another_model_are_refused_by_name_and_shape() {
    let sides = |layer: usize| ["left", "right"].map(|side| (format!("factor.{layer}.o_proj.0000.{side}"), vec![16]));
    let weight = |name: &str, shape: &[usize]| vec![(name.to_owned(), shape.to_vec())];
    for (edits, told) in [
        (weight("model.layers.0.mlp.middle_proj.weight", &[16]), "here is no `model.layers.0.mlp.middle_proj.weight`"),
        (weight("model.norm.weight", &[17]), "`model.norm.weight` is [17], here [16]"),
        (sides(2).to_vec(), "here is no `factor.2.o_proj.0000.left`"),
        (weight("factor.0.o_proj.0000.left", &[17]), "`factor.0.o_proj.0000.left` is [17], here [16]"),
        (sides(0)[..1].to_vec(), "an edit has one of its two sides alone"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edits.safetensors");
        let zeros =
            |(name, shape): (String, Vec<usize>)| (name, Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap());
        let tensors: HashMap<String, Tensor> = edits.into_iter().map(zeros).collect();
        candle_core::safetensors::save(&tensors, &path).unwrap();
        let mut policy = plain(tiny::llama());
        let error = policy.restore_edits(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with(told), "{error}");
        assert_eq!(error.location(), Some(path.display().to_string()));
        assert!(!policy.is_edited());
    }
}

#[test]
fn a_weight_in_bf16_is_edited_in_f32_and_stored_as_before() {
    let wide = tiny::model(tiny::llama(), 1);
    let narrow = |(name, _): (String, Vec<usize>)| {
        let weight = wide.weights.get(&name).unwrap().to_dtype(DType::BF16).unwrap();
        (name, weight)
    };
    let weights: BTreeMap<String, Tensor> = families::weight_shapes(&tiny::llama()).into_iter().map(narrow).collect();
    let weights = Weights::from_tensors(weights, &tiny::llama(), &Device::Cpu).unwrap();
    assert_eq!(weights.dtype(), DType::BF16);
    let model = Arc::new(Model::from_parts("narrow", tiny::llama(), weights));
    let mut policy = Policy::open(model, None, PolicySettings::default()).unwrap();
    orthogonalize(&mut policy, false);
    let rows = policy.read_rows(Role::Linear(decoder::Site::Down), 0, 0, 16).unwrap().t().unwrap().to_vec2().unwrap();
    let left =
        along(&rows, &normalize(&direction()).unwrap()).iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(left < 4e-3, "{left}");
    assert!(policy.edits().changed.values().all(|(weight, _)| weight.dtype() == DType::BF16));
}

#[test]
fn a_part_of_a_joined_matrix_is_edited_alone() {
    let mut policy = plain(tiny::joined());
    let before = all_rows(&policy);
    policy.add_outer(Role::Linear(decoder::Site::Key), 0, &[1.0; 16], &direction(), 0.5).unwrap();
    let after = all_rows(&policy);
    let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
    assert_eq!(changed, [vec![false; 32], vec![true; 16], vec![false; 16]].concat());
    let row: Vec<f32> = after[32].iter().zip(&before[32]).map(|(after, before)| after - before).collect();
    assert!(row.iter().zip(direction()).all(|(found, wanted)| (found - 0.5 * wanted).abs() < 1e-6));
}

/// The rows of the query, key and value matrices of layer 0, one matrix after another.
fn all_rows(policy: &Policy) -> Vec<Vec<f32>> {
    let parts = [
        (Role::Linear(decoder::Site::Query), 32),
        (Role::Linear(decoder::Site::Key), 16),
        (Role::Linear(decoder::Site::Value), 16),
    ];
    let rows = |(role, count)| policy.read_rows(role, 0, 0, count).unwrap().to_vec2::<f32>().unwrap();
    parts.into_iter().flat_map(rows).collect()
}

#[test]
fn with_full_fine_tuning_the_trained_weights_are_edited() {
    let settings = AdapterSettings { kind: AdapterKind::Full, ..AdapterSettings::default() };
    let mut policy = Policy::new(tiny::model(tiny::llama(), 1), &settings, PolicySettings::default()).unwrap();
    let mut wanted = plain(tiny::llama());
    orthogonalize(&mut policy, false);
    orthogonalize(&mut wanted, false);
    assert_eq!(logprobs(&policy, &View::Policy), logprobs(&wanted, &View::Policy));
    assert_eq!(logprobs(&policy, &View::Reference), logprobs(&wanted, &View::Reference));
}

/// `methods.md` §2.6, numbers of the reference in `f64`.
#[test]
fn projections_are_those_of_the_reference() {
    let direction = Tensor::new(&[[2.0_f32 / 3.0, -1.0 / 3.0, 2.0 / 3.0]], &Device::Cpu).unwrap();
    let place = |rows, columns| Matrix {
        rows,
        columns,
        ..Matrix::of(&tiny::llama(), Role::Linear(decoder::Site::Down), 0).unwrap()
    };
    let weight = Tensor::new(&[[1.0_f32, 2.0], [0.5, -1.0], [3.0, 0.25]], &Device::Cpu).unwrap();
    let found = edit::project_out(&weight, &place(3, 2), &direction, 1.0, false, false).unwrap();
    let wanted = [-0.666_666_7, 0.777_777_8, 1.333_333_3, -0.388_888_9, 1.333_333_3, -0.972_222_2];
    assert!(largest(&numbers(&found), &wanted) < 1e-6);
    let vector = [2.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0];
    let patch = Patch::ablate(vec![0], Site::ResidualBefore, &vector).unwrap();
    let hooks = SiteHooks { patches: vec![patch], ..SiteHooks::default() };
    let found = hooks.forward(Tensor::new(&[[1.0_f32, 2.0, 3.0]], &Device::Cpu).unwrap()).unwrap();
    let wanted = [-0.333_333_33, 2.666_666_7, 1.666_666_7];
    assert!(largest(&numbers(&found), &wanted) < 1e-6);
    let rows = Tensor::new(&[[1.0_f32, 0.0, 2.0], [-1.0, 1.0, 0.5]], &Device::Cpu).unwrap();
    let found = edit::project_out(&rows, &place(2, 3), &direction, 1.0, false, true).unwrap();
    let wanted = [-0.333_333_33, 0.666_666_7, 0.666_666_7, -0.555_555_6, 0.777_777_8, 0.944_444_4];
    assert!(largest(&numbers(&found), &wanted) < 1e-6);
}

#[test]
fn edits_that_cannot_be_made_change_nothing() {
    let mut policy = plain(tiny::llama());
    assert!(policy.project_out(Role::Linear(decoder::Site::Down), 2, &direction(), 1.0, false).is_err());
    assert!(policy.project_out(Role::Linear(decoder::Site::Down), 0, &direction()[..15], 1.0, false).is_err());
    assert!(policy.project_out(Role::Linear(decoder::Site::Down), 0, &[0.0; 16], 1.0, false).is_err());
    assert!(policy.add_outer(Role::Linear(decoder::Site::Down), 0, &[1.0; 16], &[1.0; 16], 1.0).is_err());
    assert!(policy.read_rows(Role::Linear(decoder::Site::Down), 0, 10, 7).is_err());
    assert!(policy.read_rows(Role::Linear(decoder::Site::Down), 0, usize::MAX, 2).is_err());
    policy.keep_edits_as(Form::Adapter).unwrap();
    let of_embedding = policy.project_out(Role::Embedding, 0, &direction(), 1.0, false);
    assert!(matches!(of_embedding, Err(crate::error::Error::Unsupported(_))), "{of_embedding:?}");
    assert!(policy.project_out(Role::Linear(decoder::Site::Down), 0, &direction(), 1.0, true).is_err());
    assert!(!policy.is_edited());
    policy.project_out(Role::Linear(decoder::Site::Down), 0, &direction(), 1.0, false).unwrap();
    assert!(policy.keep_edits_as(Form::Weights).is_err());
}

#[test]
fn matrices_of_experts_cannot_be_edited_and_those_of_the_attention_can() {
    for configuration in [tiny::qwen3_moe(), tiny::olmoe()] {
        let mut policy = plain(configuration);
        for site in [decoder::Site::Gate, decoder::Site::Up, decoder::Site::Down] {
            let found = policy.project_out(Role::Linear(site), 0, &direction(), 1.0, false);
            assert!(matches!(found, Err(crate::error::Error::Unsupported(_))), "{found:?}");
            assert!(policy.read_rows(Role::Linear(site), 0, 0, 1).is_err());
        }
        policy.project_out(Role::Linear(decoder::Site::AttentionOutput), 0, &direction(), 1.0, false).unwrap();
        assert!(policy.is_edited());
    }
}
