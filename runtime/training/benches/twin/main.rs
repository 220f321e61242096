//! What the sandbox costs a training step: `lora` and `dpo` as components beside the same methods as native code.
//!
//! Both work on one model in one process, on the same batches, taking turns after each step, and must come to the same
//! bits. `cargo bench --workspace --bench twin` measures on the tiny model, or on the one that the variable
//! `TUNEBOX_BENCH_MODEL` names, with fewer but longer steps. The overhead is the median over the pairs of steps of
//! component ÷ native − 1, shown with its quartiles. Where other work of the machine spreads the quartiles, compare the
//! fastest step of each.
#![expect(clippy::print_stdout, reason = "its output is the table")]

mod native;
mod pair;
mod statistics;

use std::sync::Arc;

use pair::{Pair, TOLERANCE, TWINS, Timed, Twin, random_batch};
use statistics::Spread;
use tunebox_compute::Device;
use tunebox_model::{Model, Source};
use tunebox_training::configuration::RandomRecords;
use tunebox_training::sample;

/// The rank of the adapters.
const RANK: usize = 16;

/// What any part of the benchmark may end in.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    tunebox_compute::allocator::keep_freed_pages();
    let place = tempfile::tempdir()?;
    let (path, pairs, records, sequence) = match std::env::var("TUNEBOX_BENCH_MODEL") {
        Ok(path) => (path, 5, 4, 256),
        Err(_) => (sample::unpack(place.path())?.join("model").display().to_string(), 40, 12, 64),
    };
    let model = Arc::new(Model::open(&Source::open(&path, true)?, &Device::Cpu)?);
    for twin in &TWINS {
        let name = twin.name;
        println!("{name} on {path}: {records} records of {sequence} tokens, rank {RANK}, {pairs} pairs of steps");
        show(&measure(twin, &model, pairs, RandomRecords { records, sequence, seed: 0 })?);
    }
    Ok(())
}

/// Executes and times so many pairs of steps, each on its own random batch; native and component take turns at being
/// first. One earlier pair warms up and is not in the result.
fn measure(twin: &'static Twin, model: &Arc<Model>, pairs: u64, sizes: RandomRecords) -> Outcome<Vec<Timed>> {
    let vocabulary = model.configuration.vocabulary;
    let mut pair = Pair::start(twin, model, RANK)?;
    let mut times = Vec::new();
    for step in 0..=pairs {
        let sizes = RandomRecords { seed: step, ..sizes };
        let timed = pair.step(&random_batch(twin.shape, sizes, vocabulary)?, step % 2 == 0)?;
        if step > 0 {
            times.push(timed);
        }
    }
    Ok(times)
}

/// Prints the measured times, their overhead and the guest's share as a table.
fn show(times: &[Timed]) {
    let native = Spread::of(times.iter().map(|timed| timed.native));
    let component = Spread::of(times.iter().map(|timed| timed.component));
    let overhead = Spread::of(times.iter().map(|timed| timed.component / timed.native - 1.0));
    let fastest = least(times, |timed| timed.component) / least(times, |timed| timed.native) - 1.0;
    let guest = Spread::of(times.iter().map(|timed| timed.guest)).median;
    let calls = times.last().map_or(0, |timed| timed.calls);
    let line = |what: &str, spread: Spread, factor: f64, unit: &str| {
        let Spread { low, median, high } = spread;
        let [low, median, high] = [low, median, high].map(|number| number * factor);
        println!("  {what:<10} {median:>9.3} {unit:<2}   middle half {low:.3} … {high:.3}");
    };
    line("native", native, 1e3, "ms");
    line("component", component, 1e3, "ms");
    line("overhead", overhead, 1e2, "%");
    println!("  {:<10} {:>9.3} %    between the fastest step of each", "", 1e2 * fastest);
    println!("  the guest itself {:.3} ms, {calls} calls to the host a step", 1e3 * guest);
    println!("  the same weights to the bit after every step, the same reported numbers within {TOLERANCE:e}");
}

/// The smallest of the seconds that `seconds` takes from each pair of steps; infinity without pairs.
fn least(times: &[Timed], seconds: impl Fn(&Timed) -> f64) -> f64 {
    times.iter().map(seconds).fold(f64::INFINITY, f64::min)
}
