//! The native twins of the benchmark do what the components do, and its arithmetic is right.

mod native;
mod pair;
mod statistics;

use std::sync::Arc;

use pair::{Pair, TWINS, compare, random_batch};
use statistics::Spread;
use tunebox_compute::Device;
use tunebox_model::{Model, Source};
use tunebox_training::configuration::RandomRecords;
use tunebox_training::sample;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[test]
fn a_component_learns_to_the_same_bits_as_its_native_twin() {
    let place = tempfile::tempdir().unwrap();
    let folder = sample::unpack(place.path()).unwrap().join("model");
    let source = Source::open(&folder.display().to_string(), true).unwrap();
    let model = Arc::new(Model::open(&source, &Device::Cpu).unwrap());
    for twin in &TWINS {
        let mut pair = Pair::start(twin, &model, 4).unwrap();
        for step in 0..3 {
            let sizes = RandomRecords { records: 3, sequence: 24, seed: step };
            let batch = random_batch(twin.shape, sizes, model.configuration.vocabulary).unwrap();
            let timed = pair.step(&batch, step % 2 == 0).unwrap();
            assert!(timed.calls > 10 && timed.guest < timed.component && timed.native > 0.0, "{}", twin.name);
        }
    }
}

#[test]
fn numbers_that_differ_are_named() {
    compare(&[("loss", 0.5)], &[("loss", 0.500_000_5), ("entropy", 1.0)]).unwrap();
    for component in [&[("loss", 0.5001)][..], &[("loss", f64::NAN)], &[("entropy", 0.5)]] {
        assert!(compare(&[("loss", 0.5)], component).unwrap_err().to_string().contains("`loss`"));
    }
}

#[test]
fn quartiles_lie_between_the_numbers_in_proportion() {
    let spread = Spread::of([4.0, 1.0, 2.0, 3.0]);
    assert_eq!((spread.low, spread.median, spread.high), (1.75, 2.5, 3.25));
    let one = Spread::of([7.0]);
    assert_eq!((one.low, one.median, one.high), (7.0, 7.0, 7.0));
    assert!(Spread::of([]).median.is_nan());
}
