//! One run, from data to artifact.
//!
//! A run file becomes [`RunSettings`], settings become a [`Plan`] (everything known before the first step), and a plan
//! becomes a folder with metrics, checkpoints, an adapter, a card and a lock.

mod answers;
mod artifact;
mod bench;
mod card;
mod checkpoint;
pub mod configuration;
mod cost;
pub mod data;
mod environment;
mod error;
mod evaluation;
mod exact;
mod extra_parameters;
mod learner;
mod length;
mod lock;
mod metrics;
mod observer;
mod outcome;
pub mod plan;
mod ranks;
mod report;
mod run;
mod runs;
pub mod sample;
pub mod twin;
mod validation;
mod verification;
mod verifiers;
mod worker;

pub use bench::{BenchSettings, Completions, Generation, Measured, Overhead, Phase, Scoring, StartUp, Training, bench};
pub use checkpoint::is_checkpoint;
pub use configuration::{RUNS_FOLDER, RunSettings};
pub use cost::{Cost, Energy, EnergySource};
pub use environment::Environment;
pub use error::Error;
pub use evaluation::{Evaluation, EvaluationSettings, Figure, evaluate};
pub use learner::{TrainState, Trainer, bench_train_state};
pub use lock::write::Written;
pub use lock::{base_precision, is_run};
pub use observer::{Answered, Event, Observer, Sample, StepEvent, Version};
pub use outcome::Outcome;
pub use plan::{NativeMethod, Plan, PlanSummary, PlannedRun, adapter_template, plan, read_template};
pub use ranks::{Connection, Traffic};
pub use report::{
    ComparedRun, Difference, FILE as REPORT_FILE, MetricSummary, RunComparison, compare_runs, write_report,
};
pub use run::{Summary, Trial, run, try_steps};
pub use runs::{BestScore, Listed, find_base, find_model, find_run, find_steering, newest_checkpoint, runs};
pub use validation::{PassRate, Score, Validation};
pub use verification::{Comparison, Replay, UnconfirmedComponents, Verification, verify};
pub use verifiers::{Answer, Verifiers};
pub use worker::{
    active_rings, component_files, confine_memory, data_files, execute, execute_on_ranks, list_read_files,
    memory_of_plan, model_files, package_files, serve,
};
