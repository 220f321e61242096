//! The head against whole logits in f64.

use candle_core::{D, DType, Device, Var};

use super::super::reference::{gradients, leaf, normal, numbers, same_on_two_threads};
use super::*;
use crate::fused::taps::Tap;
use crate::parity::{TestDevice, on_each_device};
use crate::random::Stream;
use crate::weight::{Format, Packed, Weight};

/// Rows, hidden size and words.
type Sides = (usize, usize, usize);

/// Rows beyond one tile; words beyond one tile a group.
const SIDES: Sides = (261, 19, 4501);
/// Words beyond two tiles of a device, of which the last is less than a vector; rows beyond one block of a device.
const LARGE: [Sides; 2] = [(3, 8, 32_773), (1030, 8, 40)];

/// Options with all taps: plain, with temperature and scale, and with a soft cap too.
fn variants() -> [HeadOptions; 3] {
    let plain = HeadOptions { taps: TapSet::OF_ONE_HEAD, ..HeadOptions::default() };
    [
        plain,
        HeadOptions { inverse_temperature: 1.0 / 0.7, logit_scale: 0.6, ..plain },
        HeadOptions { inverse_temperature: 1.25, soft_cap: Some(3.0), logit_scale: 1.3, ..plain },
    ]
}

/// Returns a target word below `words` for each row.
fn targets((rows, _, words): Sides) -> Vec<u32> {
    (0..rows as u32).map(|row| row * 7919 % words as u32).collect()
}

/// Returns hidden states, head and targets of the sides [`SIDES`], on the CPU in f32.
fn inputs() -> (Tensor, Tensor, Vec<u32>) {
    let (rows, hidden, words) = SIDES;
    (normal("hidden", &[rows, hidden]), normal("head", &[words, hidden]), targets(SIDES))
}

/// Returns hidden states on the device and in the type of a test, and a head on that device in type `stored`.
fn inputs_on(on: &TestDevice, (rows, hidden, words): Sides, stored: DType) -> (Tensor, Tensor) {
    let weight = on.back(&on.normal("head", &[words, hidden])).to_dtype(stored).unwrap();
    (on.normal("hidden", &[rows, hidden]), on.put(&weight))
}

/// Returns the combinations to test: options, the type that the head is stored in, and sides.
fn cases() -> Vec<(HeadOptions, DType, Sides)> {
    let [plain, warm, capped] = variants();
    let mut cases = vec![(plain, DType::F32, SIDES), (warm, DType::BF16, SIDES), (capped, DType::F32, SIDES)];
    cases.extend(LARGE.map(|sides| (warm, DType::F32, sides)));
    cases
}

/// Returns the factor of the tolerance: 3 on a device, which sums the numbers of a product one after another, else 1.
fn times(on: &TestDevice) -> f64 {
    if on.device.is_cpu() { 1.0 } else { 3.0 }
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

/// Computes the taps from whole logits.
fn reference(hidden: &Var, weight: &Var, targets: &[u32], options: &HeadOptions) -> Twin {
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

/// Returns gradients of a loss by one tap alone.
fn seed_of(tap: Tap, seeds: &[f32]) -> TapGradients<'_> {
    TapGradients::from_iter([(tap, seeds)])
}

/// Returns a vector on the CPU.
fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::new(numbers, &Device::Cpu).unwrap()
}

