//! What the wall costs: operations a second through it, and the same operations called without it.
//!
//! `cargo bench --workspace --bench wall` prints a table. A guest calls one import over and over; the time of a call is
//! the time of the step divided by the calls. The same operation of `compute` is then called natively, paying and
//! checking as always, and once more straight in the tensor library, which neither checks nor pays.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement may stop, and prints its table")]

#[path = "../../../tests/support/fake_run.rs"]
#[expect(dead_code, reason = "other uses need the rest")]
mod fake_run;
#[path = "../../../tests/support/guest.rs"]
mod guest;
#[path = "../../../tests/support/tiny_policy.rs"]
mod tiny_policy;

use std::hint::black_box;
use std::time::{Duration, Instant};

use fake_run::FakeRun;
use tunebox_compute::budget::Budget;
use tunebox_compute::{DType, Device, Tensor, ops};
use tunebox_sandbox::{Batch, Engine, Grants, Limits, Session, SessionSettings};

/// Calls in one step.
const CALLS: u32 = 200_000;
/// Rounds, of which the best counts: the others were disturbed.
const ROUNDS: usize = 5;

const IMPORTS: &str = r#"
(import "tunebox:method/run@0.2.0" "position" (func $position (result i32)))
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "add" (func $add (param i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.dtype" (func $dtype (param i32) (result i32)))
(import "tunebox:method/tensor@0.2.0" "[resource-drop]tensor" (func $drop (param i32)))
"#;

/// Returns the bytes of a component whose `step` makes one tensor of `shape` filled with ones, then runs `body` (WAT
/// instructions) `CALLS` times. `body` may use the local `$tensor`, the handle of that tensor.
fn component(shape: &[u32], body: &str) -> Vec<u8> {
    let dims: String =
        shape.iter().flat_map(|length| length.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect();
    let count = shape.len();
    guest::component(&format!(
        r#"{IMPORTS}
        (data (i32.const 256) "{dims}")
        (func $step (param i32) (result i32)
          (local $left i32) (local $tensor i32)
          (call $ones (i32.const 256) (i32.const {count}) (i32.const 5) (i32.const 64))
          (local.set $tensor (call $handle))
          (local.set $left (i32.const {CALLS}))
          (loop $again
            {body}
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $done))"#
    ))
}

/// Returns the nanoseconds of one turn of the guest's loop in [`component`], best of `ROUNDS` calls of `step`.
fn through_the_wall(engine: &Engine, shape: &[u32], body: &str) -> f64 {
    let limits = Limits { host_calls: u64::MAX, step_seconds: 600.0, ..Limits::default() };
    let method = engine.admit(&component(shape, body), "bench", &Grants::default(), &limits).unwrap();
    let (train_state, _) = FakeRun::with_record();
    let mut session =
        Session::start(&method, train_state, SessionSettings { limits, ..SessionSettings::default() }).unwrap();
    best(|| {
        let begun = Instant::now();
        session.step(Batch::default()).unwrap();
        begun.elapsed()
    })
}

/// Returns the nanoseconds of one call of `call`, best of `ROUNDS` rounds of `CALLS` calls.
fn natively(mut call: impl FnMut()) -> f64 {
    best(|| {
        let begun = Instant::now();
        (0..CALLS).for_each(|_| call());
        begun.elapsed()
    })
}

/// Runs a round `ROUNDS` times and returns the shortest, divided by `CALLS`, in nanoseconds.
fn best(mut round: impl FnMut() -> Duration) -> f64 {
    let least = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    least.as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// Prints one line of the table: the label `what`, the nanoseconds of one call, and the calls that fit in a second.
fn row(what: &str, nanoseconds: f64) {
    println!("{what:<58} {nanoseconds:>9.0} ns {:>12.0} a second", 1e9 / nanoseconds);
}

fn main() {
    let engine = Engine::new().unwrap();
    let empty = through_the_wall(&engine, &[1], "(nop)");
    row("an empty turn of the guest's loop", empty.max(0.1));
    let calls = [
        ("a call without arguments (run.position)", vec![1], "(drop (call $position))"),
        ("a call with one borrow (tensor.dtype)", vec![1], "(drop (call $dtype (local.get $tensor)))"),
        ("two borrows, a result, a drop (add on [1])", vec![1], ADD),
        ("two borrows, a result, a drop (add on [4, 64])", vec![4, 64], ADD),
    ];
    for (what, shape, body) in calls {
        row(what, through_the_wall(&engine, &shape, body) - empty);
    }
    for shape in [vec![1, 1], vec![4, 64]] {
        let x = Tensor::ones(shape.as_slice(), DType::F32, &Device::Cpu).unwrap();
        let mut ledger = Budget::new(1 << 30);
        row(
            &format!("the same add on {shape:?}, checked and paid, without a wall"),
            natively(|| {
                drop(black_box(ops::add(&mut ledger, &x, &x).unwrap()));
            }),
        );
        row(
            &format!("the same add on {shape:?}, neither checked nor paid"),
            natively(|| {
                drop(black_box(x.add(&x).unwrap()));
            }),
        );
    }
}

const ADD: &str = "(call $add (local.get $tensor) (local.get $tensor) (i32.const 64)) (call $drop (call $handle))";
