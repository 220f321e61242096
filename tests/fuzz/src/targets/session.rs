//! Whole sessions: sequences of calls of the contract over the real policy on a model of two layers.
//!
//! An input chooses limits, an adapter, and a program. A guest in the real sandbox interprets the program (`contract`,
//! `program`) and keeps handles from call to call. A case fails if a call panics or reports a fault of the host, if bytes
//! stay reserved after the session, if no other method can use the train state afterwards, if a run that resumes from a
//! checkpoint ends in other bits, or if the process allocates more than twice the peak of the memory account plus
//! [`FIXED_BYTES`].

mod contract;
mod program;
mod run;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Once};
use std::thread;

use arbitrary::{Result as Read, Unstructured};
use tunebox_sandbox::{Engine, Error, Grants, Limits, Method, SessionSettings, StepReport, Value};

use self::contract::Contract;
use self::program::Writer;
use self::run::{Checkpoint, MicroRun, RunSettings, TrainedState, batch, begin_step, train_state};
use crate::features::reach;
use crate::{Target, allocation};

pub(super) const TARGET: Target = Target { name: "session", run, longest: 2 << 10, quick: 400 };

type Session = tunebox_sandbox::Session<MicroRun>;

/// Bytes outside the account: the instance, one pass through the model, saved activations, lists and texts in transit.
const FIXED_BYTES: usize = 2 << 20;
/// The limit `activation_bytes`.
const ACTIVATION_BYTES: u64 = 256 << 10;
/// Steps of a run.
const STEPS: u32 = 4;
/// The longest log line of a program, escaped. Errors of the host, which the guest logs, are longer.
const WORD_BYTES: usize = 20;

static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::read);
static METHOD: LazyLock<Method> = LazyLock::new(|| {
    let grants = Grants::default().with("weights").with("text");
    let engine = Engine::new().unwrap_or_else(|error| panic!("{error}"));
    let method = engine.admit(&CONTRACT.component(), "program", &grants, &Limits::default());
    method.unwrap_or_else(|error| panic!("{error}"))
});
/// Starts threads and fills caches before the first measurement.
static WARM_UP: Once = Once::new();

/// A run that an input describes.
struct Case {
    run: RunSettings,
    limits: Limits,
    /// The settings for `init`, which hold the program.
    program: Vec<(String, Value)>,
    /// The program for people.
    listing: Vec<String>,
    /// The step after which a checkpoint is saved.
    checkpoint: Option<u32>,
}

impl Case {
    /// Reads a case from an input.
    fn read(bytes: &mut Unstructured<'_>) -> Read<Self> {
        let run = RunSettings::read(bytes)?;
        let limits = Limits { device_bytes: 1 << bytes.int_in_range(16..=23)?, ..read_limits(bytes)? };
        let checkpoint = if bytes.arbitrary()? { Some(bytes.int_in_range(0..=STEPS - 2)?) } else { None };
        let mut writer = Writer::new(&CONTRACT, bytes);
        // One part for `init`, one for each step, one for `finish`.
        (0..STEPS + 2).try_for_each(|_| writer.write_part())?;
        let listing = std::mem::take(&mut writer.listing);
        Ok(Self { run, limits, program: writer.settings(), listing, checkpoint })
    }

    fn settings(&self) -> SessionSettings {
        let metric_names = vec!["loss".to_owned(), "chosen".to_owned()];
        let updates_itself = self.run.seed % 2 == 1;
        SessionSettings {
            limits: self.limits.clone(),
            seed: 7,
            metric_names,
            updates_itself,
            ..SessionSettings::default()
        }
    }

    /// Starts a session. The caller calls `init` next.
    fn start(&self) -> Session {
        let session = Session::start(&METHOD, train_state(&self.run), self.settings());
        session.unwrap_or_else(|error| panic!("the session does not start: {error}"))
    }
}

