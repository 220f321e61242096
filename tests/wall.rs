//! The wall as a whole: each folder of `attacks/` holds a hostile method and what becomes of it.
//!
//! After every attack the learner must still answer, the ledger be empty, and the same engine still run an ordinary
//! method; after all of them the process holds what it held before. Add an attack by adding a folder with
//! `component.wat` and `expected.txt`. They run in a process of their own, so that nothing
//! else changes its memory.

mod accounts;

use std::time::{Duration, Instant};

use crate::support::attack::{self, Attack, message, run};
use crate::support::{guest, own_process};
use tunebox_compute::memory::{peak, resident};
use tunebox_sandbox::Engine;

/// Bytes that an attack may take at once, beside what the process holds: eight times its tensors, for the compiler.
const MOST_BYTES: u64 = 64 << 20;

/// What an attack may take, compiling and an ordinary run after it included.
const LONGEST: Duration = Duration::from_secs(10);

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn every_attack_ends_as_written_beside_it_and_leaves_the_host_as_it_was() {
    let output = own_process::output("wall::every_attack_twice");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn every_attack_twice() {
    let attacks = attack::attacks();
    let engine = Engine::new().unwrap();
    let ordinary = guest::component("");
    let surprises: Vec<String> = attacks.iter().filter_map(|attack| surprise(&engine, &ordinary, attack)).collect();
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));

    // The first time round filled what a process keeps for good: the allocator's pools, the compiler's, threads.
    let before = resident().unwrap_or(0);
    for attack in &attacks {
        forget_peak();
        let before = resident().unwrap_or(0);
        surprise(&engine, &ordinary, attack);
        let taken = peak().unwrap_or(0).saturating_sub(before);
        assert!(taken <= MOST_BYTES, "{} took {taken} bytes at once", attack.name);
    }
    let after = resident().unwrap_or(0);
    println!("{} attacks twice: {before} bytes resident before the second time, {after} after", attacks.len());
    assert!(after as f64 <= before as f64 * 1.05, "{before} bytes before, {after} after all attacks once more");
}

/// What was not as written, if anything.
fn surprise(engine: &Engine, ordinary: &[u8], attack: &Attack) -> Option<String> {
    let Attack { name, bytes, expected, .. } = attack;
    let begun = Instant::now();
    let told = message(run(engine, bytes, name));
    run(engine, ordinary, "ordinary").unwrap();
    let took = begun.elapsed();
    if !attack.expects(&told) {
        return Some(format!("# {name}\n## expected\n{expected}## told\n{told}"));
    }
    (took > LONGEST).then(|| format!("# {name} took {took:?}"))
}

/// Forgets the peak of this process, such as that of the compiler.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
}
