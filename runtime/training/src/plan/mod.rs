//! Everything about a run that can be known before its first step.
//!
//! `problems` collects what is wrong with the settings, from them and the manifests of the components alone.
//! `build` puts a plan together: `method`, `verifier` and `environment` load and admit the components, `reward` opens
//! reward models and `teachers` the teachers, `folder` chooses the run's folder and checkpoint, `data` finds the data
//! files, `inputs` opens model, policy and data, `identity` compares the run with its checkpoint, `length` determines
//! the number of steps, `best` whether the best validation is kept, `adapter` and `optimizer` check their settings,
//! `memory` estimates the memory, and `planned` is the result. `check` and `--dry-run` show a plan, `run` executes it.

mod adapter;
mod best;
mod build;
mod data;
mod environment;
mod folder;
mod identity;
mod inputs;
mod length;
mod memory;
pub(crate) mod method;
mod model;
mod optimizer;
mod planned;
mod problems;
mod reward;
mod schedule;
mod teachers;
mod template;
pub(crate) mod trust;
pub(crate) mod verifier;

pub use build::{CompiledCode, compile, plan};
pub(crate) use build::{create_engine, create_verifier_engine, plan_with_method};
pub(crate) use data::{data_paths, digest_files, training_files, validation_files};
pub use environment::PlannedEnvironment;
pub(crate) use environment::load_environment;
pub(crate) use folder::{next_name, run_exists};
pub use memory::{Estimate, available, free};
pub(crate) use memory::{peak_bytes, reset_peak};
pub use method::{NativeMethod, PlannedMethod, no_effect_warning, trains};
pub(crate) use method::{lock_settings, prepare_native, prepare_revision};
pub use model::fetch;
pub(crate) use model::{digests, find_source, open_model};
pub(crate) use planned::Revision;
pub use planned::{Plan, PlanSummary, PlannedRanks, PlannedRun};
pub(crate) use problems::setting_problems;
pub use reward::PlannedReward;
pub(crate) use reward::{find_reward, open_reward_models, reward_folders, reward_sources};
pub(crate) use teachers::{find_teacher, teacher_digests};
pub(crate) use template::template_file;
pub use template::{adapter_template, read_template};
pub use trust::{Ask, admit_packages, admit_run_file, open_package};
pub(crate) use verifier::load_verifiers;
pub use verifier::{PlannedComponent, PlannedJudge, PlannedVerifier};
