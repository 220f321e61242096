//! Measures training steps of a run on random records, and the cost of the sandbox.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;
use tunebox_compute::device;
use tunebox_compute::precision::Purpose;
use tunebox_compute::throughput::matmul_flops;
use tunebox_model::Configuration;

use super::settings::{BenchSettings, Phase};
use super::{Measured, precision_name};
use crate::configuration::RunSettings;
use crate::data::Shape;
use crate::error::Error;
use crate::metrics;
use crate::observer::{Event, Observer, StepEvent};
use crate::plan::{plan, reset_peak};
use crate::run::run;

/// How fast steps are.
#[derive(Debug, Clone, Serialize)]
pub struct Training {
    /// Speed of products of large matrices in 10⁹ operations per second.
    pub product_gflops: f64,
    /// The number format in which these products were computed: the format of activations.
    pub product_type: &'static str,
    /// Trained tokens per second.
    pub tokens_per_second: f64,
    /// Median seconds of a step.
    pub step_seconds: f64,
    /// Peak memory up to the end of the steps in bytes, including the model.
    pub peak_bytes: Option<u64>,
    /// The estimated peak memory of the run in bytes, to compare with `peak_bytes`.
    pub expected_peak_bytes: u64,
    /// Model FLOPs utilization: operations per second that a step needs, as a share of the measured speed of matrix
    /// products, `product_gflops`. Only for supervised methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}

/// The cost of the sandbox.
#[derive(Debug, Clone, Serialize)]
pub struct Overhead {
    /// The share of the steps' time in which the method itself computed.
    pub guest_share: f64,
    /// Calls of the method to the host per step.
    pub host_calls: f64,
}

/// Executes the run of a benchmark, and measures its steps, the speed of matrix products, and the cost of the sandbox.
/// Writes the phases that the settings want, and the model's number format, into `measured`. First resets the peak
/// memory of the process or device. Step times and tokens leave out the first step; the cost of the sandbox is of all
/// steps.
pub(super) fn measure_steps(
    settings: &BenchSettings,
    run_settings: &RunSettings,
    measured: &mut Measured,
) -> Result<(), Error> {
    reset_peak(&device::parse(&settings.device)?)?;
    let mut timed = TimedSteps::default();
    let plan = plan(run_settings.clone())?;
    let model = plan.policy.model();
    let sizes = model.configuration.clone();
    measured.precision = precision_name(model);
    let activations = model.weights.precision().dtype(Purpose::Activation);
    let (trainable, expected_peak_bytes) = (plan.run.summary.trainable as usize, plan.run.summary.memory.total());
    let is_supervised = matches!(plan.run.data.shape, Shape::Messages | Shape::PromptCompletion | Shape::Text);
    let summary = run(plan, &mut timed, &AtomicBool::new(false))?;
    let used = read_usage(&summary.folder)?;
    let rate = matmul_flops(&device::parse(&settings.device)?, activations)?;
    let warm = timed.0.get(1..).unwrap_or_default();
    let step_seconds = median(warm.iter().map(|step| step.seconds).collect());
    let tokens = warm.iter().map(|step| step.tokens).sum::<u64>() as f64 / warm.len().max(1) as f64;
    let necessary = step_flops(&sizes, trainable, settings.batch as usize, settings.sequence as usize);
    let utilization = is_supervised.then(|| necessary / step_seconds / rate);
    let training = Training {
        product_gflops: rate / 1e9,
        product_type: activations.as_str(),
        tokens_per_second: tokens / step_seconds,
        step_seconds,
        peak_bytes: timed.0.last().and_then(|step| step.peak),
        expected_peak_bytes,
        utilization,
    };
    let guest_share = number_at(&used, "guest-seconds") / timed.0.iter().map(|step| step.seconds).sum::<f64>();
    let host_calls = number_at(&used, "host-calls") / f64::from(settings.steps + 1);
    measured.training = settings.is_measured(Phase::Training).then_some(training);
    measured.overhead = settings.is_measured(Phase::Overhead).then_some(Overhead { guest_share, host_calls });
    Ok(())
}

/// The steps of a run, recorded as they end.
#[derive(Default)]
struct TimedSteps(Vec<StepEvent>);

impl Observer for TimedSteps {
    /// Records a step; ignores other events.
    fn event(&mut self, event: &Event) {
        if let Event::Step(step) = event {
            self.0.push(step.clone());
        }
    }
}

/// The median of some numbers, the mean of the two middle ones of an even count; NaN without numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => numbers[half],
        _ => f64::midpoint(numbers[half - 1], numbers[half]),
    }
}

