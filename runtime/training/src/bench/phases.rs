//! What a run does beside its steps, timed by itself: opening, compiling, scoring, writing.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tunebox_compute::fused::TapSet;
use tunebox_compute::random::Stream;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::{Policy, Rows, View};
use tunebox_package::Reference;
use tunebox_sandbox::{Compiling, Engine, Grants, Limits};

use crate::error::Error;

/// Passes that are timed; the fastest counts, since nothing but other work makes one slower.
const PASSES: usize = 3;
/// Tokens of a prompt, and of a completion.
const WRITTEN: usize = 32;

/// Seconds to check and compile a method: anew, and with its code in a cache.
pub(super) fn compile(method: &str, place: &Path) -> Result<(f64, f64), Error> {
    let package = Reference::parse(method, Path::new("."))?.open()?;
    let grants = Grants::default().with("weights").with("text");
    let compiling = Compiling { cache: Some(place.join("compiled")), ..Compiling::default() };
    let timed = || -> Result<f64, Error> {
        let engine = Engine::with(compiling.clone())?;
        let begun = Instant::now();
        engine.admit(&package.bytes, &package.manifest.name, &grants, &Limits::default())?;
        Ok(begun.elapsed().as_secs_f64())
    };
    Ok((timed()?, timed()?))
}

/// Tokens scored a second.
pub(super) fn score(policy: &Policy, rows: usize, length: usize) -> Result<f64, Error> {
    let ids = made_up(policy, rows, length.max(2));
    let targets = ids.iter().map(|row| vec![true; row.len()]).collect();
    let rows = Arc::new(Rows::new(ids, targets)?);
    let tokens = rows.tokens() as f64;
    let mut least = f64::INFINITY;
    for _ in 0..PASSES {
        let begun = Instant::now();
        policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(tokens / least)
}

/// Tokens written a second, so many completions side by side, each after a prompt of its own. The clock starts when the
/// prompts are read and the first token is there.
pub(super) fn write(policy: &Policy, completions: usize) -> Result<f64, Error> {
    let room = policy.model().configuration.max_positions;
    let prompts = made_up(policy, completions, WRITTEN.min(room / 2).max(1));
    let sampling = Sampling { max_tokens: WRITTEN, ..Sampling::default() };
    let mut best = 0.0_f64;
    for _ in 0..PASSES {
        let mut begun = None;
        let written = generate(policy, &View::Policy, &prompts, &sampling, &mut |_, _| {
            begun.get_or_insert_with(Instant::now);
            true
        })?;
        let later: usize = written.iter().map(|completion| completion.ids.len().saturating_sub(1)).sum();
        let seconds = begun.map_or(f64::INFINITY, |begun| begun.elapsed().as_secs_f64());
        best = best.max(later as f64 / seconds);
    }
    Ok(best)
}

fn made_up(policy: &Policy, rows: usize, length: usize) -> Vec<Vec<u32>> {
    let mut stream = Stream::new(2, "bench");
    let vocabulary = policy.model().configuration.vocabulary.max(1) as u64;
    (0..rows).map(|_| (0..length).map(|_| (stream.next_u64() % vocabulary) as u32).collect()).collect()
}
