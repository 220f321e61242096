//! What the sandbox costs a training step: `lora` and `dpo` as components beside the same methods as native code.
//!
//! Both work on one model in one process, on the same batches, taking turns after each step, and must come to the same
//! bits. `cargo bench --workspace --bench twin` measures on the tiny model; `-- --model FOLDER`, or the variable
//! `TUNEBOX_BENCH_MODEL`, on another. The overhead is the median over the pairs of steps of component ÷ native − 1,
//! shown with its quartiles. Where other work of the machine spreads the quartiles, compare the fastest step of each.
#![expect(clippy::print_stdout, reason = "its output is the table")]

mod arguments;
mod native;
mod pair;
mod statistics;

use std::path::Path;
use std::sync::Arc;

use arguments::Arguments;
use pair::{Pair, TOLERANCE, TWINS, Timed, Twin, random_batch};
use statistics::Spread;
use tunebox_compute::Device;
use tunebox_model::{Model, Source};
use tunebox_training::configuration::RandomRecords;
use tunebox_training::sample;

/// What any part of the benchmark may end in.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let model = std::env::var("TUNEBOX_BENCH_MODEL").ok();
    let arguments = Arguments::parse_from_words(std::env::args().skip(1), model).unwrap_or_else(|error| error.exit());
    tunebox_compute::allocator::keep_freed_pages();
    let place = tempfile::tempdir()?;
    let model = open(arguments.model.as_deref(), place.path())?;
    for twin in TWINS.iter().filter(|twin| arguments.methods.iter().any(|name| name == twin.name)) {
        show(twin, &arguments, &measure(twin, &model, &arguments)?);
    }
    Ok(())
}

/// Opens the model that was named, or unpacks the tiny one of the sample below `place` and opens that, on the CPU.
fn open(model: Option<&str>, place: &Path) -> Outcome<Arc<Model>> {
    let path = match model {
        Some(model) => model.to_owned(),
        None => sample::unpack(place)?.join("model").display().to_string(),
    };
    Ok(Arc::new(Model::open(&Source::open(&path, true)?, &Device::Cpu)?))
}

/// Executes and times `arguments.pairs` pairs of steps, each on its own random batch; native and component take turns
/// at being first. One earlier pair warms up and is not in the result.
fn measure(twin: &'static Twin, model: &Arc<Model>, arguments: &Arguments) -> Outcome<Vec<Timed>> {
    let vocabulary = model.configuration.vocabulary;
    let (records, sequence) = (arguments.batch.get(), arguments.sequence.get());
    let mut pair = Pair::start(twin, model, arguments.rank.get())?;
    let mut times = Vec::new();
    for step in 0..=arguments.pairs.get() {
        let sizes = RandomRecords { records, sequence, seed: step as u64 };
        let timed = pair.step(&random_batch(twin.shape, sizes, vocabulary)?, step % 2 == 0)?;
        if step > 0 {
            times.push(timed);
        }
    }
    Ok(times)
}

/// Prints the measured times, their overhead and the guest's share as a table.
fn show(twin: &Twin, arguments: &Arguments, times: &[Timed]) {
    let native = Spread::of(times.iter().map(|timed| timed.native));
    let component = Spread::of(times.iter().map(|timed| timed.component));
    let overhead = Spread::of(times.iter().map(|timed| timed.component / timed.native - 1.0));
    let fastest = least(times, |timed| timed.component) / least(times, |timed| timed.native) - 1.0;
    let guest = Spread::of(times.iter().map(|timed| timed.guest)).median;
    let calls = times.last().map_or(0, |timed| timed.calls);
    let model = arguments.model.as_deref().unwrap_or("sample");
    let Arguments { batch, sequence, rank, .. } = arguments;
    let (name, pairs) = (twin.name, times.len());
    let line = |what: &str, spread: Spread, factor: f64, unit: &str| {
        let Spread { low, median, high } = spread;
        let [low, median, high] = [low, median, high].map(|number| number * factor);
        println!("  {what:<10} {median:>9.3} {unit:<2}   middle half {low:.3} … {high:.3}");
    };
    println!("{name} on {model}: {batch} records of {sequence} tokens, rank {rank}, {pairs} pairs of steps");
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
