//! Claims about a method at work: what reaches the run, what comes back, what survives, and how it ends.
//!
//! Guests are small texts (`support/guest.rs`); the run is a fake that records.

mod activations;
mod ends;
mod instructions;
mod learning;
mod limits;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use crate::support::fake_run::{FakeRun, Record, rows};
use crate::support::guest;
use tunebox_sandbox::{Batch, Engine, Grants, Limits, Session, SessionSettings};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap());

/// Imports and data for guests that score the batch and learn from it.
const LEARNING: &str = r#"
(import "tunebox:method/data@0.2.0" "[method]batch.rows" (func $rows (param i32 i32 i32 i32)))
(import "tunebox:method/data@0.2.0" "[method]rows.mask" (func $mask (param i32 i32)))
(import "tunebox:method/model@0.2.0" "policy" (func $policy (result i32)))
(import "tunebox:method/model@0.2.0" "reference" (func $reference (param i32)))
(import "tunebox:method/model@0.2.0" "score" (func $score (param i32 i32 i32 i32 f32 i32)))
(import "tunebox:method/model@0.2.0" "score-for-learning" (func $learn-from (param i32 i32 i32 f32 i32)))
(import "tunebox:method/model@0.2.0" "[constructor]taps" (func $taps (result i32)))
(import "tunebox:method/model@0.2.0" "[method]taps.mean-logit" (func $ask-mean-logit (param i32)))
(import "tunebox:method/model@0.2.0" "[method]scores.logprob" (func $logprob (param i32) (result i32)))
(import "tunebox:method/model@0.2.0" "[method]scores.mean-logit" (func $mean-logit (param i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.detach" (func $detach (param i32 i32)))
(import "tunebox:method/tensor@0.2.0" "multiply" (func $multiply (param i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.negate" (func $negate (param i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.sum" (func $sum (param i32 i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/learn@0.2.0" "backward" (func $backward (param i32 i32)))
(import "tunebox:method/learn@0.2.0" "backward-from" (func $backward-from (param i32 i32 i32 i32 i32)))
(import "tunebox:method/learn@0.2.0" "allow-repeats" (func $allow-repeats))
(import "tunebox:method/learn@0.2.0" "update" (func $update (param i32)))
(import "tunebox:method/hidden@0.2.0" "capture-for-learning" (func $capture (param i32 i32 i32 i32 i32 i32 i32)))
(import "tunebox:method/model@0.2.0" "[resource-drop]scores" (func $drop-scores (param i32)))
(import "tunebox:method/tensor@0.2.0" "[resource-drop]tensor" (func $drop-tensor (param i32)))
(data (i32.const 256) "example")
(data (i32.const 512) "\02\00\00\00\03\00\00\00")
(data (i32.const 528) "\00\00\00\00")

;; The batch's rows.
(func $examples (param $batch i32) (result i32)
  (call $rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $handle))

;; Scores of rows, for learning.
(func $scores (param $rows i32) (result i32)
  (call $learn-from (local.get $rows) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $handle))

;; Activations of the last token of each of the batch's rows after block 0, for learning.
(func $activations (param $batch i32) (result i32)
  (call $capture (call $examples (local.get $batch)) (i32.const 528) (i32.const 1) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))

;; The sum of a tensor.
(func $total (param $tensor i32) (result i32)
  (call $sum (local.get $tensor) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))

;; The negated tensor.
(func $minus (param $tensor i32) (result i32)
  (call $negate (local.get $tensor) (i32.const 64))
  (call $handle))
"#;

fn batch() -> Batch {
    Batch {
        sides: vec![("example".into(), rows())],
        size: 2,
        columns: BTreeMap::new(),
        window_targets: BTreeMap::from([("example".into(), 3)]),
        window_size: 2,
        ends_window: true,
        ..Batch::default()
    }
}

fn settings() -> SessionSettings {
    SessionSettings { seed: 7, metric_names: vec!["loss".into()], ..SessionSettings::default() }
}

fn start(guest: &str, settings: SessionSettings) -> (Session<FakeRun>, Arc<Mutex<Record>>) {
    let bytes = guest::component(guest);
    let method = ENGINE.admit(&bytes, "guest", &Grants::default(), &Limits::default()).unwrap();
    let (train_state, record) = FakeRun::with_record();
    (Session::start(&method, train_state, settings).unwrap(), record)
}
