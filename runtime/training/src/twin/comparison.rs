//! Compares a method's component with its native twin, the same source as a native process: what they report, train and
//! save must have the same bits after every update. The first difference ends the comparison.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use tunebox_foundation::explain::Explain as _;
use tunebox_foundation::files;
use tunebox_foundation::printable::printable;
use tunebox_package::digest::sha256;
use tunebox_package::{Package, manifest, section};
use tunebox_sandbox::Method;
use tunebox_sandbox::native::Twin;

use super::runner::{Runner, Snapshot, disconnected};
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::plan;

/// The most bytes of a value that a difference shows.
const SHOWN_BYTES: usize = 200;

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The method's name.
    pub method: String,
    /// Number of updates after which both were equal.
    pub steps: u64,
    /// Number of metric values that were equal.
    pub metrics: u64,
    /// Number of bits that were equal, of trained numbers, saved states and written files.
    pub bits: u64,
    /// SHA-256, in hexadecimal, of the trained numbers (`f32`, little-endian) when they were last equal.
    pub weights: String,
    /// The first difference; `None` if everything was equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// A difference between a component and its native twin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// When: "in `init`", "at step 3".
    pub moment: String,
    /// What differs.
    pub what: String,
    /// The component's value.
    pub component: String,
    /// The native twin's value.
    pub twin: String,
}

/// Why a comparison ended early.
enum CompareError {
    Differ(Difference),
    /// Both failed with the same error, or the comparison itself failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for CompareError {
    /// Makes an error a failure of the comparison, not a difference.
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Executes all steps of a run twice, by the method's component and by its native twin, and compares them. The first
/// difference ends the comparison and is part of the result. Calls `progress` with the number of finished steps and of
/// planned steps after each equal update. After a difference or an error, sends the reason to the twin's process and
/// closes the connection.
///
/// # Errors
/// A run that cannot be planned, and an error with which both the component and the twin end.
pub fn compare(settings: RunSettings, twin: Twin, progress: &mut dyn FnMut(u64, u64)) -> Result<Comparison, Error> {
    let notifier = twin.notifier().map_err(disconnected)?;
    let mut comparison = Comparison::default();
    let (reason, result) = match comparison.execute(settings, twin, progress) {
        Ok(()) => return Ok(comparison),
        Err(CompareError::Differ(difference)) => {
            let reason = format!("{} {} differs from the component's", difference.what, difference.moment);
            comparison.difference = Some(difference);
            (reason, Ok(comparison))
        }
        Err(CompareError::Failed(error)) => (error.to_string(), Err(error)),
    };
    // The twin may be waiting for an answer.
    notifier.stop(&reason);
    result
}

impl Comparison {
    /// Plans the run twice, exchanges the method of the second plan for the twin, and compares `init`, every step,
    /// `finish` and the files of edits and directions, which it writes to a temporary folder. Counts what is equal in
    /// `self`; stops at the first difference or error.
    fn execute(
        &mut self,
        settings: RunSettings,
        twin: Twin,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), CompareError> {
        let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-twin-")?;
        let (component, mut native) = (plan(settings.clone())?, plan(settings)?);
        let (steps, method) = (component.run.summary.steps, &mut native.run.method);
        self.method.clone_from(&method.package.manifest.name);
        compare_manifests(&method.package, twin.manifest())?;
        method.admitted = Method::native(&self.method, method.package.imports.clone(), twin);

        let at = "in `init`";
        let ((mut component, ours), (mut native, theirs)) =
            require_both(at, Runner::start(component), Runner::start(native))?;
        self.compare_snapshots(at, component.snapshot(vec![ours]), native.snapshot(vec![theirs]))?;
        for step in 1..=steps {
            let at = &format!("at step {step}");
            let (ours, theirs) = require_both(at, component.update(), native.update())?;
            self.compare_snapshots(at, component.snapshot(ours), native.snapshot(theirs))?;
            self.steps = step;
            progress(step, steps);
        }
        let at = "in `finish`";
        let (ours, theirs) = require_both(at, component.finish(), native.finish())?;
        self.compare_snapshots(at, component.snapshot(vec![ours]), native.snapshot(vec![theirs]))?;
        let (ours, theirs) = (folder.path().join("component"), folder.path().join("twin"));
        require_both(at, component.write_edits(&ours), native.write_edits(&theirs))?;
        self.bits += 8 * compare_files(at, &ours, &theirs)?;
        Ok(())
    }

