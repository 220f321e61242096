//! The divergence against whole distributions in f64.

use candle_core::{D, Device, Var};

use super::*;
use crate::fused::reference::{gradients, normal, same_on_two_threads};
use crate::parity::{TestDevice, on_each_device};

/// Rows beyond one block.
const ROWS: usize = 67;
/// The own hidden size and vocabulary.
const OWN: (usize, usize) = (19, 1501);
/// Those of the other head: wider, with a few words more.
const OTHER: (usize, usize) = (32, 1504);

/// Options of the two heads: plain, with a temperature, and with a soft cap on one of them.
fn variants() -> [[HeadOptions; 2]; 3] {
    let plain = HeadOptions::default();
    let warm = HeadOptions { inverse_temperature: 1.0 / 0.7, ..plain };
    let capped = HeadOptions { soft_cap: Some(3.0), logit_scale: 1.3, ..warm };
    [[plain, plain], [warm, HeadOptions { logit_scale: 0.6, ..warm }], [capped, warm]]
}

/// Logits of a head in f64, of its first words.
fn logits(hidden: &Var, weight: &Var, options: &HeadOptions) -> Tensor {
    let logits = (hidden.matmul(&weight.t().unwrap()).unwrap() * f64::from(options.logit_scale)).unwrap();
    let logits = match options.soft_cap.map(f64::from) {
        Some(cap) => ((logits / cap).unwrap().tanh().unwrap() * cap).unwrap(),
        None => logits,
    };
    (logits * f64::from(options.inverse_temperature)).unwrap().narrow(1, 0, OWN.1).unwrap()
}

/// KL(p‖q) of each row, from log-probabilities.
fn kl(p: &Tensor, q: &Tensor) -> Tensor {
    (p.exp().unwrap() * (p - q).unwrap()).unwrap().sum(1).unwrap()
}

/// The divergences as one would write them with the logits at hand.
fn reference(own: &Tensor, other: &Tensor, beta: f64) -> Tensor {
    let logs =
        |logits: &Tensor| logits.broadcast_sub(&logits.log_sum_exp(D::Minus1).unwrap().unsqueeze(1).unwrap()).unwrap();
    let (q, p) = (logs(own), logs(other));
    if beta == 0.0 {
        return kl(&p, &q);
    }
    if beta == 1.0 {
        return kl(&q, &p);
    }
    let mixture =
        ((p.exp().unwrap() * beta).unwrap() + (q.exp().unwrap() * (1.0 - beta)).unwrap()).unwrap().log().unwrap();
    ((kl(&p, &mixture) * beta).unwrap() + (kl(&q, &mixture) * (1.0 - beta)).unwrap()).unwrap()
}

/// Hidden states and heads of both sides on the device of a test.
fn inputs(on: &TestDevice) -> [Tensor; 4] {
    let put = |name: &str, shape: [usize; 2]| on.put(&on.back(&on.normal(name, &shape)).to_dtype(DType::F32).unwrap());
    let [own, other] = [OWN, OTHER].map(|(width, _)| width);
    [
        on.normal("own", &[ROWS, own]),
        put("own-head", [OWN.1, own]),
        on.normal("other", &[ROWS, other]),
        put("other-head", [OTHER.1, other]),
    ]
}