/// Returns the JSON of the method's total usage of its limits (`used.total`), from the last row of the metrics in a
/// run's folder that has it; null if none has.
fn read_usage(folder: &Path) -> Result<Value, Error> {
    let rows = metrics::read_rows(&folder.join(metrics::FILE))?;
    Ok(rows.iter().rev().find_map(|row| row.get("used")?.get("total").cloned()).unwrap_or_default())
}

/// Returns the number at the key `name` of a JSON object; NaN if it is missing or no number.
fn number_at(of: &Value, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Floating-point operations of one supervised step over `rows` rows of `length` tokens: a forward pass, and a backward
/// pass with the gradients of inputs and low-rank adapters (`trainable` numbers), without those of frozen weights.
///
/// A product of n × m by m × k counts 2·n·m·k operations; attention counts the scores that the causal mask leaves.
fn step_flops(sizes: &Configuration, trainable: usize, rows: usize, length: usize) -> f64 {
    let tokens = (rows * length) as f64;
    let frozen = 2.0 * tokens * (linear_weights(sizes) + head_weights(sizes));
    // Forward, the gradient of the input, and for an adapter that of its weights.
    2.0 * frozen + 3.0 * 2.0 * tokens * trainable as f64 + 3.0 * attention_flops(sizes, rows, length)
}

/// Number of weights in the linear layers of all blocks that a token runs through: of experts, the router and those
/// that are active.
fn linear_weights(sizes: &Configuration) -> f64 {
    let (heads, shared) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
    let attention = sizes.hidden * (2 * heads + 2 * shared);
    let router = sizes.experts.map_or(0, |experts| sizes.hidden * experts.count);
    (sizes.layers * (attention + 3 * sizes.hidden * sizes.active_intermediate() + router)) as f64
}

/// Number of weights in the output head: hidden size × vocabulary.
fn head_weights(sizes: &Configuration) -> f64 {
    (sizes.hidden * sizes.vocabulary) as f64
}

/// Floating-point operations of attention scores and weighted sums in a forward pass through all blocks, for `rows`
/// causal rows of `length` tokens.
fn attention_flops(sizes: &Configuration, rows: usize, length: usize) -> f64 {
    let scores = (rows * length * (length + 1) / 2) as f64;
    4.0 * scores * (sizes.heads * sizes.head_dim * sizes.layers) as f64
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

    #[test]
    fn a_step_of_the_sizes_of_qwen_2_5_0_5b_is_what_a_person_counts() {
        let config = r#"{"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],"hidden_size":896,
            "intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,
            "vocab_size":151936,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"max_position_embeddings":32768,
            "tie_word_embeddings":true,"hidden_act":"silu"}"#;
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        let sizes = Configuration::from_hugging_face(&config, std::path::Path::new("config.json")).unwrap();
        // 357,826,560 weights in the blocks' products and 136,134,656 in the head.
        assert_eq!(linear_weights(&sizes) + head_weights(&sizes), 493_961_216.0);
        let whole = step_flops(&sizes, 8_798_208, 4, 256);
        assert!((whole / 2.12e12 - 1.0).abs() < 0.02, "{whole:e}");
    }

    #[test]
    fn of_experts_those_count_that_a_token_runs_through() {
        let config = serde_json::json!({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
            "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
            "vocab_size": 151_936, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768});
        let sizes = Configuration::from_hugging_face(&config, std::path::Path::new("config.json")).unwrap();
        // Qwen3-30B-A3B: with the 311,164,928 numbers of the embedding, its 3.3 billion activated weights.
        assert_eq!(linear_weights(&sizes) + head_weights(&sizes), 3_041_656_832.0);
    }
}