/// Chooses limits: low ones of several kinds, or the usual ones.
fn read_limits(bytes: &mut Unstructured<'_>) -> Read<Limits> {
    let usual = Limits { step_seconds: 20.0, activation_bytes: ACTIVATION_BYTES, work: 1 << 28, ..Limits::default() };
    Ok(match bytes.int_in_range(0..=15)? {
        0 => Limits { handles: 24, patches: 2, snapshots: 1, streams: 1, ..usual },
        1 => Limits { host_calls: 60, metrics: 3, log_lines: 3, readback_bytes: 64, ..usual },
        2 => Limits { graph_depth: 12, passes: 9, completions: 4, sampled_tokens: 40, verdicts: 8, ..usual },
        3 => Limits { work: 50_000, model_work: 400_000, transfer_bytes: 4_096, activation_bytes: 1 << 16, ..usual },
        4 => Limits { graph_depth: 20_000, ..usual },
        _ => usual,
    })
}

/// Results of the calls of a session.
#[derive(Default)]
struct Results {
    /// Metrics and log lines of each call, or the words with which the method refused.
    reports: Vec<String>,
    /// The peak of the memory account.
    peak_bytes: u64,
}

impl Results {
    /// Adds the result of a call. Returns an error if the session ended. Panics if the host was at fault.
    fn add(&mut self, result: Result<StepReport, Error>) -> Result<(), Error> {
        match result {
            Ok(report) => {
                assert!(
                    report.log.iter().all(|line| line.len() < WORD_BYTES),
                    "an error of the host: {:?}",
                    report.log
                );
                self.peak_bytes = self.peak_bytes.max(report.usage.peak_device_bytes);
                self.reports.push(format!("{:?} {:?}", report.metrics, report.log));
                Ok(())
            }
            Err(error @ Error::Refused { .. }) => {
                self.reports.push(error.to_string());
                Ok(())
            }
            Err(Error::Stopped(stop)) => {
                assert!(!stop.is_host_fault() && !stop.to_string().is_empty(), "{stop}");
                reach(stop.to_string().split(':').next());
                Err(Error::Stopped(stop))
            }
            Err(other) => Err(other),
        }
    }
}

/// A checkpoint of the whole session.
struct Saved {
    train_state: Checkpoint,
    method_state: Vec<u8>,
    streams: BTreeMap<String, u64>,
    step: u32,
    /// Number of reports up to here.
    reports: usize,
}

impl Drop for Case {
    /// Shows the program of a case that failed.
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{:?}, saved after {:?}: {}", self.run, self.checkpoint, self.listing.join(" "));
        }
    }
}

/// Returns the first call with another result: its number and name, and both results.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    let calls = |state: &[u8]| state[64..].as_chunks::<4>().0.to_vec();
    let mut pairs = calls(one).into_iter().zip(calls(other)).enumerate();
    let (number, (one, other)) = pairs.find(|(_, (one, other))| one != other)?;
    let name = |call: [u8; 4]| {
        CONTRACT.imports.get(usize::from(call[0]) | usize::from(call[1]) << 8).map(|import| &import.name)
    };
    Some(format!("call {number}: {:?} {}, {:?} {}", name(one), one[2], name(other), other[2]))
}

/// Runs one case; see the module.
fn run(input: &[u8]) {
    let _made = (LazyLock::force(&METHOD), LazyLock::force(&run::MODEL));
    let Ok(case) = Case::read(&mut Unstructured::new(input)) else { return };
    WARM_UP.call_once(|| run_another_method(&case, case.start()));
    let before = allocation::restart();
    let (mut session, mut saved, mut results) = (case.start(), None, Results::default());
    let end = results.add(session.init(&case.program));
    let end = end.and_then(|()| run_steps(&case, &mut session, 0, &mut results, &mut saved));
    let allocated = allocation::peak().saturating_sub(before);
    let account = if end.is_ok() { results.peak_bytes } else { case.limits.device_bytes };
    let allowed = 2 * account as usize + FIXED_BYTES;
    assert!(allocated <= allowed, "{allocated} bytes were allocated, the account has a peak of {account}");
    if end.is_ok()
        && let Ok(state) = session.save_state()
        && let Ok(trained) = TrainedState::read(&session.train_state())
    {
        // The results of the calls, as the guest recorded them.
        state[64..].as_chunks::<4>().0.iter().for_each(reach);
        if let Some(saved) = saved {
            resume(&case, &saved, &results, &trained, &state);
        }
    }
    session.end();
    assert_eq!(session.held_bytes(), 0, "bytes stay reserved after the session");
    run_another_method(&case, session);
}

