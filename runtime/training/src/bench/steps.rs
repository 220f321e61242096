//! Training steps of a real run over made-up records, and what the sandbox takes of them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;
use tunebox_compute::device;
use tunebox_compute::precision::Purpose;
use tunebox_compute::throughput::matmul_flops;

use super::made_up::Sizes;
use super::{BenchSettings, made_up, memory, precision, work};
use crate::configuration::{Half, Problem, RunSettings};
use crate::data::{Dataset, Reading, Shape};
use crate::error::Error;
use crate::metrics;
use crate::observer::{Event, Observer, StepEvent};
use crate::plan::{PlannedRun, plan_on};
use crate::run::run;
use tunebox_foundation::files;

/// How fast steps are.
#[derive(Debug, Clone, Serialize)]
pub struct Training {
    /// Operations a second of plain products of large matrices here, in 10⁹.
    pub product_gflops: f64,
    /// The type of the numbers in those products: that of activations on an accelerator, `f32` on the CPU.
    pub product_type: &'static str,
    /// Tokens that a training step learns from, each second.
    pub tokens_per_second: f64,
    /// Seconds of a training step.
    pub step_seconds: f64,
    /// The most memory that the process held up to the end of the training steps, the model included.
    pub peak_bytes: Option<u64>,
    /// What the plan of the run foretold for it.
    pub expected_peak_bytes: u64,
    /// The share of `product_gflops` that a step's necessary arithmetic makes up; for supervised methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
}

/// What the sandbox took of the steps.
#[derive(Debug, Clone, Serialize)]
pub struct Overhead {
    /// The share of the steps' time that the method itself computed, inside its sandbox.
    pub guest_share: f64,
    /// Calls of the method to the host in a step.
    pub host_calls: f64,
}

/// What the steps told.
pub(super) struct Steps {
    pub(super) training: Training,
    pub(super) overhead: Overhead,
    /// How the base's weights are stored.
    pub(super) precision: &'static str,
}

/// Runs the steps.
pub(super) fn measure(settings: &BenchSettings, run_settings: &RunSettings) -> Result<Steps, Error> {
    memory::reset_peak(&device::parse(&settings.device)?)?;
    let mut timer = Timer::default();
    let (records, sequence) = (settings.batch as usize, settings.sequence as usize);
    let records = Sizes { records, sequence, vocabulary: 1, seed: 1 };
    let plan = plan_on(run_settings.clone(), &|run_settings, model, reading| {
        let vocabulary = model.configuration.vocabulary;
        Ok((dataset(run_settings, reading, Sizes { vocabulary, ..records })?, None))
    })?;
    let model = plan.policy.model();
    let (sizes, precision) = (model.configuration.clone(), precision::name(model));
    let activations = model.weights.precision().dtype(Purpose::Activation);
    let about = About::of(&plan.run);
    let outcome = run(plan, &mut timer, &AtomicBool::new(false))?;
    let used = used(&outcome.summary().folder)?;
    let (rate, multiplied) = matmul_flops(&device::parse(&settings.device)?, activations)?;
    let step_seconds = timer.median();
    let necessary = work::step(&sizes, about.trainable, records.records, records.sequence);
    let utilisation = about.supervised.then(|| necessary / step_seconds / rate);
    let training = Training {
        product_gflops: rate / 1e9,
        product_type: multiplied.as_str(),
        tokens_per_second: timer.tokens() / step_seconds,
        step_seconds,
        peak_bytes: timer.peak,
        expected_peak_bytes: about.expected,
        utilisation,
    };
    let guest_share = number(&used, "guest-seconds") / timer.all;
    let host_calls = number(&used, "host-calls") / f64::from(settings.steps + 1);
    Ok(Steps { training, overhead: Overhead { guest_share, host_calls }, precision })
}

fn dataset(settings: &RunSettings, reading: &Reading, sizes: Sizes) -> Result<Dataset, Error> {
    let made = reading.wanted.first().and_then(|shape| made_up::dataset(*shape, sizes));
    made.ok_or_else(|| {
        let what = "this method does not learn from rows of tokens, so there is no step to time".to_owned();
        let hint = "`--method lora`, `dpo`, `grpo` and others do".to_owned();
        settings.wrong("method.use", Half::Value, Problem::Conflict { what, hint })
    })
}

/// What a plan knows that its outcome does not.
struct About {
    supervised: bool,
    trainable: usize,
    /// Bytes.
    expected: u64,
}

impl About {
    fn of(plan: &PlannedRun) -> Self {
        let supervised = matches!(plan.data.shape, Shape::Messages | Shape::PromptCompletion | Shape::Text);
        Self { supervised, trainable: plan.summary.trainable as usize, expected: plan.summary.memory.total() }
    }
}

/// Keeps the times of all steps but the first.
#[derive(Default)]
struct Timer {
    steps: Vec<StepEvent>,
    all: f64,
    peak: Option<u64>,
}

impl Timer {
    fn median(&self) -> f64 {
        median(self.steps.iter().map(|step| step.seconds).collect())
    }

    /// Tokens of a step.
    fn tokens(&self) -> f64 {
        let sum: u64 = self.steps.iter().map(|step| step.tokens).sum();
        sum as f64 / self.steps.len().max(1) as f64
    }
}

impl Observer for Timer {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step(step) = event {
            self.all += step.seconds;
            self.peak = step.peak;
            if step.step > 1 {
                self.steps.push(step.clone());
            }
        }
    }
}

/// The middle number, or the mean of both in the middle; NaN of none.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => numbers[half],
        _ => f64::midpoint(numbers[half - 1], numbers[half]),
    }
}

/// What the method used in all, from the last line of the metrics.
fn used(folder: &Path) -> Result<Value, Error> {
    let bytes = files::read(&folder.join(metrics::FILE), metrics::LARGEST)?;
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    let last = lines.find_map(|line| serde_json::from_slice::<Value>(line).ok()?.get("used").cloned());
    Ok(last.and_then(|used| used.get("total").cloned()).unwrap_or_default())
}

fn number(of: &Value, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_both_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
