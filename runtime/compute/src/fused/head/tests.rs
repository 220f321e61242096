//! The head against whole logits in f64.

use candle_core::{D, DType, Device, Var};

use super::super::twin::{close, gradients, leaf, normal, numbers, same_on_two_threads};
use super::*;

/// Rows beyond one tile; words beyond one tile a group.
const SIDES: (usize, usize, usize) = (261, 19, 4501);
const ALL: TapSet = TapSet { entropy: true, log_sum_square: true, mean_logit: true, mean_logprob: true, top_one: true };

fn variants() -> [HeadOptions; 3] {
    let plain = HeadOptions { taps: ALL, ..HeadOptions::default() };
    [
        plain,
        HeadOptions { inverse_temperature: 1.0 / 0.7, logit_scale: 0.6, ..plain },
        HeadOptions { inverse_temperature: 1.25, soft_cap: Some(3.0), logit_scale: 1.3, ..plain },
    ]
}

fn inputs() -> (Tensor, Tensor, Vec<u32>) {
    let (rows, hidden, words) = SIDES;
    let targets = (0..rows as u32).map(|row| row * 7919 % words as u32).collect();
    (normal("hidden", &[rows, hidden]), normal("head", &[words, hidden]), targets)
}

/// The taps as one would write them with the logits at hand, in the order of [`HeadTaps`].
struct Twin {
    logits: Tensor,
    log: Tensor,
    logprob: Tensor,
    entropy: Tensor,
    log_sum_square: Tensor,
    mean_logprob: Tensor,
}

fn twin(hidden: &Var, weight: &Var, targets: &[u32], options: &HeadOptions) -> Twin {
    let logits = (hidden.matmul(&weight.t().unwrap()).unwrap() * f64::from(options.logit_scale)).unwrap();
    let logits = match options.soft_cap.map(f64::from) {
        Some(cap) => ((logits / cap).unwrap().tanh().unwrap() * cap).unwrap(),
        None => logits,
    };
    let logits = (logits * f64::from(options.inverse_temperature)).unwrap();
    let log = logits.log_sum_exp(D::Minus1).unwrap();
    let logs = logits.broadcast_sub(&log.unsqueeze(1).unwrap()).unwrap();
    let share = logs.exp().unwrap();
    let targets = Tensor::new(targets, &Device::Cpu).unwrap().unsqueeze(1).unwrap();
    Twin {
        logprob: logs.gather(&targets, 1).unwrap().squeeze(1).unwrap(),
        entropy: (&share * &logs).unwrap().sum(1).unwrap().neg().unwrap(),
        log_sum_square: share.sqr().unwrap().sum(1).unwrap().log().unwrap(),
        mean_logprob: logs.mean(1).unwrap(),
        log,
        logits,
    }
}

fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::new(numbers, &Device::Cpu).unwrap()
}

#[test]
fn every_tap_agrees_with_whole_logits() {
    let (hidden, weight, targets) = inputs();
    for (options, dtype) in variants().into_iter().zip([DType::F32, DType::BF16, DType::F32]) {
        let weight = weight.to_dtype(dtype).unwrap();
        let expected = twin(&leaf(&hidden), &leaf(&weight), &targets, &options);
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        close("logprob", &tensor(&taps.logprob), &expected.logprob, 1e-6);
        close("log_sum_exp", &tensor(&taps.log_sum_exp), &expected.log, 1e-6);
        close("entropy", &tensor(&taps.entropy.unwrap()), &expected.entropy, 2e-6);
        close("log_sum_square", &tensor(&taps.log_sum_square.unwrap()), &expected.log_sum_square, 2e-6);
        close("mean_logit", &tensor(&taps.mean_logit.unwrap()), &expected.logits.mean(1).unwrap(), 2e-6);
        close("mean_logprob", &tensor(&taps.mean_logprob.unwrap()), &expected.mean_logprob, 2e-6);
    }
}

#[test]
fn the_most_likely_word_is_told_from_the_others() {
    let (hidden, weight, _) = inputs();
    let options = variants()[0];
    let best = twin(&leaf(&hidden), &leaf(&weight), &[0; SIDES.0], &options).logits.argmax(1).unwrap();
    let best: Vec<u32> = best.to_vec1().unwrap();
    let mut targets = best.clone();
    targets.iter_mut().step_by(2).for_each(|target| *target = (*target + 1) % SIDES.2 as u32);
    let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
    let expected: Vec<f32> = (0..SIDES.0).map(|row| if row % 2 == 0 { 0.0 } else { 1.0 }).collect();
    assert_eq!(taps.top_one.unwrap(), expected);
}

#[test]
fn the_gradients_of_three_taps_agree_with_autograd() {
    let (hidden, weight, targets) = inputs();
    let seeds = ["g", "e", "m"].map(|name| normal(name, &[SIDES.0]).to_vec1::<f32>().unwrap());
    for (options, dtype) in variants().into_iter().zip([DType::F32, DType::BF16, DType::F32]) {
        let weight = weight.to_dtype(dtype).unwrap();
        let (h64, w64) = (leaf(&hidden), leaf(&weight));
        let expected = twin(&h64, &w64, &targets, &options);
        let stacked = Tensor::stack(&[expected.logprob, expected.entropy, expected.mean_logprob], 0).unwrap();
        let twins = gradients(&stacked, &tensor(&seeds.concat()).reshape((3, SIDES.0)).unwrap(), &[&h64, &w64]);
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        let given = HeadSeeds { logprob: Some(&seeds[0]), entropy: Some(&seeds[1]), mean_logprob: Some(&seeds[2]) };
        let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, given, true).unwrap();
        close("dhidden", &dh, &twins[0], 5e-6);
        close("dweight", &dw.unwrap(), &twins[1], 5e-6);
    }
}

