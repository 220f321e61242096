//! Every optimizer against numbers of formulas in f64, resumed, and on several threads.
//!
//! The table is `golden/optimizers.jsonl`; `golden/optimizers.py` says where the formulas come from.

use serde_json::Value;
use tunebox_compute::optimizer::{
    AdamWSettings, LionSettings, MuonSettings, Optimizer, OptimizerKind, OptimizerSettings, SgdSettings, UpdateRule,
};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::{DType, Device, Tensor};

use crate::support::golden::root;

/// How far a value may lie from the table's; values are below 1, and f32 has 6e-8 there.
const TOLERANCE: f64 = 2e-6;

/// A row of the table.
struct Row(Value);

impl Row {
    fn all() -> Vec<Self> {
        let text = std::fs::read_to_string(root().join("tests/golden/optimizers.jsonl")).unwrap();
        text.lines().map(|line| Self(serde_json::from_str(line).unwrap())).collect()
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.0.get(key).map_or(default, |value| value.as_f64().unwrap())
    }

    fn settings(&self) -> OptimizerSettings {
        let weight_decay = self.number("weight-decay", 0.0);
        let nesterov = |default| self.0.get("nesterov").map_or(default, |value| value.as_bool().unwrap());
        let adamw = AdamWSettings {
            beta1: self.number("beta1", 0.9),
            beta2: self.number("beta2", 0.999),
            epsilon: self.number("epsilon", 1e-8),
            weight_decay,
            bias_correction: true,
        };
        let rule = match self.0["optimizer"].as_str().unwrap() {
            "adamw" => UpdateRule::AdamW(adamw),
            "adamw-8bit" => UpdateRule::AdamW8Bit(adamw),
            "lion" => {
                let [beta1, beta2] = [self.number("beta1", 0.9), self.number("beta2", 0.99)];
                UpdateRule::Lion(LionSettings { beta1, beta2, weight_decay })
            }
            "muon" => {
                let momentum = self.number("momentum", 0.95);
                UpdateRule::Muon(MuonSettings { momentum, nesterov: nesterov(true), adamw })
            }
            _ => {
                let momentum = self.number("momentum", 0.0);
                UpdateRule::Sgd(SgdSettings { momentum, nesterov: nesterov(false), weight_decay })
            }
        };
        OptimizerSettings { rule, b_rate_ratio: self.number("b-rate-ratio", 1.0) }
    }

    /// The parameters with their first values.
    fn parameters(&self) -> Parameters {
        let slot = |slot: &Value| {
            let shape = slot[1].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
            (slot[0].as_str().unwrap().to_owned(), shape)
        };
        let slots = self.0["slots"].as_array().unwrap().iter().map(slot).collect();
        let parameters = Parameters::new(slots, &Device::Cpu).unwrap();
        for_each_slot(&parameters, 1, |index, tensor| parameters.set(index, tensor).unwrap());
        parameters
    }

    /// Takes the step number `step`, counted from 1.
    fn step(&self, optimizer: &mut Optimizer, parameters: &Parameters, step: u32) {
        gradients(parameters, step);
        optimizer.step(parameters, self.number("rate", 0.0) / f64::from(step), 0.0).unwrap();
    }
}

/// The numbers of the table's generator: in [-1, 1), of 20 bits.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut seed = seed;
    let number = |at: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = f64::from(seed >> 12) / f64::from(1 << 19) - 1.0;
        (number / f64::from(1_u32 << (at % 2 * (at % 7)))) as f32
    };
    (0..count).map(number).collect()
}

/// Calls `work` with the index of every slot and its part of the numbers of `seed`.
fn for_each_slot(parameters: &Parameters, seed: u32, work: impl Fn(usize, &Tensor)) {
    let numbers = numbers(seed, parameters.len());
    for (index, slot) in parameters.slots().iter().enumerate() {
        let own = &numbers[slot.offset..slot.offset + slot.count()];
        work(index, &Tensor::from_slice(own, slot.shape.as_slice(), &Device::Cpu).unwrap());
    }
}

/// Replaces the gradients by those of the step number `step`, counted from 1.
fn gradients(parameters: &Parameters, step: u32) {
    parameters.clear_gradients().unwrap();
    for_each_slot(parameters, step + 1, |index, tensor| parameters.accumulate(index, tensor).unwrap());
}

fn values(parameters: &Parameters) -> Vec<f32> {
    parameters.snapshot().unwrap().to_vec1().unwrap()
}

/// A copy of the state, as a checkpoint keeps it.
fn saved(optimizer: &Optimizer, parameters: &Parameters) -> Vec<(&'static str, Tensor)> {
    let state = optimizer.state(parameters).unwrap().into_iter();
    state.map(|(name, tensor)| (name, tensor.copy().unwrap())).collect()
}

#[test]
fn every_step_gives_the_numbers_of_the_table() {
    let mut kinds = Vec::new();
    for row in Row::all() {
        let (parameters, settings) = (row.parameters(), row.settings());
        kinds.push(settings.kind());
        let mut optimizer = Optimizer::new(settings, &parameters).unwrap();
        for (step, wanted) in (1..).zip(row.0["values"].as_array().unwrap()) {
            row.step(&mut optimizer, &parameters, step);
            let (found, wanted) = (values(&parameters), wanted.as_array().unwrap());
            let places = row.0.get("places").map_or_else(
                || (0..found.len()).collect::<Vec<_>>(),
                |places| places.as_array().unwrap().iter().map(|place| place.as_u64().unwrap() as usize).collect(),
            );
            assert_eq!(places.len(), wanted.len());
            for (place, wanted) in places.into_iter().zip(wanted) {
                let (found, wanted) = (f64::from(found[place]), wanted.as_f64().unwrap());
                assert!((found - wanted).abs() < TOLERANCE, "{settings}: step {step}, {place}: {found}, not {wanted}");
            }
        }
    }
    use OptimizerKind::{AdamW, AdamW8Bit, Lion, Muon, Sgd};
    assert!([AdamW, AdamW8Bit, Lion, Muon, Sgd].iter().all(|kind| kinds.contains(kind)));
}

