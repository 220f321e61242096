//! Activations that were captured for learning: their values, and the gradients of losses on them.

use std::sync::Arc;

use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor};

use super::gradients::{check_differences, check_gradients};
use super::twin::Twin;
use crate::Configuration;
use crate::adapter::{AdapterKind, AdapterSettings, Targets};
use crate::policy::View;
use crate::rows::Rows;
use crate::stream::{Patch, Site, Token};
use crate::tiny::{self, adapter, numbers, policy};

pub(super) const SITES: [Site; 4] = [Site::ResidualBefore, Site::AttentionOutput, Site::MlpOutput, Site::ResidualAfter];

const TOKENS: [Token; 3] = [Token::FromEnd(1), Token::TargetMean, Token::Targets];

/// The rows of `tiny::rows` that a token can be captured of: the last one has no targets.
pub(super) fn rows_for(token: Token) -> Arc<Rows> {
    let all = tiny::rows();
    if token == Token::TargetMean { Arc::new(all.select(&[0, 1, 2]).unwrap()) } else { all }
}

/// Seeds for captured values.
pub(super) fn seeds_for(values: &Tensor) -> Tensor {
    let draws = Stream::new(4, "captured").normals(values.elem_count());
    Tensor::from_vec(draws, values.dims(), &Device::Cpu).unwrap()
}

/// The loss Σ seed · activation, of the slow reference.
fn reference_loss(twin: &Twin, rows: &Rows, layers: &[usize], (site, token): (Site, Token), seeds: &Tensor) -> Tensor {
    let mut total = Tensor::zeros((), DType::F64, &Device::Cpu).unwrap();
    for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
        let blocks = twin.blocks(ids);
        let targets: Vec<u32> = (0..ids.len()).filter(|at| marks[*at]).map(|at| at as u32).collect();
        let targets = Tensor::new(targets.as_slice(), &Device::Cpu).unwrap();
        for (number, layer) in layers.iter().enumerate() {
            let (_, all) = blocks[*layer].iter().find(|(other, _)| *other == site).unwrap();
            let seeds = seeds.get(number).unwrap().get(row).unwrap().to_dtype(DType::F64).unwrap();
            let (captured, seeds) = match token {
                Token::FromEnd(number) => (all.get(ids.len() - 1 - number as usize).unwrap(), seeds),
                Token::TargetMean => (all.index_select(&targets, 0).unwrap().mean(0).unwrap(), seeds),
                Token::Targets => (all.index_select(&targets, 0).unwrap(), seeds.index_select(&targets, 0).unwrap()),
            };
            total = (total + (captured * seeds).unwrap().sum_all().unwrap()).unwrap();
        }
    }
    total
}

fn check(name: &str, configuration: Configuration, settings: &AdapterSettings, layers: &[usize]) {
    let policy = policy(configuration, settings);
    let twin = Twin::new(policy.model(), policy.adapter());
    for (site, token) in SITES.into_iter().flat_map(|site| TOKENS.map(|token| (site, token))) {
        let rows = rows_for(token);
        let mut captured = policy.capture_for_learning(&rows, layers, site, token).unwrap();
        let seeds = seeds_for(&captured.values);
        policy.parameters().clear_gradients().unwrap();
        policy.backward_captured(&mut captured, &seeds).unwrap();
        let loss = reference_loss(&twin, &rows, layers, (site, token), &seeds);
        check_gradients(&format!("{name}, {site:?}, {token:?}"), &policy, &twin.gradients_of(&loss));
        let found = (captured.values * seeds).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        let wanted = loss.to_scalar::<f64>().unwrap();
        // At tokens that are no targets, values are 0, whatever the seeds.
        assert!((f64::from(found) - wanted).abs() < 1e-4 * wanted.abs().max(1.0), "{name}: {found} for {wanted}");
    }
}

#[test]
fn lora_gradients_of_captured_activations_are_those_of_the_twin_in_every_family() {
    for (name, configuration) in tiny::families() {
        check(name, configuration, &adapter(AdapterKind::Lora), &[1, 0]);
    }
}

#[test]
fn dora_gradients_of_captured_activations_are_those_of_the_twin() {
    check("gemma3", tiny::gemma3(), &adapter(AdapterKind::Dora), &[0, 1]);
}

#[test]
fn full_gradients_of_captured_activations_are_those_of_the_twin_in_every_family() {
    for (name, configuration) in tiny::families() {
        check(name, configuration, &adapter(AdapterKind::Full), &[0, 1]);
    }
}

#[test]
fn gradients_are_right_where_only_some_places_are_trained() {
    for names in [vec!["q_proj", "v_proj"], vec!["o_proj"], vec!["down_proj"], vec!["k_proj", "up_proj"]] {
        let targets = Targets::Modules(names.iter().map(|name| (*name).to_owned()).collect());
        for layers in [None, Some(vec![1])] {
            let settings = AdapterSettings { targets: targets.clone(), layers, ..adapter(AdapterKind::Lora) };
            check(names[0], tiny::gemma2(), &settings, &[0, 1]);
        }
    }
}

#[test]
fn a_capture_of_the_lowest_layer_alone_has_its_gradient() {
    for kind in [AdapterKind::Lora, AdapterKind::Full] {
        check("layer 0", tiny::gemma3(), &adapter(kind), &[0]);
    }
}