// Logits and their sums are in f32 or f64 whatever the type of the hidden states.
on_each_device! {
    fn every_tap_agrees_with_whole_logits(on) tolerance(1e-6, 1e-6) {
        for (options, stored, sides) in cases() {
            let ((hidden, weight), targets) = (inputs_on(on, sides, stored), targets(sides));
            let expected = reference(&on.leaf(&hidden), &on.leaf(&weight), &targets, &options);
            let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
            let check = |what: &str, found: &[f32], expected: &Tensor, share: f64| {
                on.nearly(what, &tensor(found), expected, share * times(on));
            };
            let tap = |tap| taps.values.get(tap).unwrap();
            check("logprob", tap(Tap::Logprob), &expected.logprob, 1.0);
            check("logsumexp", &taps.logsumexp, &expected.log, 1.0);
            check("entropy", tap(Tap::Entropy), &expected.entropy, 2.0);
            check("log_sum_square", tap(Tap::LogSumSquare), &expected.log_sum_square, 2.0);
            check("mean_logprob", tap(Tap::MeanLogprob), &expected.mean_logprob, 2.0);
            // The mean is small beside what it is the mean of.
            let share = if on.device.is_cpu() { 2.0 } else { 7.0 };
            check("mean_logit", tap(Tap::MeanLogit), &expected.logits.mean(1).unwrap(), share);
        }
    }

    fn the_most_likely_word_is_told_from_the_others(on) tolerance(0.0, 0.0) {
        let (hidden, weight) = inputs_on(on, SIDES, DType::F32);
        let options = variants()[0];
        let best = reference(&on.leaf(&hidden), &on.leaf(&weight), &[0; SIDES.0], &options).logits.argmax(1).unwrap();
        let best: Vec<u32> = best.to_vec1().unwrap();
        let mut targets = best.clone();
        targets.iter_mut().step_by(2).for_each(|target| *target = (*target + 1) % SIDES.2 as u32);
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        let expected: Vec<f32> = (0..SIDES.0).map(|row| if row % 2 == 0 { 0.0 } else { 1.0 }).collect();
        assert_eq!(taps.values.get(Tap::TopOne), Some(&expected));
    }
}

// In bf16 the gradients of the logits are rounded before the second product, and the result, by up to 2⁻⁸ of
// themselves.
on_each_device! {
    fn the_gradients_of_three_taps_agree_with_autograd(on) tolerance(5e-6, 6e-3) {
        for (options, stored, sides) in cases() {
            let ((hidden, weight), targets) = (inputs_on(on, sides, stored), targets(sides));
            let seeds = ["g", "e", "m"].map(|name| normal(name, &[sides.0]).to_vec1::<f32>().unwrap());
            let (h64, w64) = (on.leaf(&hidden), on.leaf(&weight));
            let expected = reference(&h64, &w64, &targets, &options);
            let stacked = Tensor::stack(&[expected.logprob, expected.entropy, expected.mean_logprob], 0).unwrap();
            let references = gradients(&stacked, &tensor(&seeds.concat()).reshape((3, sides.0)).unwrap(), &[&h64, &w64]);
            let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
            let given = [Tap::Logprob, Tap::Entropy, Tap::MeanLogprob].into_iter().zip(seeds.iter().map(Vec::as_slice)).collect();
            let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, given, true).unwrap();
            assert_eq!(dh.dtype(), on.dtype);
            on.nearly("dhidden", &dh, &references[0], times(on));
            on.nearly("dweight", &dw.unwrap(), &references[1], times(on));
        }
    }

    fn a_lone_seed_of_the_log_probability_agrees_with_autograd(on) tolerance(5e-6, 3e-3) {
        let ((hidden, weight), targets) = (inputs_on(on, SIDES, DType::F32), targets(SIDES));
        let options = HeadOptions::default();
        let seed = normal("g", &[SIDES.0]);
        let (h64, w64) = (on.leaf(&hidden), on.leaf(&weight));
        let expected = gradients(&reference(&h64, &w64, &targets, &options).logprob, &seed, &[&h64]);
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        assert!(taps.values.get(Tap::Entropy).is_none(), "what is not asked for is not there");
        let numbers: Vec<f32> = seed.to_vec1().unwrap();
        let seeds = seed_of(Tap::Logprob, &numbers);
        let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false).unwrap();
        assert!(dw.is_none());
        on.nearly("dhidden", &dh, &expected[0], times(on));
    }

    fn logprob_gradients_scaled_by_seeds_agree_with_autograd_and_bring_the_same_taps(on) tolerance(5e-6, 3e-3) {
        for (options, stored, sides) in cases() {
            let ((hidden, weight), targets) = (inputs_on(on, sides, stored), targets(sides));
            let seed = normal("g", &[sides.0]);
            let (h64, w64) = (on.leaf(&hidden), on.leaf(&weight));
            let expected = gradients(&reference(&h64, &w64, &targets, &options).logprob, &seed, &[&h64]);
            let (taps, logprob_gradients) = head_taps_with_gradient(&hidden, &weight, &targets, &options).unwrap();
            let found = scale_head_gradient(&logprob_gradients, &seed.to_vec1::<f32>().unwrap(), on.dtype).unwrap();
            assert_eq!((logprob_gradients.dtype(), found.dtype()), (DType::F32, on.dtype));
            on.nearly("dhidden", &found, &expected[0], times(on));
            let plain = head_taps(&hidden, &weight, &targets, &options).unwrap();
            assert_eq!(taps.values, plain.values);
        }
    }
}

