//! `tunebox bench`: measures training, scoring and generation speed on this machine.

use std::env::temp_dir;
use std::path::Path;

use clap::Args;
use serde_json::json;
use tunebox_compute::DType;
use tunebox_foundation::files::temporary_folder;
use tunebox_foundation::format::bytes;
use tunebox_package::Reference;
use tunebox_training::{BenchSettings, Measured, Phase, RunSettings, bench, component_files, find_model, model_files};

use super::doctor::describe_vectors;
use crate::access::{Access, computes_on_cpu};
use crate::arguments::{Global, one_of};
use crate::package::trust::TrustOptions;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Model to measure: a folder, a `.gguf` file or a hub name [default: the bundled tiny model]
    #[arg(long)]
    model: Option<String>,
    /// Precision of the base weights: converted first, or for `nf4` and `q8_0` quantized while loading [default: as in
    /// the model's files]
    #[arg(long, value_parser = ["f32", "bf16", "f16", "nf4", "q8_0"])]
    precision: Option<String>,
    /// Measure only this part: `training`, steps with their memory and their fraction of the matrix-multiply speed;
    /// `scoring` of rows without training; `generation` by greedy decoding; `start-up`, the time to open the model and
    /// to compile and instantiate the method; `overhead`, the time of the steps spent in the sandbox. Can be repeated
    #[arg(long, value_parser = one_of(PHASES), value_delimiter = ',')]
    only: Vec<Phase>,
    /// Method to train with
    #[arg(long, default_value = "lora")]
    method: String,
    /// Records per step
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Tokens per row, all of them targets. For methods that generate, half is the prompt and half the completion
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    sequence: u32,
    /// Rank of the adapter
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    rank: u32,
    /// Timed steps, after one warm-up step
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,
    /// Number of completions generated in one batch, each of its own prompt. Can be repeated
    #[arg(
        long,
        value_name = "COUNT",
        default_values_t = [1, 16],
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=32)
    )]
    prompts: Vec<u32>,
    /// Tokens per prompt
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    prompt_tokens: u32,
    /// Tokens per completion, by greedy decoding. The speed excludes the first token
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    new_tokens: u32,
    /// Device to compute on: `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Set a key of the run, for example `verifier.0.use=text` for methods that need a verifier
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Allow methods and verifiers that are not built in; they run inside this process. Only for methods that you trust
    #[arg(long)]
    in_process: bool,
}

/// The parts of the benchmark by name.
const PHASES: [(&str, Phase); 5] = [
    ("training", Phase::Training),
    ("scoring", Phase::Scoring),
    ("generation", Phase::Generation),
    ("start-up", Phase::StartUp),
    ("overhead", Phase::Overhead),
];

impl Bench {
    /// In the parent, checks the signer of the method, creates a temporary folder, and fetches a model that is not on
    /// this machine. Returns the files that the command reads, and that folder; `None` if it computes on an
    /// accelerator.
    pub(super) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        let mut scratch = None;
        if !global.supervised {
            // A method that is not found is reported by the benchmark.
            if let Ok(found) = Reference::parse(&self.method, Path::new(".")) {
                TrustOptions::default().check_package(terminal, &found)?;
            }
            scratch = Some(temporary_folder(&temp_dir(), "tunebox-bench-")?);
        }
        let method = toml::Value::String(self.method.clone());
        let needed = ["model.path=.".to_owned(), "data.path=.".to_owned(), format!("method.use={method}")];
        let mut read = component_files(&RunSettings::from_overrides(&[&needed[..], self.set.as_slice()].concat())?);
        let is_found_here = |model: &&String| global.supervised || !Path::new(model).exists();
        if let Some(model) = self.model.as_ref().filter(is_found_here) {
            read.extend(model_files(find_model(model, None, global.offline)?.path()));
        }
        // Each part resets the peak of memory that it reports.
        let write = vec![temp_dir(), "/proc/self/clear_refs".into()];
        let access = Access { write, scratch, ..Access::read_only(read) };
        Ok(Some(access).filter(|_| computes_on_cpu(&self.device)))
    }

    /// Runs the benchmark, and shows the results, or emits them as one JSON object.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        // A format that is no type of weights in a file is computed while the model is read.
        let dtype: Option<DType> = self.precision.as_ref().and_then(|precision| precision.parse().ok());
        let quantized = self.precision.filter(|_| dtype.is_none()).map(|format| format!("model.precision={format}"));
        let settings = BenchSettings {
            model: self.model,
            dtype,
            only: self.only.into_iter().collect(),
            method: self.method,
            batch: self.batch,
            sequence: self.sequence,
            rank: self.rank,
            steps: self.steps,
            prompts: self.prompts,
            prompt_tokens: self.prompt_tokens,
            new_tokens: self.new_tokens,
            device: self.device,
            set: quantized.into_iter().chain(self.set).collect(),
            offline: global.offline,
            in_process: self.in_process,
        };
        let measured = bench(&settings, &mut |what| terminal.status("Timing", what))?;
        show_report(terminal, &measured, settings.steps);
        terminal.event(json!(measured));
        Ok(ExitStatus::Success)
    }
}