#[test]
fn nothing_is_learned_if_no_captured_layer_depends_on_what_is_trained() {
    let settings = AdapterSettings { layers: Some(vec![1]), ..adapter(AdapterKind::Lora) };
    let policy = policy(tiny::llama(), &settings);
    let mut captured = policy.capture_for_learning(&tiny::rows(), &[0], Site::ResidualAfter, Token::Targets).unwrap();
    assert_eq!(captured.saved_bytes(), 0);
    let seeds = seeds_for(&captured.values);
    policy.backward_captured(&mut captured, &seeds).unwrap();
    assert!(numbers(policy.parameters().gradients()).iter().all(|value| *value == 0.0));
}

#[test]
fn each_target_is_captured_at_its_own_place_and_zeros_elsewhere() {
    let policy = policy(tiny::gemma3(), &adapter(AdapterKind::Lora));
    let rows = tiny::rows();
    for site in SITES {
        let found = policy.capture(&View::Policy, &rows, &[1, 0], site, Token::Targets).unwrap();
        assert_eq!(found.dims(), [2, rows.count(), rows.width(), 16]);
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            let one = rows.select(&[row as u32]).unwrap();
            for place in 0..rows.width() {
                let found = found.narrow(1, row, 1).unwrap().narrow(2, place, 1).unwrap().squeeze(2).unwrap();
                let wanted = match marks.get(place) {
                    Some(true) => {
                        let token = Token::FromEnd((ids.len() - 1 - place) as u32);
                        policy.capture(&View::Policy, &one, &[1, 0], site, token).unwrap()
                    }
                    _ => found.zeros_like().unwrap(),
                };
                assert_eq!(numbers(&found), numbers(&wanted), "{site:?}, row {row}, token {place}");
            }
        }
    }
}

#[test]
fn rows_without_targets_are_zeros_and_teach_nothing() {
    let policy = policy(tiny::llama(), &adapter(AdapterKind::Lora));
    let rows = Arc::new(Rows::new(vec![vec![3, 4, 5], vec![]], vec![vec![true, false, false], vec![]]).unwrap());
    let mut captured = policy.capture_for_learning(&rows, &[0, 1], Site::MlpOutput, Token::Targets).unwrap();
    assert_eq!(captured.values.dims(), [2, 2, 3, 16]);
    assert!(numbers(&captured.values).iter().all(|value| *value == 0.0));
    let seeds = seeds_for(&captured.values);
    policy.backward_captured(&mut captured, &seeds).unwrap();
    assert!(numbers(policy.parameters().gradients()).iter().all(|value| *value == 0.0));
    let refused = policy.capture_for_learning(&rows, &[0], Site::MlpOutput, Token::TargetMean);
    assert!(refused.err().unwrap().to_string().contains("row `0` has no target token"));
}

#[test]
fn the_values_are_the_bits_that_a_capture_without_learning_returns() {
    for (name, configuration) in tiny::families() {
        let policy = policy(configuration, &adapter(AdapterKind::Dora));
        for (site, token) in SITES.into_iter().flat_map(|site| TOKENS.map(|token| (site, token))) {
            let rows = rows_for(token);
            let found = policy.capture_for_learning(&rows, &[1, 0], site, token).unwrap().values;
            let wanted = policy.capture(&View::Policy, &rows, &[1, 0], site, token).unwrap();
            assert_eq!(numbers(&found), numbers(&wanted), "{name}, {site:?}, {token:?}");
        }
    }
}

/// Patches of each kind, at every site and in both layers.
fn patches() -> Vec<Patch> {
    let vector = |name| Stream::new(8, name).normals(16);
    let mut all = Vec::new();
    for site in SITES {
        all.push(Patch::ablate(vec![0, 1], site, &vector(site.name())).unwrap());
        all.push(Patch::add(vec![0, 1], site, &vector("added"), 0.7, true).unwrap());
        all.push(Patch::project(vec![1], site, &vector("projected"), 0.8).unwrap());
    }
    all
}

#[test]
fn the_gradient_through_patches_at_and_below_the_site_is_that_of_finite_differences() {
    for (site, token) in SITES.into_iter().zip([Token::Targets, Token::FromEnd(0), Token::TargetMean, Token::Targets]) {
        for configuration in [tiny::llama(), tiny::gemma3()] {
            let mut policy = policy(configuration, &adapter(AdapterKind::Lora));
            for patch in patches() {
                policy.patch(patch).unwrap();
            }
            let rows = rows_for(token);
            let mut captured = policy.capture_for_learning(&rows, &[0, 1], site, token).unwrap();
            let seeds = seeds_for(&captured.values);
            policy.backward_captured(&mut captured, &seeds).unwrap();
            check_differences(&format!("{site:?}"), &policy, 1e-3, || {
                let values = policy.capture(&View::Policy, &rows, &[0, 1], site, token).unwrap();
                let terms = (values.to_dtype(DType::F64).unwrap() * seeds.to_dtype(DType::F64).unwrap()).unwrap();
                terms.sum_all().unwrap().to_scalar::<f64>().unwrap()
            });
        }
    }
}