/// Returns a head of `words` words and hidden size 64 in Q8_0: integers from −127 up, times 2⁻⁶, so that 16 bits hold
/// each of them.
fn quantized(words: usize) -> Weight {
    let mut stream = Stream::new(3, "head");
    let block = |stream: &mut Stream| {
        let mut bytes = vec![0x00, 0x24];
        bytes.extend((0..32).map(|_| (stream.below(255) as i32 - 127) as i8 as u8));
        bytes
    };
    let bytes: Vec<u8> = (0..2 * words).flat_map(|_| block(&mut stream)).collect();
    Weight::Packed(Packed::new(bytes.into(), Format::Q8_0, words, 64).unwrap().into())
}

on_each_device! {
    /// Of two tiles of a device and a little more, with targets in each.
    fn a_quantized_head_is_met_as_it_is(on) tolerance(5e-6, 3e-3) {
        let (words, targets) = (16_500, [0, 16_383, 16_384, 16_499]);
        let whole = quantized(words);
        let weight = whole.to_device(&on.device, on.dtype).unwrap();
        let hidden = on.place(&(normal("hidden", &[4, 64]) * 0.05).unwrap());
        let options = HeadOptions { soft_cap: Some(9.0), ..HeadOptions::default() };
        let (h64, w64) = (on.leaf(&hidden), leaf(&whole.to_tensor().unwrap()));
        let expected = reference(&h64, &w64, &targets, &options);
        let seed = normal("g", &[4]);
        let references = gradients(&expected.logprob, &seed, &[&h64]);
        let seed: Vec<f32> = seed.to_vec1().unwrap();
        // For a few rows the CPU rounds hidden states to 16 bits, and multiplies whole numbers.
        let share = if on.device.is_cpu() { 3e-5 } else { 6e-6 };
        on.within("logits", &logits(&hidden, &weight, &options).unwrap(), &expected.logits, share);
        let (taps, logprob_gradients) = head_taps_with_gradient(&hidden, &weight, &targets, &options).unwrap();
        on.within("logprob", &tensor(taps.values.get(Tap::Logprob).unwrap()), &expected.logprob, 1e-6 * times(on));
        let found = scale_head_gradient(&logprob_gradients, &seed, on.dtype).unwrap();
        on.nearly("logprob_gradients", &found, &references[0], times(on));
        let seeds = seed_of(Tap::Logprob, &seed);
        let (dh, _) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false).unwrap();
        on.nearly("dhidden", &dh, &references[0], times(on));
    }
}

#[test]
fn logprob_gradients_do_not_depend_on_the_number_of_threads() {
    let (hidden, weight, targets) = inputs();
    let options = HeadOptions::default();
    same_on_two_threads(|| vec![head_taps_with_gradient(&hidden, &weight, &targets, &options).unwrap().1]);
}