    /// Compares the reports and the states of the component (`ours`) and the twin at the moment `at`. Fails at the
    /// first difference. Otherwise adds the metrics, and the bits of trained numbers and states, to the counts, and
    /// sets `self.weights` to the digest of the trained numbers.
    fn compare_snapshots(
        &mut self,
        at: &str,
        ours: Result<Snapshot, Error>,
        theirs: Result<Snapshot, Error>,
    ) -> Result<(), CompareError> {
        let (ours, theirs) = require_both(at, ours, theirs)?;
        compare_facts(at, snapshot_facts(&ours), snapshot_facts(&theirs))?;
        compare_trained(at, &ours.trained, &theirs.trained)?;
        compare_facts(at, kept_facts(&ours), kept_facts(&theirs))?;
        self.metrics += ours.reports.iter().map(|report| report.metrics.len() as u64).sum::<u64>();
        let kept: usize = ours.kept.values().map(|(_, numbers)| numbers.len()).sum();
        self.bits += 32 * (ours.trained.len() + kept) as u64 + 8 * ours.state.len() as u64;
        self.weights = sha256(&ours.trained.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        Ok(())
    }
}

/// Returns both results if both are `Ok`. Two errors with the same text are a failure of the comparison; one error, or
/// two with different texts, are a difference in how they ended. `at` is the moment, as in `at step 3`.
fn require_both<T>(at: &str, component: Result<T, Error>, twin: Result<T, Error>) -> Result<(T, T), CompareError> {
    let describe = |error: Option<Error>| match error.map(|error| (error.location(), error)) {
        None => "it went on".to_owned(),
        Some((Some(location), error)) => format!("{error} ({location})"),
        Some((None, error)) => error.to_string(),
    };
    match (component, twin) {
        (Ok(component), Ok(twin)) => Ok((component, twin)),
        (Err(component), Err(twin)) if component.to_string() == twin.to_string() => Err(CompareError::Failed(twin)),
        (component, twin) => {
            Err(difference(at, "how it ended".into(), &describe(component.err()), &describe(twin.err())))
        }
    }
}

/// Builds the difference in `what` at a moment. Both values are made printable and cut to 200 bytes.
fn difference(at: &str, what: String, component: &str, twin: &str) -> CompareError {
    let [component, twin] = [component, twin].map(|text| printable(text, SHOWN_BYTES));
    CompareError::Differ(Difference { moment: at.to_owned(), what, component, twin })
}

/// Something that must be equal: what it is called in a difference, and its value as text.
type Fact = (String, String);

/// Fails at the first fact of the component (`ours`) whose value differs from the twin's at the same position. Compares
/// only as many facts as both lists have. Does not compare the names: the difference has the component's.
fn compare_facts(at: &str, ours: Vec<Fact>, theirs: Vec<Fact>) -> Result<(), CompareError> {
    match ours.into_iter().zip(theirs).find(|(one, other)| one.1 != other.1) {
        Some(((what, one), (_, other))) => Err(difference(at, what, &one, &other)),
        None => Ok(()),
    }
}

/// The facts of a snapshot except its trained numbers: metrics, log, dropped lines and host calls of every report, then
/// the gradient norm, the method's state and the random streams.
fn snapshot_facts(snapshot: &Snapshot) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |what: &str, value: String| facts.push((what.to_owned(), value));
    for report in &snapshot.reports {
        let names: Vec<&String> = report.metrics.iter().map(|(name, ..)| name).collect();
        add("the names of the metrics", format!("{names:?}"));
        for (name, value, combine) in &report.metrics {
            add(&format!("the metric `{name}`"), exact_text(*value));
            add(&format!("how the metric `{name}` is put together"), format!("{combine:?}"));
        }
        add("the log", format!("{:?}", report.log));
        add("the number of dropped log lines", report.dropped_lines.to_string());
        add("the number of calls to the host", report.host_calls.to_string());
    }
    add("the norm of the gradient", exact_text(snapshot.norm));
    add("the method's state", format!("{:?}", snapshot.state));
    add("where the random sequences stand", format!("{:?}", snapshot.streams));
    facts
}

/// The facts of the tensors that a method keeps: first their names, then the dimensions and the digest of each.
fn kept_facts(snapshot: &Snapshot) -> Vec<Fact> {
    let names: Vec<&String> = snapshot.kept.keys().collect();
    let names = ("the names of extra parameters and states".to_owned(), format!("{names:?}"));
    let digest = |(name, (dims, numbers)): (&String, &(Vec<usize>, Vec<f32>))| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        (format!("the tensor `{name}`"), format!("{dims:?}, SHA-256 {}", sha256(&bytes)))
    };
    std::iter::once(names).chain(snapshot.kept.iter().map(digest)).collect()
}

