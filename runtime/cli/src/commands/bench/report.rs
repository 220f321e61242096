//! The results of a benchmark for people: one line for each measured part.

use tunebox_foundation::format::bytes;
use tunebox_training::Measured;

use crate::terminal::Terminal;

/// Shows the results; `steps` is the number of timed steps.
pub(super) fn show_report(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { model, method, precision, threads, batch, sequence, rank, .. } = measured;
    terminal.status("Bench", format!("{model} ({precision}), {method}, {threads} threads"));
    if let Some(training) = &measured.training {
        let (speed, seconds, peak) =
            (training.tokens_per_second, training.step_seconds, peak_text(training.peak_bytes));
        let utilisation = training
            .utilisation
            .map_or_else(String::new, |fraction| format!(", {:.0} % of the matrix product speed", 100.0 * fraction));
        let sizes = format!("{batch} × {sequence}, rank {rank}, median of {steps}");
        terminal.status("Step", format!("{speed:.1} tokens/s, {sizes}: {seconds:.3} s{utilisation}{peak}"));
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

/// Formats the peak memory of a part; empty if it is unknown.
fn peak_text(peak: Option<u64>) -> String {
    peak.map_or_else(String::new, |peak| format!(", peak {}", bytes(peak)))
}
