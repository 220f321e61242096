//! Gathers messages between the ranks that a launcher started, checks them, and prints one line per rank with the
//! times.
//!
//! `mpirun -n 4 gather` exchanges messages of several lengths. `mpirun -n 4 gather hang 2` lets rank 2 sleep, so that
//! the other ranks report it as missing.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output is what this program is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tunebox_foundation::explain::Explain;
use tunebox_ranks::{RankError, Transport, connect, find_launch};

/// How long each exchange waits for the other ranks.
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let hanging = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hang", rank] => rank.parse().ok(),
        _ => None,
    };
    match run(hanging) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let explanation = error.explanation();
            eprintln!("error: {error}");
            eprintln!("  why: {}", explanation.why.unwrap_or_default());
            eprintln!("  hint: {}", explanation.hint.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// Connects the ranks, exchanges messages of all lengths, and prints the times. The rank `hanging` sleeps instead, and
/// the other ranks report it and abort the run.
fn run(hanging: Option<usize>) -> Result<(), RankError> {
    let Some(launch) = find_launch(|name| std::env::var(name).ok())? else {
        println!("no launcher started more than one rank");
        return Ok(());
    };
    let mut transport = connect(&launch, TIMEOUT)?;
    if let Some(hanging) = hanging {
        hang(transport.as_mut(), hanging);
        return Ok(());
    }
    for length in [0, 10, 3 << 20] {
        check_gather(transport.as_mut(), length)?;
    }
    // The transport may be used by another thread than the one that connected.
    let (transport, small, large) = std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            let small = measure(transport.as_mut(), 8, 1000)?;
            let large = measure(transport.as_mut(), 8 << 20, 10)?;
            Ok::<_, RankError>((transport, small, large))
        });
        work.join().unwrap_or(Err(RankError::Broken))
    })?;
    println!(
        "rank {} of {}: {:.1} us for 8 B, {:.2} ms for 8 MiB",
        transport.rank(),
        transport.count(),
        small.as_secs_f64() * 1e6,
        large.as_secs_f64() * 1e3
    );
    transport.close()
}

/// Gathers messages of `length` bytes plus the number of their rank if the length is not 0, and compares them with what
/// each rank sends.
fn check_gather(transport: &mut dyn Transport, length: usize) -> Result<(), RankError> {
    let message = |rank: usize| vec![(rank % 251) as u8 + 1; if length == 0 { 0 } else { length + rank }];
    let found = transport.gather(&message(transport.rank()), TIMEOUT)?;
    assert_eq!(found.len(), transport.count());
    for (rank, found) in found.iter().enumerate() {
        assert!(*found == message(rank), "the message of rank {rank} has {} bytes", found.len());
    }
    Ok(())
}

/// The mean time of `times` gathers of messages of `length` bytes, after one that is not measured.
fn measure(transport: &mut dyn Transport, length: usize, times: u32) -> Result<Duration, RankError> {
    let message = vec![1; length];
    transport.gather(&message, TIMEOUT)?;
    let begin = Instant::now();
    for _ in 0..times {
        transport.gather(&message, TIMEOUT)?;
    }
    Ok(begin.elapsed() / times)
}

/// Sleeps if this is the rank `hanging`; else waits one second for the ranks, prints the error, and aborts the run
/// after the other ranks had time to do the same.
fn hang(transport: &mut dyn Transport, hanging: usize) {
    if transport.rank() == hanging {
        std::thread::sleep(Duration::from_secs(30));
    }
    match transport.gather(&[1], Duration::from_secs(1)) {
        Ok(_) => println!("rank {}: no rank is missing", transport.rank()),
        Err(error) => println!("rank {}: {error}", transport.rank()),
    }
    std::thread::sleep(Duration::from_secs(1));
    transport.abort(3);
}