/// Formats a number such that different bits give different texts: NaN is followed by its bits in hexadecimal.
fn exact_text(value: f64) -> String {
    if value.is_nan() { format!("NaN ({:x})", value.to_bits()) } else { value.to_string() }
}

/// Fails unless both sides have equally many trained numbers with the same bits. The error says how many numbers differ
/// and shows the first difference.
fn compare_trained(at: &str, ours: &[f32], theirs: &[f32]) -> Result<(), CompareError> {
    let [count, found] = [ours, theirs].map(|trained| trained.len().to_string());
    compare_facts(at, vec![("the number of trained numbers".into(), count)], vec![(String::new(), found)])?;
    let mut pairs = ours.iter().zip(theirs).enumerate().filter(|(_, (one, other))| one.to_bits() != other.to_bits());
    let Some((index, (one, other))) = pairs.next() else { return Ok(()) };
    let (count, all) = (1 + pairs.count(), ours.len());
    let what = format!("{count} of {all} trained numbers, the first of them number {index},");
    Err(difference(at, what, &exact_text((*one).into()), &exact_text((*other).into())))
}

/// Compares the files of the component's folder (`ours`) and the twin's (`theirs`) by content; returns the number of
/// bytes of the component's files. Fails at the first file that differs or is missing in one folder.
fn compare_files(at: &str, ours: &Path, theirs: &Path) -> Result<u64, CompareError> {
    let names: BTreeSet<String> = files::names(ours)?.into_iter().chain(files::names(theirs)?).collect();
    let digests = |folder: &Path| {
        let digest = |name: &String| {
            let found = files::read(&folder.join(name), u64::MAX);
            (format!("the file `{name}` of what it leaves"), found.map_or("absent".into(), |bytes| sha256(&bytes)))
        };
        names.iter().map(digest).collect()
    };
    compare_facts(at, digests(ours), digests(theirs))?;
    Ok(names.iter().map(|name| ours.join(name).metadata().map_or(0, |about| about.len())).sum())
}

/// Compares the manifest in the component's package with `twin`, the JSON manifest that the twin sent, key by key. A
/// manifest that is missing or no JSON object counts as empty. The difference names the first key whose values differ.
fn compare_manifests(package: &Package, twin: &str) -> Result<(), CompareError> {
    let text = section::find(&package.bytes, manifest::SECTION)?.unwrap_or_default();
    let component: Map<String, Value> = serde_json::from_slice(text).unwrap_or_default();
    let native: Map<String, Value> = serde_json::from_str(twin).unwrap_or_default();
    let changed = component.keys().chain(native.keys()).find(|key| component.get(*key) != native.get(*key));
    let Some(key) = changed else { return Ok(()) };
    let show = |manifest: &Map<String, Value>| manifest.get(key).map_or("absent".to_owned(), Value::to_string);
    Err(difference("before `init`", format!("`{key}` of the manifest"), &show(&component), &show(&native)))
}
