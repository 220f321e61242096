//! How fast training, scoring and writing are on this machine: made-up tokens through a real model, a real method and
//! the real loop, beside what the machine's plain products reach.
//!
//! Nothing is left behind: the run has a folder of its own that is removed.

mod made_up;
mod phases;
mod work;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tunebox_compute::pace::product_rate;
use tunebox_model::{Policy, PolicySettings};
use tunebox_sandbox::Compiling;

use crate::configuration::{Half, Problem, RunSettings};
use crate::data::{Dataset, Reading, Shape};
use crate::error::Error;
use crate::files;
use crate::observer::{Event, Observer, StepEvent};
use crate::plan::{PlannedRun, open_model, plan_on};
use crate::run::run;
use crate::sample::Sample;
use made_up::Sizes;

/// What is measured.
#[derive(Debug, Clone)]
pub struct BenchSettings {
    /// A model: folder, `.gguf` file, or hub name; the tiny model of the sample without one.
    pub model: Option<String>,
    /// A method that learns.
    pub method: String,
    /// Records of a step.
    pub batch: u32,
    /// Tokens of a row; a prompt has half of it and its completions the rest.
    pub sequence: u32,
    /// The rank of the adapter.
    pub rank: u32,
    /// Steps that are timed, after one that is not.
    pub steps: u32,
    /// `cpu`, `cuda[:n]` or `metal`.
    pub device: String,
    /// More settings of the run, as in `method.completions=8`.
    pub set: Vec<String>,
    /// Never ask the network for a model.
    pub offline: bool,
    /// Measure a method that is not built in as well: it runs in this process.
    pub in_process: bool,
}

/// What was measured. Rates are of useful tokens; the median of the timed steps counts.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The model, as it was named; `sample` for the tiny one.
    pub model: String,
    /// The method and its version.
    pub method: String,
    /// Records of a step.
    pub batch: u32,
    /// Tokens of a row.
    pub sequence: u32,
    /// Threads that compute.
    pub threads: usize,
    /// Operations a second of plain products of large matrices here, in 10⁹.
    pub product_gflops: f64,
    /// Tokens that a training step learns from, each second.
    pub tokens_per_second: f64,
    /// Seconds of a training step.
    pub step_seconds: f64,
    /// The most memory that the process held up to the end of the training steps.
    pub peak_bytes: Option<u64>,
    /// The share of `product_gflops` that a step's necessary arithmetic makes up; for supervised methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// The share of the steps' time that the method itself computed, inside its sandbox.
    pub guest_share: f64,
    /// Calls of the method to the host in a step.
    pub host_calls: f64,
    /// Tokens that are scored each second, without learning.
    pub scored_tokens_per_second: f64,
    /// Tokens written each second, one completion at a time.
    pub written_tokens_per_second: f64,
    /// The same with sixteen side by side.
    pub written_tokens_per_second_16: f64,
    /// Seconds to open the model, its files being in memory already.
    pub open_seconds: f64,
    /// Seconds to check and compile the method.
    pub compile_seconds: f64,
    /// Seconds to check the method and find it compiled.
    pub cached_seconds: f64,
}

