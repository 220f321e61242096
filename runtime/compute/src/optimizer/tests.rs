//! The optimiser and the clip against numbers that torch and `mlx` give (in f64; here f32, hence the tolerance).

use super::*;

/// Three numbers after each of three steps at rate 0.01 from fixed values and gradients.
fn three_steps(settings: AdamWSettings) -> Vec<Vec<f32>> {
    let parameters = Parameters::new(vec![("w".into(), vec![3])], &Device::Cpu).unwrap();
    let tensor = |numbers: [f32; 3]| Tensor::new(&numbers, &Device::Cpu).unwrap();
    parameters.set(0, &tensor([0.5, -0.3, 0.1])).unwrap();
    let mut optimizer = AdamW::new(settings, 3, &Device::Cpu).unwrap();
    let gradients = [[0.1, -0.2, 0.0], [0.3, 0.1, -0.05], [-0.2, 0.05, 0.4]];
    let step = |gradient| {
        parameters.clear_gradients().unwrap();
        parameters.accumulate(0, &tensor(gradient)).unwrap();
        optimizer.update(&parameters, 1e-2).unwrap();
        parameters.value(0).unwrap().to_vec1().unwrap()
    };
    gradients.map(step).to_vec()
}

fn agrees(settings: AdamWSettings, expected: [[f64; 3]; 3]) {
    for (step, (found, expected)) in three_steps(settings).iter().zip(expected).enumerate() {
        for (a, b) in found.iter().zip(expected) {
            assert!((f64::from(*a) - b).abs() < 1e-7, "step {}: {a}, not {b}", step + 1);
        }
    }
}

#[test]
fn three_steps_with_decay_agree_with_torch() {
    let expected = [
        [0.489500001, -0.2897, 0.0999],
        [0.47983269, -0.28674693, 0.107241466],
        [0.47677382, -0.285846295, 0.101508491],
    ];
    agrees(AdamWSettings { weight_decay: 0.1, ..AdamWSettings::default() }, expected);
}

#[test]
fn three_steps_with_a_tiny_epsilon_agree_with_torch() {
    let expected =
        [[0.49, -0.29, 0.1], [0.480913079, -0.287316306, 0.1073496], [0.478347301, -0.286691142, 0.101859095]];
    agrees(AdamWSettings { beta2: 0.95, epsilon: 1e-12, ..AdamWSettings::default() }, expected);
}

#[test]
fn three_steps_without_bias_correction_agree_with_mlx() {
    let expected = [
        [0.468377323, -0.268377273, 0.1],
        [0.429375412, -0.257059053, 0.131622577],
        [0.416608578, -0.254020164, 0.103773893],
    ];
    agrees(AdamWSettings { bias_correction: false, ..AdamWSettings::default() }, expected);
}

#[test]
fn clipping_scales_all_gradients_by_their_common_norm() {
    let list = vec![("a".into(), vec![2]), ("b".into(), vec![1, 2])];
    let parameters = Parameters::new(list, &Device::Cpu).unwrap();
    parameters.accumulate(0, &Tensor::new(&[3f32, 4.0], &Device::Cpu).unwrap()).unwrap();
    parameters.accumulate(1, &Tensor::new(&[[0f32, 12.0]], &Device::Cpu).unwrap()).unwrap();
    assert_eq!(clip(&parameters, 1.0).unwrap(), 13.0);
    let found: Vec<f32> = parameters.gradients().to_vec1().unwrap();
    for (a, b) in found.iter().zip([0.230769213, 0.307692284, 0.0, 0.923076852]) {
        assert!((f64::from(*a) - b).abs() < 1e-7, "{a}, not {b}");
    }
    assert!((clip(&parameters, 2.0).unwrap() - 1.0).abs() < 1e-6, "a norm below the limit stays");
}

#[test]
fn an_optimizer_taken_up_from_its_state_goes_on_exactly() {
    let parameters = Parameters::new(vec![("w".into(), vec![2])], &Device::Cpu).unwrap();
    parameters.accumulate(0, &Tensor::new(&[1f32, -3.0], &Device::Cpu).unwrap()).unwrap();
    let mut first = AdamW::new(AdamWSettings::default(), 2, &Device::Cpu).unwrap();
    first.update(&parameters, 0.1).unwrap();
    let mut second = AdamW::new(AdamWSettings::default(), 2, &Device::Cpu).unwrap();
    let (m, v, step) = first.state();
    second.restore(&m, &v, step).unwrap();
    let other = parameters.detached_copy().unwrap();
    other.accumulate(0, &parameters.gradient(0).unwrap()).unwrap();
    first.update(&parameters, 0.1).unwrap();
    second.update(&other, 0.1).unwrap();
    assert_eq!(parameters.values().to_vec1::<f32>().unwrap(), other.values().to_vec1::<f32>().unwrap());
}

#[test]
fn constants_out_of_range_are_refused() {
    for settings in [
        AdamWSettings { beta1: 1.0, ..AdamWSettings::default() },
        AdamWSettings { epsilon: 0.0, ..AdamWSettings::default() },
        AdamWSettings { weight_decay: f64::NAN, ..AdamWSettings::default() },
    ] {
        assert!(AdamW::new(settings, 1, &Device::Cpu).is_err(), "{settings:?}");
    }
}