#[test]
fn a_restored_state_goes_on_with_the_same_bits() {
    for row in Row::all() {
        let (straight, resumed, settings) = (row.parameters(), row.parameters(), row.settings());
        let mut optimizer = Optimizer::new(settings, &straight).unwrap();
        row.step(&mut optimizer, &straight, 1);
        row.step(&mut optimizer, &straight, 2);
        let mut second = Optimizer::new(settings, &resumed).unwrap();
        let state = saved(&optimizer, &straight);
        second.restore(&resumed, &state, optimizer.steps()).unwrap();
        resumed.copy_from(&straight).unwrap();
        row.step(&mut optimizer, &straight, 3);
        row.step(&mut second, &resumed, 3);
        assert_eq!(values(&resumed), values(&straight), "{settings}");

        second.reset(&resumed).unwrap();
        assert_eq!(second.steps(), 0);
        second.restore(&resumed, &state, 2).unwrap();
        let mut bytes: Vec<usize> = Vec::new();
        for (name, tensor) in second.state(&resumed).unwrap() {
            let (_, before) = state.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(
                tensor.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap(),
                before.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap(),
                "{settings}: {name}"
            );
            bytes.push(tensor.elem_count() * tensor.dtype().size_in_bytes());
        }
        assert_eq!(bytes.iter().sum::<usize>() as u64, settings.state_bytes(resumed.slots()), "{settings}");
    }
}

#[test]
fn the_state_of_another_optimizer_is_refused_in_words() {
    let parameters = Row::all()[0].parameters();
    let new = |rule: UpdateRule| Optimizer::new(rule.into(), &parameters).unwrap();
    let adamw = new(UpdateRule::AdamW(AdamWSettings::default()));
    let mut lion = new(UpdateRule::Lion(LionSettings::default()));
    let error = lion.restore(&parameters, &saved(&adamw, &parameters), 1).unwrap_err().to_string();
    assert!(error.contains("state of another optimizer: it holds first, second, and lion keeps momentum"), "{error}");
    assert_eq!(lion.steps(), 0);
    let mut sgd = new(UpdateRule::Sgd(SgdSettings::default()));
    let error = sgd.restore(&parameters, &saved(&lion, &parameters), 1).unwrap_err().to_string();
    assert!(error.contains("sgd keeps nothing"), "{error}");
}

#[test]
fn a_gradient_that_is_not_finite_leaves_values_and_state() {
    for row in Row::all() {
        let (parameters, settings) = (row.parameters(), row.settings());
        let mut optimizer = Optimizer::new(settings, &parameters).unwrap();
        row.step(&mut optimizer, &parameters, 1);
        let (before, state) = (values(&parameters), saved(&optimizer, &parameters));
        gradients(&parameters, 2);
        let shape = parameters.slots()[0].shape.clone();
        parameters.accumulate(0, &Tensor::full(f32::NAN, shape, &Device::Cpu).unwrap()).unwrap();
        assert!(optimizer.step(&parameters, 0.1, 1.0).unwrap().is_nan());
        assert_eq!((values(&parameters), optimizer.steps()), (before, 1), "{settings}");
        for ((name, tensor), (_, before)) in optimizer.state(&parameters).unwrap().iter().zip(&state) {
            let equal = tensor.eq(before).unwrap().min_all().unwrap().to_scalar::<u8>().unwrap();
            assert_eq!(equal, 1, "{settings}: {name}");
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let slots = [("large", vec![300, 700]), ("tall.lora_B.weight", vec![5_000, 8]), ("long", vec![200_000])];
    let slots: Vec<_> = slots.map(|(name, shape)| (name.to_owned(), shape)).to_vec();
    for settings in Row::all().iter().map(Row::settings) {
        let bits = [1, 2, 5].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let parameters = Parameters::new(slots.clone(), &Device::Cpu).unwrap();
                let mut optimizer = Optimizer::new(settings, &parameters).unwrap();
                for step in 1..=2 {
                    gradients(&parameters, step);
                    optimizer.step(&parameters, 0.01, 1.0).unwrap();
                }
                values(&parameters).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            })
        });
        assert!(bits[0] == bits[1] && bits[0] == bits[2], "{settings}");
    }
}

#[test]
fn a_ratio_multiplies_the_steps_of_the_factors_b_alone() {
    for row in Row::all() {
        let settings = OptimizerSettings { b_rate_ratio: 1.0, ..row.settings() };
        let after = |ratio: f64| {
            let parameters = row.parameters();
            let mut optimizer =
                Optimizer::new(OptimizerSettings { b_rate_ratio: ratio, ..settings }, &parameters).unwrap();
            row.step(&mut optimizer, &parameters, 1);
            (values(&parameters), parameters)
        };
        let (before, (one, parameters), (other, _)) = (values(&row.parameters()), after(1.0), after(3.0));
        for slot in parameters.slots() {
            for place in slot.offset..slot.offset + slot.count() {
                let [one, other] = [one[place] - before[place], other[place] - before[place]].map(f64::from);
                let times = if slot.name.ends_with("lora_B.weight") { 3.0 } else { 1.0 };
                assert!(
                    (other - times * one).abs() < 1e-6,
                    "{settings}: {} moved by {other}, not {times} × {one}",
                    slot.name
                );
            }
        }
    }
}
