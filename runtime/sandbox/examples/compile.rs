//! How long it takes until a method can be called: `cargo run --release --example compile -- methods/*/*.wasm`.
//!
//! Cold: engine, admission, compiling, instance. Kept: the same with code out of the cache. In milliseconds, the
//! median of several.
#![expect(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]
#![expect(clippy::print_stdout, reason = "its output is the table")]

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../../../tests/support/fake_run.rs"]
mod fake_run;
#[path = "../../../tests/support/tiny_policy.rs"]
mod tiny_policy;

use std::path::Path;
use std::time::Instant;

use tunebox_sandbox::{Compiling, Engine, Grants, Limits, Session, SessionSettings};

/// Times of each kind.
const TIMES: usize = 9;

fn main() {
    let place = tempfile::tempdir().unwrap();
    println!("{:>24} {:>8} {:>8} {:>8} {:>8} {:>8}", "component", "bytes", "engine", "cold", "kept", "instance");
    for name in std::env::args().skip(1) {
        let bytes = std::fs::read(&name).unwrap();
        let cold = median(|_| ready(&bytes, Compiling::default()));
        let cache = place.path().join("compiled");
        let compiling = Compiling { cache: Some(cache), ..Compiling::default() };
        ready(&bytes, compiling.clone());
        let kept = median(|_| ready(&bytes, compiling.clone()));
        let short = Path::new(&name).file_stem().unwrap().to_string_lossy();
        let size = bytes.len();
        println!("{short:>24} {size:>8} {:>8.2} {:>8.2} {:>8.2} {:>8.2}", kept[0], cold[1], kept[1], kept[2]);
    }
}

/// Milliseconds for the engine alone, for everything, and for the instance alone.
fn ready(bytes: &[u8], compiling: Compiling) -> [f64; 3] {
    let begun = Instant::now();
    let engine = Engine::with(compiling).unwrap();
    let made = milliseconds(begun);
    let grants = Grants::default().with("weights").with("text");
    let method = engine.admit(bytes, "method", &grants, &Limits::default()).unwrap();
    let admitted = milliseconds(begun);
    let (train_state, _) = fake_run::FakeRun::with_record();
    drop(Session::start(&method, train_state, SessionSettings::default()).unwrap());
    let all = milliseconds(begun);
    [made, all, all - admitted]
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn median(run: impl FnMut(usize) -> [f64; 3]) -> [f64; 3] {
    let runs: Vec<[f64; 3]> = (0..TIMES).map(run).collect();
    [0, 1, 2].map(|column| {
        let mut values: Vec<f64> = runs.iter().map(|run| run[column]).collect();
        values.sort_by(f64::total_cmp);
        values[TIMES / 2]
    })
}