/// Shows the results, one line for each part that was measured, and one for each number of prompts in generation.
/// `steps` is the number of timed steps.
fn show_report(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { model, method, precision, threads, batch, sequence, rank, processor, vector_lanes, .. } = measured;
    terminal.status("Bench", format!("{model} ({precision}), {method}, {threads} threads"));
    terminal.status("CPU", describe_vectors(*vector_lanes, processor));
    if let Some(training) = &measured.training {
        let (speed, seconds, peak) =
            (training.tokens_per_second, training.step_seconds, peak_text(training.peak_bytes));
        let utilization = training.utilization.map_or_else(String::new, |fraction| {
            format!(", {:.0} % of this machine's matrix-multiply speed", 100.0 * fraction)
        });
        let sizes = format!("{batch} × {sequence}, rank {rank}, median of {steps}");
        terminal.status("Step", format!("{speed:.1} tokens/s, {sizes}: {seconds:.3} s{utilization}{peak}"));
    }
    if let Some(overhead) = &measured.overhead {
        let (percent, calls) = (100.0 * overhead.guest_share, overhead.host_calls);
        terminal
            .status("Sandbox", format!("{percent:.3} % of the steps in the sandbox, {calls:.0} host calls per step"));
    }
    if let Some(scoring) = &measured.scoring {
        let peak = peak_text(scoring.scoring_peak_bytes);
        terminal.status("Score", format!("{:.1} tokens/s{peak}", scoring.scored_tokens_per_second));
    }
    if let Some(generation) = &measured.generation {
        let peak = peak_text(generation.generation_peak_bytes);
        for written in &generation.written {
            let (speed, first, tokens) = (written.tokens_per_second, written.first_seconds, written.prompt_tokens);
            let batch = match written.prompts {
                1 => String::new(),
                count => format!(", {count} completions in one batch"),
            };
            let start = format!("after {first:.3} s for a prompt of {tokens} tokens and the first new token");
            terminal.status("Write", format!("{speed:.1} tokens/s{batch}, {start}{peak}"));
        }
    }
    if let Some(start) = &measured.start_up {
        let [compiled, cached, instance] =
            [start.compile_seconds, start.cached_seconds, start.instantiate_seconds].map(|seconds| 1e3 * seconds);
        let method =
            format!("{compiled:.0} ms compiled, {cached:.1} ms from the cache, {instance:.1} ms for an instance");
        terminal.status("Start", format!("model {:.2} s; method {method}", start.open_seconds));
    }
    if let Some(training) = &measured.training {
        let (rate, precision) = (training.product_gflops, training.product_type);
        terminal.status("Products", format!("{rate:.0} GFLOP/s, {precision}, best of several"));
    }
    terminal.suggest("the same command with `--model` to measure your model, or with `--json`");
}

/// Formats the peak memory of a part, in bytes, as the end of a line: `, peak …`. Empty if it is unknown.
fn peak_text(peak: Option<u64>) -> String {
    peak.map_or_else(String::new, |peak| format!(", peak {}", bytes(peak)))
}
