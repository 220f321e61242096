//! Claims about a method at work: what reaches the run, what comes back, what survives, and how it ends.
//!
//! Guests are small texts (`support/guest.rs`); the run is a fake that records.

mod activations;
mod ends;
mod instructions;
mod learning;
mod limits;
mod state;

use std::sync::{Arc, LazyLock, Mutex};

use crate::support::attack::batch;
use crate::support::fake_run::{FakeRun, Record};
use crate::support::guest;
use tunebox_sandbox::{Engine, Error, Grants, Limits, Session, SessionSettings};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap());

/// Functions and data for guests that score the batch and learn from it.
const LEARNING: &str = r#"
(data (i32.const 256) "example")
(data (i32.const 512) "\02\00\00\00\03\00\00\00")
(data (i32.const 528) "\00\00\00\00")

;; The batch's rows.
(func $examples (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $handle))

;; Scores of rows, for learning.
(func $scores (param $rows i32) (result i32)
  (call $model/score-for-learning (local.get $rows) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $handle))

;; Activations of the last token of each of the batch's rows after block 0, for learning.
(func $activations (param $batch i32) (result i32)
  (call $hidden/capture-for-learning (call $examples (local.get $batch)) (i32.const 528) (i32.const 1) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))

;; The sum of a tensor.
(func $total (param $tensor i32) (result i32)
  (call $tensor/tensor.sum (local.get $tensor) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))

;; The negated tensor.
(func $minus (param $tensor i32) (result i32)
  (call $tensor/tensor.negate (local.get $tensor) (i32.const 64))
  (call $handle))
"#;

fn settings() -> SessionSettings {
    SessionSettings { seed: 7, metric_names: vec!["loss".into()], ..SessionSettings::default() }
}

fn start(guest: &str, settings: SessionSettings) -> (Session<FakeRun>, Arc<Mutex<Record>>) {
    let bytes = guest::component(guest);
    let method = ENGINE.admit(&bytes, "guest", &Grants::default(), &Limits::default()).unwrap();
    let (train_state, record) = FakeRun::with_record();
    (Session::start(&method, train_state, settings).unwrap(), record)
}

/// A step with this body, which passes the error of its last call on.
fn step_of(body: &str) -> String {
    format!("(func $step (param $batch i32) (result i32) {body} (call $pass-on))")
}

/// Runs steps of a guest that has [`LEARNING`]: the session, and what the last step answered.
fn run_steps(step: &str, steps: usize) -> (Session<FakeRun>, Arc<Mutex<Record>>, Result<(), Error>) {
    let (mut session, record) = start(&format!("{LEARNING}{step}"), settings());
    let mut answer = Ok(());
    for _ in 0..steps {
        answer = session.step(batch()).map(|_| ());
    }
    (session, record, answer)
}

fn error_text(answer: Result<(), Error>) -> String {
    answer.unwrap_err().to_string()
}