/// Runs the steps from `first` on, with an update after each that accumulated a gradient, then `finish`. Saves the
/// checkpoint of the case. Errors: the session ended.
fn run_steps(
    case: &Case,
    session: &mut Session,
    first: u32,
    results: &mut Results,
    saved: &mut Option<Saved>,
) -> Result<(), Error> {
    for step in first..STEPS {
        begin_step(&mut session.train_state(), step);
        results.add(session.step(batch(&case.run, step)))?;
        let mut train_state = session.train_state();
        if train_state.has_gradient() && train_state.update().is_err() {
            // A run would end here with an error; going on tests more.
            train_state.clear_gradient().unwrap_or_else(|error| panic!("{error}"));
        }
        drop(train_state);
        if case.checkpoint == Some(step) {
            let (method_state, streams) = (session.save_state()?, session.streams().clone());
            let train_state = allocation::leave_out(|| Checkpoint::save(&session.train_state()).ok());
            let reports = results.reports.len();
            *saved = train_state.map(|train_state| Saved { train_state, method_state, streams, step, reports });
        }
    }
    results.add(session.finish())
}

/// Resumes the run from its checkpoint in a new session, and compares reports, method state and trained state with
/// those of the uninterrupted run.
fn resume(case: &Case, saved: &Saved, uninterrupted: &Results, trained: &TrainedState, state: &[u8]) {
    let (mut session, mut results) = (case.start(), Results::default());
    let begun = Results::default().add(session.init(&case.program));
    begun.unwrap_or_else(|error| panic!("`init` ends a session that it did not end before: {error}"));
    let restored = saved.train_state.restore(&mut session.train_state());
    restored.unwrap_or_else(|error| panic!("the checkpoint cannot be restored: {error}"));
    session.restore_streams(&saved.streams);
    session.load_state(&saved.method_state).unwrap_or_else(|error| panic!("`load-state` fails: {error}"));
    let end = run_steps(case, &mut session, saved.step + 1, &mut results, &mut None);
    end.unwrap_or_else(|error| panic!("the resumed session ends: {error}"));
    assert_eq!(results.reports, uninterrupted.reports[saved.reports..], "reports of the resumed run");
    let again = session.save_state().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(difference(&again, state), None, "a call of the resumed run has another result");
    let again = TrainedState::read(&session.train_state()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&again, trained, "the resumed run ends in other bits");
}

/// Runs another method over the train state that a session left: it scores rows, back-propagates a loss and updates.
fn run_another_method(case: &Case, mut session: Session) {
    let settings = SessionSettings { limits: Limits::default(), updates_itself: false, ..case.settings() };
    session.replace(&METHOD, settings).unwrap_or_else(|error| panic!("no other method starts: {error}"));
    // Zeros choose the first phrase.
    let mut bytes = Unstructured::new(&[0; 64]);
    let mut writer = Writer::new(&CONTRACT, &mut bytes);
    let written = writer.write_part().and_then(|()| writer.write_part());
    written.unwrap_or_else(|error| panic!("{error}"));
    let mut results = Results::default();
    let mut add = |result| results.add(result).unwrap_or_else(|error| panic!("no other method runs: {error}"));
    add(session.init(&writer.settings()));
    add(session.step(batch(&case.run, STEPS)));
    session.end();
    assert_eq!(session.held_bytes(), 0, "bytes stay reserved after another method");
}