// In bf16 the gradients of the logits are rounded before the second product, and the result, by up to 2⁻⁸ of
// themselves.
on_each_device! {
    fn values_and_gradients_agree_with_autograd(on) tolerance(5e-6, 6e-3) {
        let [hidden, weight, other_hidden, other_weight] = inputs(on);
        let seeds: Vec<f32> = normal("seeds", &[ROWS]).to_vec1().unwrap();
        let leaves = [&hidden, &weight, &other_hidden, &other_weight].map(|tensor| on.leaf(tensor));
        for options in &variants() {
            for beta in [0.0, 0.3, 0.5, 1.0] {
                let own = HeadInput { hidden: &hidden, weight: (&weight).into(), options: &options[0] };
                let other = HeadInput { hidden: &other_hidden, weight: (&other_weight).into(), options: &options[1] };
                let logits = [logits(&leaves[0], &leaves[1], &options[0]), logits(&leaves[2], &leaves[3], &options[1])];
                let expected = reference(&logits[0], &logits[1], f64::from(beta));
                let found = head_divergence(own, other, beta, Some(&seeds), true).unwrap();
                let values = Tensor::new(found.values.as_slice(), &Device::Cpu).unwrap();
                on.nearly(&format!("divergence at {beta}"), &values, &expected, 1.0);
                let seeds = Tensor::new(seeds.as_slice(), &Device::Cpu).unwrap();
                let expected = gradients(&expected, &seeds, &[&leaves[0], &leaves[1]]);
                // A mixture's gradient is some thirty times as small as the others, and has the rounding of the same
                // logits.
                let share = if [0.0, 1.0].contains(&beta) { 3.0 } else { 30.0 };
                on.nearly(&format!("dhidden at {beta}"), &found.hidden.unwrap(), &expected[0], share);
                on.nearly(&format!("dweight at {beta}"), &found.weight.unwrap(), &expected[1], share);
            }
        }
    }
}

#[test]
fn a_head_does_not_diverge_from_itself_and_certain_ones_diverge_finitely() {
    let options = HeadOptions::default();
    let hidden = Tensor::new(&[[1f32]], &Device::Cpu).unwrap();
    let [up, down] = [[[400f32], [-400.0], [0.0]], [[-400f32], [400.0], [0.0]]]
        .map(|weight| Tensor::new(&weight, &Device::Cpu).unwrap());
    let head = |weight| HeadInput { hidden: &hidden, weight, options: &options };
    for beta in [0.0, 0.5, 1.0] {
        let same = head_divergence(head((&up).into()), head((&up).into()), beta, Some(&[1.0]), false).unwrap();
        assert_eq!(same.values, [0.0], "at {beta}");
        assert_eq!(same.hidden.unwrap().to_vec2::<f32>().unwrap(), [[0.0]], "at {beta}");
        let apart = head_divergence(head((&up).into()), head((&down).into()), beta, None, false).unwrap();
        let expected = if beta == 0.5 { std::f32::consts::LN_2 } else { 800.0 };
        assert!((apart.values[0] - expected).abs() < 1e-4 * expected, "{:?} at {beta}", apart.values);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let options = HeadOptions::default();
    let [hidden, weight] = [normal("hidden", &[ROWS, 19]), normal("head", &[1501, 19])];
    let other = normal("other", &[ROWS, 19]);
    let input = |hidden| HeadInput { hidden, weight: (&weight).into(), options: &options };
    same_on_two_threads(|| {
        let found = head_divergence(input(&hidden), input(&other), 0.5, Some(&[1.0; ROWS]), true).unwrap();
        vec![Tensor::new(found.values, &Device::Cpu).unwrap(), found.hidden.unwrap(), found.weight.unwrap()]
    });
}

#[test]
fn rows_that_do_not_fit_and_a_beta_out_of_range_are_refused() {
    let options = HeadOptions::default();
    let [hidden, weight] = [normal("hidden", &[3, 4]), normal("head", &[8, 4])];
    let (fewer, narrow) = (hidden.narrow(0, 0, 2).unwrap(), normal("narrow", &[3, 2]));
    let input = |hidden| HeadInput { hidden, weight: (&weight).into(), options: &options };
    let refused = |other, beta, seeds| head_divergence(input(&hidden), input(other), beta, seeds, false).unwrap_err();
    assert!(matches!(refused(&fewer, 0.5, None), Error::Shape(_)));
    assert!(matches!(refused(&narrow, 0.5, None), Error::Shape(_)));
    assert!(matches!(refused(&hidden, 0.5, Some(&[1.0])), Error::Shape(_)));
    for beta in [-0.1, 1.1, f32::NAN] {
        assert!(matches!(refused(&hidden, beta, None), Error::Argument(_)), "{beta}");
    }
}
