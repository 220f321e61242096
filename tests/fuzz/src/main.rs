//! `tunebox-fuzz TARGET SECONDS [SEED]`: a plain loop over made inputs, without a fuzzing engine.
//! `tunebox-fuzz TARGET FILE…` runs files; `tunebox-fuzz` lists the targets.
#![expect(clippy::print_stdout, reason = "it is a program for a terminal")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tunebox_fuzz::{Counting, TARGETS, Target, find, search, take_new_features};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(target) = arguments.first().and_then(|name| find(name)) else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::from(u8::from(!arguments.is_empty()) * 2);
    };
    let seconds = arguments.get(1).map_or(Ok(10), |text| text.parse());
    match seconds {
        Ok(seconds) => {
            let seed = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(0);
            endless(target, Duration::from_secs(seconds), seed);
            ExitCode::SUCCESS
        }
        Err(_) => arguments[1..]
            .iter()
            .map(|path| file(target, path))
            .fold(ExitCode::SUCCESS, |all, one| if one == ExitCode::SUCCESS { all } else { one }),
    }
}

fn endless(target: &Target, time: Duration, seed: u64) {
    let begun = Instant::now();
    let number = |input: u64| format!("input {input} of seed {seed}");
    // Said before it is run: a crash that ends the process is found again by its number.
    let mut said = Instant::now();
    let tally = search(target, seed, 0, |input| {
        if said.elapsed() > Duration::from_secs(5) {
            said = Instant::now();
            println!("{}: {}", target.name, number(input));
        }
        begun.elapsed() < time
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("{}: {} inputs in {seconds:.0} s, the slowest took {:?}", target.name, tally.inputs, tally.slowest);
}

fn file(target: &Target, path: &str) -> ExitCode {
    match std::fs::read(path) {
        Ok(bytes) => {
            let begun = Instant::now();
            (target.run)(&bytes);
            let new = if take_new_features() { ", new features" } else { "" };
            println!("{path}: {:?}{new}", begun.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}