on_each_device! {
    fn whole_logits_agree_with_their_twin(on) tolerance(2e-6, 2e-6) {
        for (options, stored, sides) in cases() {
            let (hidden, weight) = inputs_on(on, sides, stored);
            let expected = reference(&on.leaf(&hidden), &on.leaf(&weight), &targets(sides), &options).logits;
            on.nearly("logits", &logits(&hidden, &weight, &options).unwrap(), &expected, times(on));
        }
    }

    fn a_certain_head_has_a_log_probability_of_zero_and_no_entropy(on) tolerance(0.0, 0.0) {
        let hidden = on.place(&Tensor::new(&[[1f32]], &Device::Cpu).unwrap());
        let weight = on.place(&Tensor::new(&[[500f32], [-500.0], [0.0]], &Device::Cpu).unwrap());
        let options = HeadOptions { taps: TapSet::OF_ONE_HEAD, ..HeadOptions::default() };
        let taps = head_taps(&hidden, &weight, &[0], &options).unwrap();
        for tap in [Tap::Logprob, Tap::Entropy, Tap::LogSumSquare] {
            assert_eq!(taps.values.get(tap), Some(&vec![0.0]), "{tap:?}");
        }
        let taps = head_taps(&hidden, &weight, &[1], &options).unwrap();
        assert_eq!(taps.values.get(Tap::Logprob), Some(&vec![-1000.0]));
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (hidden, weight, targets) = inputs();
    let weight = weight.to_dtype(DType::BF16).unwrap();
    let options = variants()[0];
    let seed = vec![1f32; SIDES.0];
    same_on_two_threads(|| {
        let taps = head_taps(&hidden, &weight, &targets, &options).unwrap();
        let seeds = [Tap::Logprob, Tap::Entropy].into_iter().map(|tap| (tap, seed.as_slice())).collect();
        let (dh, dw) = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, true).unwrap();
        let [logprob, entropy] = [Tap::Logprob, Tap::Entropy].map(|tap| tensor(taps.values.get(tap).unwrap()));
        vec![logprob, entropy, dh, dw.unwrap()]
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
    let seeds = seed_of(Tap::Entropy, &seed);
    let refused = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false);
    assert!(matches!(refused, Err(Error::Argument(_))));
    let seeds = seed_of(Tap::TopOne, &seed);
    let refused = head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false);
    assert!(matches!(refused, Err(Error::Argument(_))));
}

on_each_device! {
    fn no_rows_have_no_taps(on) tolerance(0.0, 0.0) {
        let (hidden, weight) = inputs_on(on, (0, 19, 40), DType::F32);
        let options = HeadOptions { taps: TapSet::OF_ONE_HEAD, ..HeadOptions::default() };
        let (taps, logprob_gradients) = head_taps_with_gradient(&hidden, &weight, &[], &options).unwrap();
        assert!(taps.values.iter().all(|(_, values)| values.is_empty()) && taps.values.set() == TapSet::OF_ONE_HEAD);
        assert_eq!(logprob_gradients.dims(), [0, 19]);
        let (seeds, taps) = (TapGradients::default(), head_taps(&hidden, &weight, &[], &options).unwrap());
        let (dh, dw) = head_taps_backward(&hidden, &weight, &[], &options, &taps, seeds, true).unwrap();
        assert_eq!((dh.dims(), dw.map(|dw| numbers(&on.back(&dw)))), (&[0, 19][..], Some(vec![0.0; 40 * 19])));
    }
}

#[test]
fn a_head_stops_between_two_blocks_of_rows_at_its_deadline() {
    let (hidden, head, targets) = inputs();
    let (before, late) =
        (HeadOptions::default(), HeadOptions { deadline: Some(Instant::now()), ..HeadOptions::default() });
    let taps = head_taps(&hidden, &head, &targets, &before).unwrap();
    let seeds = vec![1.0; targets.len()];
    let seeds: TapGradients<'_> = [(Tap::Logprob, seeds.as_slice())].into_iter().collect();
    assert!(matches!(head_taps(&hidden, &head, &targets, &late), Err(Error::PastDeadline)));
    let back = head_taps_backward(&hidden, &head, &targets, &late, &taps, seeds, false);
    assert!(matches!(back, Err(Error::PastDeadline)));
}
