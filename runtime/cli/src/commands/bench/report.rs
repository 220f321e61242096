//! What was measured, for people: a line a part, and nothing of the parts that were left out.

use tunebox_training::Measured;

use crate::terminal::Terminal;
use tunebox_foundation::format::bytes;

/// Shows it; `steps` were timed.
pub(super) fn show(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { model, method, precision, threads, .. } = measured;
    terminal.say("Bench", format!("{model} ({precision}), {method}, {threads} threads"));
    steps_of(terminal, measured, steps);
    reading(terminal, measured);
    if let Some(start) = &measured.start_up {
        terminal.say(
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
        terminal.say("Products", format!("{rate:.0} GFLOP/s, {of}, the fastest of a few"));
    }
    terminal.next("the same command with `--model` and a model of yours; `--json` for a table");
}

fn steps_of(terminal: Terminal, measured: &Measured, steps: u32) {
    let Measured { batch, sequence, rank, .. } = measured;
    if let Some(training) = &measured.training {
        let share = training.utilisation;
        let share =
            share.map_or_else(String::new, |share| format!(", {:.0} % of what plain products reach", 100.0 * share));
        terminal.say(
            "Step",
            format!(
                "{:.1} tokens/s, {batch} × {sequence}, rank {rank}, median of {steps}: {:.3} s{share}{}",
                training.tokens_per_second,
                training.step_seconds,
                at_most(training.peak_bytes)
            ),
        );
    }
    if let Some(overhead) = &measured.overhead {
        terminal.say(
            "Wall",
            format!(
                "{:.3} % of the steps inside the sandbox, {:.0} calls to the host a step",
                100.0 * overhead.guest_share,
                overhead.host_calls
            ),
        );
    }
}

fn reading(terminal: Terminal, measured: &Measured) {
    if let Some(scoring) = &measured.scoring {
        let peak = at_most(scoring.scoring_peak_bytes);
        terminal.say("Score", format!("{:.1} tokens/s{peak}", scoring.scored_tokens_per_second));
    }
    let Some(generation) = &measured.generation else { return };
    for written in &generation.written {
        let beside = match written.prompts {
            1 => String::new(),
            count => format!(", {count} completions side by side"),
        };
        terminal.say(
            "Write",
            format!(
                "{:.1} tokens/s{beside}, after {:.3} s for {} tokens of each prompt and the first new one{}",
                written.tokens_per_second,
                written.first_seconds,
                written.prompt_tokens,
                at_most(generation.generation_peak_bytes)
            ),
        );
    }
}

/// The most memory that a part held, where that is known.
fn at_most(peak: Option<u64>) -> String {
    peak.map_or_else(String::new, |peak| format!(", {} at most", bytes(peak)))
}
