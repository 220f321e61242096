//! Numbers of PEFT 0.21 for one linear map with y = x·W', loss ½‖y‖², computed in f64.

use tunebox_compute::fused::LowRank;
use tunebox_compute::parameters::{GradientSums, Parameters, TokenParts};
use tunebox_compute::{Device, Tensor};

use crate::adapter::AdapterKind;
use crate::decoder::linear::{Learned, Linear, LowRankPart};
use crate::decoder::linear::{Magnitude, squared_norms};
use crate::merge::effective;

struct Golden {
    y: [f64; 2],
    a: [f64; 6],
    b: [f64; 4],
    merged: [f64; 6],
}

fn tensor(values: &[f32], shape: (usize, usize)) -> Tensor {
    Tensor::from_vec(values.to_vec(), shape, &Device::Cpu).unwrap()
}

fn weight() -> Tensor {
    tensor(&[1.0, -2.0, 0.5, 0.25, 1.5, -1.0], (2, 3))
}

fn near(name: &str, found: &Tensor, wanted: &[f64]) {
    let found = found.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (found, wanted) in found.iter().zip(wanted) {
        let error = (f64::from(*found) - wanted).abs();
        assert!(error < 2e-6 * wanted.abs().max(1.0), "{name}: {found} for {wanted}");
    }
}

/// Builds the linear map of the golden numbers, with slots for A, B and m.
fn setting(kind: AdapterKind) -> (Linear, Parameters, LowRank) {
    let list = vec![("a".to_owned(), vec![2, 3]), ("b".to_owned(), vec![2, 2]), ("m".to_owned(), vec![2])];
    let parameters = Parameters::new(list, &Device::Cpu).unwrap();
    let low = LowRank {
        a: tensor(&[0.1, -0.2, 0.3, 0.4, 0.0, -0.1], (2, 3)),
        b: tensor(&[0.5, -1.0, 1.0, 0.25], (2, 2)),
        scale: kind.scale(4.0, 2) as f32,
    };
    let base_squares = squared_norms(&weight()).unwrap();
    let magnitude = (kind == AdapterKind::Dora).then(|| Magnitude {
        value: (base_squares.sqrt().unwrap() * 1.1).unwrap(),
        slot: 2,
        base_squares,
        norm: None,
    });
    let part = LowRankPart { low: low.clone(), slots: (0, 1), initial: None, magnitude, dropout: None };
    let weight = tunebox_compute::Weight::Tensor(weight());
    let linear = Linear { weight, bias: None, learned: Learned::LowRank(part), decoding: false };
    (linear, parameters, low)
}

fn check(kind: AdapterKind, golden: &Golden) {
    let (linear, parameters, low) = setting(kind);
    let x = tensor(&[1.0, 2.0, -1.0], (1, 3));
    let (y, kept) = linear.forward(&x).unwrap();
    near("y", &y, &golden.y);
    linear.backward(&y, |_| Ok(x.clone()), &kept, true, None, &sums(&parameters, &x)).unwrap();
    near("gradient of A", &parameters.gradient(0).unwrap(), &golden.a);
    near("gradient of B", &parameters.gradient(1).unwrap(), &golden.b);
    let Learned::LowRank(part) = &linear.learned else { panic!("the map has an adapter") };
    let lengths = part.magnitude.as_ref().map(|magnitude| (magnitude.value.clone(), magnitude.base_squares.clone()));
    near("merged", &effective(&weight(), &low, lengths.as_ref()).unwrap(), &golden.merged);
}

#[test]
fn lora_gives_the_golden_numbers() {
    check(
        AdapterKind::Lora,
        &Golden {
            y: [-5.1, 3.3],
            a: [1.5, 3.0, -1.5, 11.85, 23.7, -11.85],
            b: [6.12, -5.1, -3.96, 3.3],
            merged: [0.3, -2.2, 1.0, 0.65, 1.1, -0.45],
        },
    );
}

#[test]
fn rslora_gives_the_golden_numbers() {
    check(
        AdapterKind::RsLora,
        &Golden {
            y: [-5.762_741_7, 2.906_497_12],
            a: [0.071_067_811_9, 0.142_135_624, -0.071_067_811_9, 18.354_698_8, 36.709_397_5, -18.354_698_8],
            b: [9.779_696_96, -8.149_747_47, -4.932_489_17, 4.110_407_64],
            merged: [0.010_050_506_3, -2.282_842_71, 1.207_106_78, 0.815_685_425, 0.934_314_575, -0.222_182_541],
        },
    );
}

#[test]
fn dora_gives_the_golden_numbers() {
    check(
        AdapterKind::Dora,
        &Golden {
            y: [-5.278_556_4, 4.877_154_73],
            a: [8.952_780_16, 17.905_560_3, -8.952_780_16, 14.530_764_6, 29.061_529_2, -14.530_764_6],
            b: [6.556_037_1, -5.463_366_25, -8.649_686_65, 7.208_072_21],
            merged: [0.310_503_318, -2.277_024_33, 1.035_011_06, 0.960_651_69, 1.625_718_24, -0.665_066_554],
        },
    );
}

#[test]
fn dora_gives_the_golden_gradient_of_the_lengths() {
    let (linear, parameters, _) = setting(AdapterKind::Dora);
    let x = tensor(&[1.0, 2.0, -1.0], (1, 3));
    let (y, kept) = linear.forward(&x).unwrap();
    linear.backward(&y, |_| Ok(x.clone()), &kept, false, None, &sums(&parameters, &x)).unwrap();
    near("gradient of m", &parameters.gradient(2).unwrap(), &[11.054_980_9, 11.881_258_4]);
}

/// Sums into the gradient buffer of parameters, over all tokens of `rows`.
fn sums<'a>(parameters: &'a Parameters, rows: &Tensor) -> GradientSums<'a> {
    GradientSums::new(parameters, TokenParts::whole(rows.dims()[0])).unwrap()
}
