//! The results of a benchmark for people: one line for each measured part.

use tunebox_training::Measured;

use crate::terminal::Terminal;
use tunebox_foundation::format::bytes;

/// Shows the results; `steps` is the number of timed steps.
pub(super) fn show_report(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { model, method, precision, threads, .. } = measured;
    terminal.status("Bench", format!("{model} ({precision}), {method}, {threads} threads"));
    show_training(terminal, measured, steps);
    show_inference(terminal, measured);
    if let Some(start) = &measured.start_up {
        terminal.status(
            "Start",
            format!(
                "model {:.2} s; method {:.0} ms compiled, {:.1} ms from the cache, {:.1} ms for an instance",
                start.open_seconds,
                1e3 * start.compile_seconds,
                1e3 * start.cached_seconds,
                1e3 * start.instantiate_seconds
            ),
        );
    }
    if let Some(training) = &measured.training {
        let (rate, of) = (training.product_gflops, training.product_type);
        terminal.status("Products", format!("{rate:.0} GFLOP/s, {of}, best of several"));
    }
    terminal.suggest("the same command with `--model` to measure your model, or with `--json`");
}

fn show_training(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { batch, sequence, rank, .. } = measured;
    if let Some(training) = &measured.training {
        let share = training.utilisation;
        let share =
            share.map_or_else(String::new, |share| format!(", {:.0} % of the matrix product speed", 100.0 * share));
        terminal.status(
            "Step",
            format!(
                "{:.1} tokens/s, {batch} × {sequence}, rank {rank}, median of {steps}: {:.3} s{share}{}",
                training.tokens_per_second,
                training.step_seconds,
                peak_text(training.peak_bytes)
            ),
        );
    }
    if let Some(overhead) = &measured.overhead {
        terminal.status(
            "Sandbox",
            format!(
                "{:.3} % of the steps in the sandbox, {:.0} host calls per step",
                100.0 * overhead.guest_share,
                overhead.host_calls
            ),
        );
    }
}

fn show_inference(terminal: Terminal, measured: &Measured) {
    if let Some(scoring) = &measured.scoring {
        let peak = peak_text(scoring.scoring_peak_bytes);
        terminal.status("Score", format!("{:.1} tokens/s{peak}", scoring.scored_tokens_per_second));
    }
    let Some(generation) = &measured.generation else { return };
    for written in &generation.written {
        let beside = match written.prompts {
            1 => String::new(),
            count => format!(", {count} completions in one batch"),
        };
        terminal.status(
            "Write",
            format!(
                "{:.1} tokens/s{beside}, after {:.3} s for a prompt of {} tokens and the first new token{}",
                written.tokens_per_second,
                written.first_seconds,
                written.prompt_tokens,
                peak_text(generation.generation_peak_bytes)
            ),
        );
    }
}

/// Formats the peak memory of a part; empty if it is unknown.
fn peak_text(peak: Option<u64>) -> String {
    peak.map_or_else(String::new, |peak| format!(", peak {}", bytes(peak)))
}
