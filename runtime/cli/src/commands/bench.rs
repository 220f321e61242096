//! `tunebox bench`: how fast this machine trains, scores and writes, beside what its plain products reach.

use clap::Args;
use serde_json::json;
use tunebox_training::{BenchSettings, Measured, bench};

use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::{Terminal, bytes};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// A model: folder, `.gguf` file, or hub name; without one, the tiny model that comes with tunebox
    #[arg(long)]
    model: Option<String>,
    /// A method that learns from rows of tokens
    #[arg(long, default_value = "lora")]
    method: String,
    /// Records of a step
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Tokens of a row, all of them learned from; of a prompt half, its completions get the rest
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    sequence: u32,
    /// The rank of the adapter
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    rank: u32,
    /// Steps that are timed, after one that is not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,
    /// `cpu`, `cuda[:n]` or `metal`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Sets a key of the run, as in `verifier.0.use=text`, which methods that let the model write need
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Measure a method or verifier that is not built in as well, inside this process; for those you trust
    #[arg(long)]
    in_process: bool,
}

impl Bench {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let settings = BenchSettings {
            model: self.model.clone(),
            method: self.method.clone(),
            batch: self.batch,
            sequence: self.sequence,
            rank: self.rank,
            steps: self.steps,
            device: self.device.clone(),
            set: self.set.clone(),
            offline: global.offline,
            in_process: self.in_process,
        };
        let measured = bench(&settings, &mut |what| terminal.say("Timing", what))?;
        self.show(terminal, &measured);
        Ok(Ending::Done)
    }

    fn show(&self, terminal: Terminal, measured: &Measured) {
        if terminal.json {
            terminal.object(json!(measured));
            return;
        }
        let Self { batch, sequence, rank, steps, .. } = self;
        let peak = measured.peak_bytes.map_or_else(String::new, |peak| format!(", {} at most", bytes(peak)));
        let share = measured
            .utilisation
            .map_or_else(String::new, |share| format!(", {:.0} % of what plain products reach", 100.0 * share));
        terminal.say("Bench", format!("{}, {}, {} threads", measured.model, measured.method, measured.threads));
        terminal.say(
            "Step",
            format!(
                "{:.1} tokens/s, {batch} × {sequence}, rank {rank}, median of {steps}: {:.3} s{share}{peak}",
                measured.tokens_per_second, measured.step_seconds
            ),
        );
        terminal.say(
            "Wall",
            format!(
                "{:.3} % of the steps inside the sandbox, {:.0} calls to the host a step",
                100.0 * measured.guest_share,
                measured.host_calls
            ),
        );
        terminal.say("Score", format!("{:.1} tokens/s", measured.scored_tokens_per_second));
        terminal.say(
            "Write",
            format!(
                "{:.1} tokens/s, {:.1} with sixteen side by side",
                measured.written_tokens_per_second, measured.written_tokens_per_second_16
            ),
        );
        terminal.say(
            "Start",
            format!(
                "model {:.2} s; method {:.0} ms compiled, {:.1} ms from the cache",
                measured.open_seconds,
                1e3 * measured.compile_seconds,
                1e3 * measured.cached_seconds
            ),
        );
        terminal.say("Products", format!("{:.0} GFLOP/s, f32, the fastest of a few", measured.product_gflops));
        terminal.next("the same command with `--model` and a model of yours; `--json` for a table");
    }
}