/// Measures. `tell` hears what comes next.
///
/// # Errors
/// Whatever keeps such a run from being planned or carried out; methods that do not learn from rows.
pub fn bench(settings: &BenchSettings, tell: &mut dyn FnMut(&str)) -> Result<Measured, Error> {
    let place = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let model = match &settings.model {
        Some(model) => model.clone(),
        None => Sample::embedded().ok_or(Error::NoSample)?.unpack(place.path())?.join("model").display().to_string(),
    };
    let run_settings = run_settings(settings, &model, place.path())?;
    if !settings.in_process && !run_settings.is_all_built_in() {
        return Err(not_built_in(&run_settings));
    }
    tell("training steps");
    let mut timer = Timer::default();
    let sizes =
        |vocabulary| Sizes { records: settings.batch as usize, sequence: settings.sequence as usize, vocabulary };
    let plan = plan_on(run_settings.clone(), &|run_settings, model, reading| {
        Ok((made_up(run_settings, reading, sizes(model.configuration.vocabulary))?, None))
    })?;
    let about = About::of(&plan.run);
    let outcome = run(plan, &mut timer, &AtomicBool::new(false))?;
    let used = used(&outcome.summary().folder)?;
    tell("opening and compiling");
    let begun = Instant::now();
    let model = open_model(&run_settings)?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let (compile_seconds, cached_seconds) = phases::compile(&settings.method, place.path())?;
    tell("scoring and writing");
    let policy = Policy::open(model, None, PolicySettings::default())?;
    let scored = phases::score(&policy, settings.batch as usize, settings.sequence as usize)?;
    let (one, sixteen) = (phases::write(&policy, 1)?, phases::write(&policy, 16)?);
    tell("plain products");
    let rate = product_rate(policy.parameters().values().device())?;
    let step_seconds = timer.median();
    let useful = about.supervised.then(|| {
        let sizes = &policy.model().configuration;
        work::step(sizes, about.trainable, settings.batch as usize, settings.sequence as usize) / step_seconds / rate
    });
    let steps = f64::from(settings.steps + 1);
    Ok(Measured {
        model: settings.model.clone().unwrap_or_else(|| "sample".into()),
        method: about.method,
        batch: settings.batch,
        sequence: settings.sequence,
        threads: rayon::current_num_threads(),
        product_gflops: rate / 1e9,
        tokens_per_second: timer.tokens() / step_seconds,
        step_seconds,
        peak_bytes: timer.peak,
        utilisation: useful,
        guest_share: number(&used, "guest-seconds") / timer.all,
        host_calls: number(&used, "host-calls") / steps,
        scored_tokens_per_second: scored,
        written_tokens_per_second: one,
        written_tokens_per_second_16: sixteen,
        open_seconds,
        compile_seconds,
        cached_seconds,
    })
}

/// A worker would be timed with the pipe to it, so strangers are not measured unasked.
fn not_built_in(settings: &RunSettings) -> Error {
    let what = "a benchmark runs in this process, and what is not built in belongs into a worker".to_owned();
    let hint = "`--in-process` measures it here, if you trust it".to_owned();
    settings.wrong("method.use", Half::Value, Problem::Conflict { what, hint })
}

/// The run file of a benchmark, as it would be written by hand.
fn run_settings(settings: &BenchSettings, model: &str, place: &Path) -> Result<RunSettings, Error> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut overrides = vec![
        format!("model.path={}", quoted(model)),
        "data.path=\"made up\"".into(),
        "data.shuffle=false".into(),
        format!("data.max-length={}", settings.sequence),
        format!("method.use={}", quoted(&settings.method)),
        format!("train.batch={}", settings.batch),
        format!("train.steps={}", settings.steps + 1),
        format!("train.adapter.rank={}", settings.rank),
        format!("train.device={}", quoted(&settings.device)),
        format!("run.folder={}", quoted(&place.to_string_lossy())),
        "run.name=bench".into(),
        "train.rate=1e-4".into(),
    ];
    overrides.extend(settings.set.iter().cloned());
    let mut run_settings = RunSettings::from_overrides(&overrides)?;
    run_settings.offline = settings.offline;
    run_settings.compiling = Compiling::default();
    Ok(run_settings)
}

fn made_up(settings: &RunSettings, reading: &Reading, sizes: Sizes) -> Result<Dataset, Error> {
    let made = reading.wanted.first().and_then(|shape| made_up::dataset(*shape, sizes));
    made.ok_or_else(|| {
        let what = "this method does not learn from rows of tokens, so there is no step to time".to_owned();
        let hint = "`--method lora`, `dpo`, `grpo` and others do".to_owned();
        settings.wrong("method.use", Half::Value, Problem::Conflict { what, hint })
    })
}

/// What a plan knows that its outcome does not.
struct About {
    method: String,
    supervised: bool,
    trainable: usize,
}

impl About {
    fn of(plan: &PlannedRun) -> Self {
        let supervised = matches!(plan.data.shape, Shape::Messages | Shape::PromptCompletion | Shape::Text);
        let method = format!("{} {}", plan.summary.method, plan.summary.method_version);
        Self { method, supervised, trainable: plan.summary.trainable as usize }
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
        let mut seconds: Vec<f64> = self.steps.iter().map(|step| step.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let half = seconds.len() / 2;
        match seconds.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => seconds[half],
            _ => f64::midpoint(seconds[half - 1], seconds[half]),
        }
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

/// What the method used in all, from the last line of the metrics.
fn used(folder: &Path) -> Result<Value, Error> {
    let text = files::read_text(&folder.join(crate::metrics::FILE))?;
    let last = text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok()?.get("used").cloned());
    Ok(last.and_then(|used| used.get("total").cloned()).unwrap_or_default())
}

fn number(of: &Value, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}