#[test]
fn a_lone_seed_of_the_log_probability_agrees_with_autograd() {
    let (hidden, weight, targets) = inputs();
    let options = HeadOptions::default();
    let seed = normal("g", &[SIDES.0]);
    let (h64, w64) = (leaf(&hidden), leaf(&weight));
    let expected = gradients(&twin(&h64, &w64, &targets, &options).logprob, &seed, &[&h64]);
    let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
    assert!(taps.entropy.is_none(), "what is not asked for is not there");
    let numbers: Vec<f32> = seed.to_vec1().unwrap();
    let seeds = HeadSeeds { logprob: Some(&numbers), ..HeadSeeds::default() };
    let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false).unwrap();
    assert!(dw.is_none());
    close("dhidden", &dh, &expected[0], 5e-6);
}

#[test]
fn slopes_scaled_by_seeds_agree_with_autograd_and_bring_the_same_taps() {
    let (hidden, weight, targets) = inputs();
    let seed = normal("g", &[SIDES.0]);
    for (options, dtype) in variants().into_iter().zip([DType::F32, DType::BF16, DType::F32]) {
        let weight = weight.to_dtype(dtype).unwrap();
        let (h64, w64) = (leaf(&hidden), leaf(&weight));
        let expected = gradients(&twin(&h64, &w64, &targets, &options).logprob, &seed, &[&h64]);
        let (taps, slopes) = head_taps_and_slopes(&hidden, &weight, &targets, &options).unwrap();
        let found = head_slopes_backward(&slopes, &seed.to_vec1::<f32>().unwrap()).unwrap();
        close("dhidden", &found, &expected[0], 5e-6);
        let plain = head_taps(&hidden, &weight, &targets, &options).unwrap();
        assert_eq!((taps.logprob, taps.entropy), (plain.logprob, plain.entropy));
    }
}

#[test]
fn slopes_do_not_depend_on_the_number_of_threads() {
    let (hidden, weight, targets) = inputs();
    let options = HeadOptions::default();
    same_on_two_threads(|| vec![head_taps_and_slopes(&hidden, &weight, &targets, &options).unwrap().1]);
}

#[test]
fn whole_logits_agree_with_their_twin() {
    let (hidden, weight, targets) = inputs();
    for options in variants() {
        let expected = twin(&leaf(&hidden), &leaf(&weight), &targets, &options).logits;
        close("logits", &logits(&hidden, &weight, &options).unwrap(), &expected, 2e-6);
    }
}

#[test]
fn a_certain_head_has_a_log_probability_of_zero_and_no_entropy() {
    let hidden = Tensor::new(&[[1f32]], &Device::Cpu).unwrap();
    let weight = Tensor::new(&[[500f32], [-500.0], [0.0]], &Device::Cpu).unwrap();
    let options = HeadOptions { taps: ALL, ..HeadOptions::default() };
    let taps = head_taps(&hidden, &weight, &[0], &options).unwrap();
    assert_eq!((taps.logprob[0], taps.entropy.unwrap()[0], taps.log_sum_square.unwrap()[0]), (0.0, 0.0, 0.0));
    assert_eq!(head_taps(&hidden, &weight, &[1], &options).unwrap().logprob[0], -1000.0);
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (hidden, weight, targets) = inputs();
    let weight = weight.to_dtype(DType::BF16).unwrap();
    let options = variants()[0];
    let seed = vec![1f32; SIDES.0];
    same_on_two_threads(|| {
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        let seeds = HeadSeeds { logprob: Some(&seed), entropy: Some(&seed), mean_logprob: None };
        let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, true).unwrap();
        vec![tensor(&taps.logprob), tensor(&taps.entropy.unwrap()), dh, dw.unwrap()]
    });
}

#[test]
fn words_past_the_vocabulary_and_missing_taps_are_refused() {
    let (hidden, weight, targets) = inputs();
    let options = HeadOptions::default();
    let past = vec![SIDES.2 as u32; SIDES.0];
    assert!(matches!(head_taps(&hidden, &weight, &past, &options), Err(Error::Argument(_))));
    assert!(matches!(head_taps(&hidden, &weight, &targets[1..], &options), Err(Error::Shape(_))));
    let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
    let seed = numbers(&normal("e", &[SIDES.0])).iter().map(|number| *number as f32).collect::<Vec<_>>();
    let seeds = HeadSeeds { entropy: Some(&seed), ..HeadSeeds::default() };
    let refused = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false);
    assert!(matches!(refused, Err(Error::Argument(_))));
}

#[test]
fn no_rows_have_no_taps() {
    let (_, weight, _) = inputs();
    let taps = head_taps(&normal("none", &[0, SIDES.1]), &weight, &[], &HeadOptions::default()).unwrap();
    assert!(taps.logprob.is_empty());
}
