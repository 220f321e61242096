//! AdamW and the clip against numbers that torch and `mlx` give (in f64; here f32, hence the tolerance).
//! `tests/optimizers.rs` has the other optimizers.

use candle_core::{DType, Device};

use super::*;
use crate::Weight;
use crate::fused::reference::{bits, normal};
use crate::parity::{TestDevice, on_each_device};

/// Three numbers after each of three steps at rate 0.01 from fixed values and gradients.
fn three_steps(on: &TestDevice, settings: AdamWSettings) -> Vec<Vec<f32>> {
    let parameters =
        Parameters::new(vec![("w".into(), vec![3])], &on.device).unwrap().with_operand_copy(on.dtype).unwrap();
    let tensor = |numbers: [f32; 3]| Tensor::new(&numbers, &Device::Cpu).unwrap();
    parameters.set(0, &tensor([0.5, -0.3, 0.1])).unwrap();
    let mut optimizer = Optimizer::new(UpdateRule::AdamW(settings).into(), &parameters).unwrap();
    let gradients = [[0.1, -0.2, 0.0], [0.3, 0.1, -0.05], [-0.2, 0.05, 0.4]];
    let step = |gradient| {
        parameters.clear_gradients().unwrap();
        parameters.accumulate(0, &tensor(gradient)).unwrap();
        optimizer.step(&parameters, 1e-2, 0.0).unwrap();
        parameters.value_on_cpu(0).unwrap().to_vec1().unwrap()
    };
    gradients.map(step).to_vec()
}

fn agrees(on: &TestDevice, settings: AdamWSettings, expected: [[f64; 3]; 3]) {
    for (step, (found, expected)) in three_steps(on, settings).iter().zip(expected).enumerate() {
        for (a, b) in found.iter().zip(expected) {
            assert!((f64::from(*a) - b).abs() < on.tolerance, "step {}: {a}, not {b}", step + 1);
        }
    }
}

on_each_device! {
    fn three_steps_with_decay_agree_with_torch(on) tolerance(1e-7, 1e-7) {
        let expected = [
            [0.489500001, -0.2897, 0.0999],
            [0.47983269, -0.28674693, 0.107241466],
            [0.47677382, -0.285846295, 0.101508491],
        ];
        agrees(on, AdamWSettings { weight_decay: 0.1, ..AdamWSettings::default() }, expected);
    }

    fn three_steps_with_a_tiny_epsilon_agree_with_torch(on) tolerance(1e-7, 1e-7) {
        let expected =
            [[0.49, -0.29, 0.1], [0.480913079, -0.287316306, 0.1073496], [0.478347301, -0.286691142, 0.101859095]];
        agrees(on, AdamWSettings { beta2: 0.95, epsilon: 1e-12, ..AdamWSettings::default() }, expected);
    }

    fn three_steps_without_bias_correction_agree_with_mlx(on) tolerance(1e-7, 1e-7) {
        let expected = [
            [0.468377323, -0.268377273, 0.1],
            [0.429375412, -0.257059053, 0.131622577],
            [0.416608578, -0.254020164, 0.103773893],
        ];
        agrees(on, AdamWSettings { bias_correction: false, ..AdamWSettings::default() }, expected);
    }
}

#[test]
fn clipping_scales_all_gradients_by_their_common_norm() {
    let slots = vec![("a".into(), vec![2]), ("b".into(), vec![1, 2])];
    let parameters = Parameters::new(slots, &Device::Cpu).unwrap();
    parameters.accumulate(0, &Tensor::new(&[3f32, 4.0], &Device::Cpu).unwrap()).unwrap();
    parameters.accumulate(1, &Tensor::new(&[[0f32, 12.0]], &Device::Cpu).unwrap()).unwrap();
    assert_eq!(clip_gradients(&parameters, 1.0).unwrap(), 13.0);
    let found = [0, 1].map(|slot| parameters.gradient(slot).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap());
    for (a, b) in found.concat().into_iter().zip([0.230769213, 0.307692284, 0.0, 0.923076852]) {
        assert!((f64::from(a) - b).abs() < 1e-7, "{a}, not {b}");
    }
    for limit in [2.0, 0.0, 2.0] {
        let norm = clip_gradients(&parameters, limit).unwrap();
        assert!((norm - 1.0).abs() < 1e-6, "{norm}: a norm below the limit stays, and 0 is no limit");
    }
}

