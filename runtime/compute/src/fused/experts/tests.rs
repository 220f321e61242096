//! Routing and mixing against plain operations in f64 under autograd.

use candle_core::{D, DType, Device, Var};

use super::super::reference::{bits, close, gradients, leaf, normal, same_on_two_threads};
use super::*;

const TOKENS: usize = 37;
const EXPERTS: usize = 9;
const ACTIVE: usize = 3;
const WIDTH: usize = 75;

/// Each token's weight of every expert, 0 for those that it does not go to: by sorting the softmax.
fn reference(logits: &Var, normalized: bool) -> Tensor {
    let shares = plain_softmax(logits.as_tensor());
    let order = shares.detach().arg_sort_last_dim(false).unwrap();
    let last = order.narrow(1, ACTIVE - 1, 1).unwrap().contiguous().unwrap();
    let least = shares.detach().gather(&last, 1).unwrap();
    let mask = shares.detach().broadcast_ge(&least).unwrap().to_dtype(DType::F64).unwrap();
    let kept = (shares * mask).unwrap();
    match normalized {
        true => kept.broadcast_div(&kept.sum_keepdim(D::Minus1).unwrap()).unwrap(),
        false => kept,
    }
}

fn plain_softmax(logits: &Tensor) -> Tensor {
    let powers = logits.broadcast_sub(&logits.max_keepdim(1).unwrap().detach()).unwrap().exp().unwrap();
    powers.broadcast_div(&powers.sum_keepdim(1).unwrap()).unwrap()
}

/// What expert `expert` gives for the tokens of a group: rows of its own.
fn outputs(routes: &Routes) -> Vec<Tensor> {
    let of_group = |group: &ExpertTokens| {
        let all = normal(&format!("expert {}", group.expert), &[TOKENS, WIDTH]);
        crate::fused::gather_rows(&all, &group.tokens).unwrap()
    };
    routes.groups().iter().map(of_group).collect()
}

#[test]
fn the_sum_and_the_gradient_of_the_logits_agree_with_autograd() {
    let (logits, like) = (normal("logits", &[TOKENS, EXPERTS]), normal("like", &[TOKENS, WIDTH]));
    for normalized in [false, true] {
        let routes = route(&logits, ACTIVE, normalized).unwrap();
        let logits64 = leaf(&logits);
        let weights = reference(&logits64, normalized);
        let mut expected = Tensor::zeros((TOKENS, WIDTH), DType::F64, &Device::Cpu).unwrap();
        for expert in 0..EXPERTS {
            let rows = leaf(&normal(&format!("expert {expert}"), &[TOKENS, WIDTH]));
            let weighted = rows.as_tensor().broadcast_mul(&weights.narrow(1, expert, 1).unwrap()).unwrap();
            expected = (expected + weighted).unwrap();
        }
        let outputs = outputs(&routes);
        close("sum", &routes.mix(&outputs, &like).unwrap(), &expected, 5e-7);
        let dots = |(group, output): (&ExpertTokens, &Tensor)| {
            row_dots(&crate::fused::gather_rows(&like, &group.tokens).unwrap(), output).unwrap()
        };
        let weight_gradients: Vec<Vec<f32>> = routes.groups().iter().zip(&outputs).map(dots).collect();
        let found = routes.backward(&logits, &weight_gradients).unwrap();
        close("logits", &found, &gradients(&expected, &like, &[&logits64])[0], 2e-6);
    }
}

#[test]
fn rows_are_summed_and_scaled_as_by_plain_operations() {
    let (logits, like) = (normal("logits", &[TOKENS, EXPERTS]), normal("like", &[TOKENS, WIDTH]));
    let routes = route(&logits, EXPERTS, false).unwrap();
    let outputs = outputs(&routes);
    let all = outputs.iter().map(|rows| leaf(rows).as_tensor().clone()).reduce(|sum, rows| (sum + rows).unwrap());
    close("sum", &routes.sum(&outputs, &like).unwrap(), &all.unwrap(), 5e-7);
    let factors = normal("factors", &[TOKENS]);
    let scaled = leaf(&like).broadcast_mul(&leaf(&factors).unsqueeze(1).unwrap()).unwrap();
    close("scaled", &scale_rows(&like, &factors.to_vec1().unwrap()).unwrap(), &scaled, 1e-7);
}

#[test]
fn of_equal_experts_the_first_are_chosen() {
    let logits = Tensor::new(&[[1f32, 2.0, 2.0, 2.0, 1.0]], &Device::Cpu).unwrap();
    let routes = route(&logits, 2, true).unwrap();
    let chosen: Vec<(usize, &[f32])> =
        routes.groups().iter().map(|group| (group.expert, group.weights.as_slice())).collect();
    assert_eq!(chosen, [(1, &[0.5f32][..]), (2, &[0.5f32][..])]);
}

#[test]
fn a_token_has_the_same_bits_alone_and_in_a_batch_and_on_any_number_of_threads() {
    let logits = normal("logits", &[TOKENS, EXPERTS]);
    let mixed = |logits: &Tensor, first: usize| {
        let routes = route(logits, ACTIVE, true).unwrap();
        let tokens = logits.dims()[0];
        let of_group = |group: &ExpertTokens| {
            let all = normal(&format!("expert {}", group.expert), &[TOKENS, WIDTH]).narrow(0, first, tokens).unwrap();
            crate::fused::gather_rows(&all.contiguous().unwrap(), &group.tokens).unwrap()
        };
        let outputs: Vec<Tensor> = routes.groups().iter().map(of_group).collect();
        routes.mix(&outputs, &Tensor::zeros((tokens, WIDTH), DType::F32, &Device::Cpu).unwrap()).unwrap()
    };
    let all = mixed(&logits, 0);
    for token in [0, 11, TOKENS - 1] {
        let alone = mixed(&logits.narrow(0, token, 1).unwrap().contiguous().unwrap(), token);
        assert_eq!(bits(&alone), bits(&all.narrow(0, token, 1).unwrap()), "token {token}");
    }
    same_on_two_threads(|| vec![mixed(&logits, 0)]);
}

#[test]
fn a_choice_of_no_expert_or_of_more_than_there_are_is_refused() {
    let logits = normal("logits", &[TOKENS, EXPERTS]);
    for active in [0, EXPERTS + 1] {
        assert!(matches!(route(&logits, active, false), Err(Error::Argument(_))));
    }
    let routes = route(&logits, ACTIVE, false).unwrap();
    assert!(routes.mix(&[], &normal("like", &[TOKENS, WIDTH])).is_err());
}