/// Parameters of a few odd lengths with values and gradients, the same on every device.
fn student(device: &Device, activations: DType) -> Parameters {
    let list = [("a.lora_A.weight", 3), ("a.lora_B.weight", 70_001), ("c", 16)]
        .map(|(name, count)| (name.to_owned(), vec![count]));
    let parameters = Parameters::new(list.to_vec(), device).unwrap().with_operand_copy(activations).unwrap();
    for (index, slot) in parameters.slots().iter().enumerate() {
        parameters.set(index, &normal(&slot.name, &slot.shape)).unwrap();
        parameters.accumulate(index, &normal("gradient", &slot.shape)).unwrap();
    }
    parameters
}

fn with_decay(parameters: &Parameters) -> Optimizer {
    let rule = UpdateRule::AdamW(AdamWSettings { weight_decay: 0.1, ..AdamWSettings::default() });
    Optimizer::new(rule.into(), parameters).unwrap()
}

/// The bits of the state, by name.
fn state_bits(optimizer: &Optimizer, parameters: &Parameters) -> Vec<(&'static str, Vec<u32>)> {
    optimizer.state(parameters).unwrap().into_iter().map(|(name, tensor)| (name, bits(&tensor))).collect()
}

on_each_device! {
    fn steps_have_the_bits_of_the_cpu(on) tolerance(0.0, 0.0) {
        let (here, there) = (student(&on.device, on.dtype), student(&Device::Cpu, DType::F32));
        let (mut fast, mut slow) = (with_decay(&here), with_decay(&there));
        for _ in 0..3 {
            let (found, wanted) = (fast.step(&here, 1e-2, 0.0).unwrap(), slow.step(&there, 1e-2, 0.0).unwrap());
            assert!((found / wanted - 1.0).abs() < 1e-12, "{found}, not {wanted}");
        }
        assert_eq!(bits(&here.snapshot().unwrap()), bits(&there.snapshot().unwrap()));
        let operand = Weight::from(here.operand(1).unwrap()).to_tensor().unwrap();
        let rounded = there.value(1).unwrap().to_dtype(on.operands()).unwrap().to_dtype(DType::F32).unwrap();
        assert_eq!(bits(&operand.to_dtype(DType::F32).unwrap()), bits(&rounded));
        assert_eq!((state_bits(&fast, &here), fast.steps()), (state_bits(&slow, &there), slow.steps()));
    }

    /// The factors B are updated apart from their neighbours, here on every device.
    fn steps_with_a_rate_for_b_have_the_bits_of_the_cpu(on) tolerance(0.0, 0.0) {
        let (here, there) = (student(&on.device, on.dtype), student(&Device::Cpu, DType::F32));
        let settings = OptimizerSettings { b_rate_ratio: 16.0, ..OptimizerSettings::default() };
        let [mut fast, mut slow] = [&here, &there].map(|parameters| Optimizer::new(settings, parameters).unwrap());
        for _ in 0..3 {
            fast.step(&here, 1e-2, 0.0).unwrap();
            slow.step(&there, 1e-2, 0.0).unwrap();
        }
        assert_eq!(bits(&here.snapshot().unwrap()), bits(&there.snapshot().unwrap()));
        assert_eq!(state_bits(&fast, &here), state_bits(&slow, &there));
    }

    /// With a limit, a step is that of the clipped gradient.
    fn a_step_clips_first(on) tolerance(1e-7, 1e-7) {
        let (here, there) = (student(&on.device, on.dtype), student(&Device::Cpu, DType::F32));
        with_decay(&here).step(&here, 1e-2, 0.5).unwrap();
        clip_gradients(&there, 0.5).unwrap();
        with_decay(&there).step(&there, 1e-2, 0.0).unwrap();
        on.close("values", &here.snapshot().unwrap(), &there.snapshot().unwrap());
    }

    fn rules_without_a_kernel_run_on_the_cpu_alone(on) tolerance(0.0, 0.0) {
        let parameters = student(&on.device, on.dtype);
        let rules = [
            UpdateRule::AdamW8Bit(AdamWSettings::default()),
            UpdateRule::Lion(LionSettings::default()),
            UpdateRule::Muon(MuonSettings::default()),
            UpdateRule::Sgd(SgdSettings::default()),
        ];
        for rule in rules {
            let found = Optimizer::new(rule.into(), &parameters).map(|_| ());
            assert_eq!(found.is_ok(), on.device.is_cpu(), "{rule:?}");
        }
    }

    fn a_norm_that_is_not_finite_changes_nothing(on) tolerance(0.0, 0.0) {
        for number in [f32::NAN, f32::INFINITY] {
            let parameters = student(&on.device, on.dtype);
            let mut optimizer = with_decay(&parameters);
            let before = bits(&parameters.snapshot().unwrap());
            let broken = Tensor::full(number, 16, &Device::Cpu).unwrap();
            parameters.accumulate(2, &broken).unwrap();
            assert!(!optimizer.step(&parameters, 1e-2, 1.0).unwrap().is_finite());
            assert_eq!(bits(&parameters.snapshot().unwrap()), before);
            let state = state_bits(&optimizer, &parameters);
            assert!(optimizer.steps() == 0 && state.iter().all(|(_, bits)| bits.iter().all(|bits| *bits == 0)));
            parameters.clear_gradients().unwrap();
            assert_eq!((optimizer.step(&parameters, 1e-2, 1.0).unwrap(), optimizer.steps()), (0.0, 1));
        }
    }

    /// A checkpoint of one device goes on on another.
    fn an_optimizer_taken_up_from_its_state_goes_on_exactly(on) tolerance(0.0, 0.0) {
        let (here, there) = (student(&on.device, on.dtype), student(&Device::Cpu, DType::F32));
        let (mut first, mut second) = (with_decay(&here), with_decay(&there));
        first.step(&here, 0.1, 0.0).unwrap();
        let (state, steps) = (first.state(&here).unwrap(), first.steps());
        second.restore(&there, &state, steps).unwrap();
        let mut third = with_decay(&here);
        third.restore(&here, &state, steps).unwrap();
        for (index, slot) in there.slots().iter().enumerate() {
            there.set(index, &here.value_on_cpu(index).unwrap().reshape(slot.shape.as_slice()).unwrap()).unwrap();
        }
        third.step(&here, 0.1, 0.0).unwrap();
        second.step(&there, 0.1, 0.0).unwrap();
        assert_eq!(bits(&here.snapshot().unwrap()), bits(&there.snapshot().unwrap()));
        let short = Tensor::zeros(5, DType::F32, &Device::Cpu).unwrap();
        assert!(first.restore(&here, &[("first", short), state[1].clone()], 1).is_err());
    }
}

#[test]
fn constants_out_of_range_are_refused() {
    for settings in [
        AdamWSettings { beta1: 1.0, ..AdamWSettings::default() },
        AdamWSettings { epsilon: 0.0, ..AdamWSettings::default() },
        AdamWSettings { weight_decay: f64::NAN, ..AdamWSettings::default() },
    ] {
        let parameters = Parameters::new(Vec::new(), &Device::Cpu).unwrap();
        assert!(Optimizer::new(UpdateRule::AdamW(settings).into(), &parameters).is_err(), "{settings:?}");
    }
}
