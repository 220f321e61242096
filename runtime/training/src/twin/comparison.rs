//! Compares a component with the same source as a native process: what they report, train and save must have the same bits
//! after every update. The first difference ends the comparison.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use tunebox_foundation::explain::Explain as _;
use tunebox_foundation::files;
use tunebox_foundation::printable::printable;
use tunebox_package::digest::sha256;
use tunebox_package::{Package, manifest, section};
use tunebox_sandbox::native::Twin;
use tunebox_sandbox::{Method, StepReport};

use super::runner::{Runner, Snapshot, disconnected};
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::plan;

/// The most bytes of a value in a difference that are shown.
const SHOWN_BYTES: usize = 200;

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The method's name.
    pub method: String,
    /// Equal updates.
    pub steps: u64,
    /// Equal metrics.
    pub metrics: u64,
    /// Equal bits of trained numbers and saved states.
    pub bits: u64,
    /// The SHA-256 of the last equal trained numbers.
    pub weights: String,
    /// The first difference.
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
enum Stopped {
    Differ(Difference),
    /// Both failed with the same error, or the comparison itself failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stopped {
    /// A failure of the comparison, not a difference.
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Executes all steps of the settings by their component and by its native twin, and compares them. The first
/// difference ends the comparison and is part of the result. Calls `progress` with the finished and planned steps after
/// each equal update.
///
/// # Errors
/// A run that cannot be planned, and an error in which both end.
pub fn compare(settings: RunSettings, twin: Twin, progress: &mut dyn FnMut(u64, u64)) -> Result<Comparison, Error> {
    let notifier = twin.notifier().map_err(disconnected)?;
    let mut comparison = Comparison::default();
    let (reason, result) = match comparison.execute(settings, twin, progress) {
        Ok(()) => return Ok(comparison),
        Err(Stopped::Differ(difference)) => {
            let reason = format!("{} {} differs from the component's", difference.what, difference.moment);
            comparison.difference = Some(difference);
            (reason, Ok(comparison))
        }
        Err(Stopped::Failed(error)) => (error.to_string(), Err(error)),
    };
    // The twin may be waiting for an answer.
    notifier.stop(&reason);
    result
}

impl Comparison {
    /// Plans the run twice, exchanges one method for the twin, and compares `init`, every step, `finish` and the
    /// written edits. Counts what is equal in `self`; stops at the first difference or error.
    fn execute(
        &mut self,
        settings: RunSettings,
        twin: Twin,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Stopped> {
        let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-twin-")?;
        let (component, mut native) = (plan(settings.clone())?, plan(settings)?);
        let (steps, method) = (component.run.steps, &mut native.run.method);
        self.method.clone_from(&method.package.manifest.name);
        compare_manifests(&method.package, twin.manifest())?;
        method.admitted = Method::native(&self.method, method.package.imports.clone(), twin);

        let at = Moment("in `init`".to_owned());
        let ((mut component, ours), (mut native, theirs)) = at.both(Runner::start(component), Runner::start(native))?;
        self.compare_snapshots(&at, &mut component, &mut native, (vec![ours], vec![theirs]))?;
        for step in 1..=steps {
            let at = Moment(format!("at step {step}"));
            let reports = at.both(component.update(), native.update())?;
            self.compare_snapshots(&at, &mut component, &mut native, reports)?;
            self.steps = step;
            progress(step, steps);
        }
        let at = Moment("in `finish`".to_owned());
        let (ours, theirs) = at.both(component.finish(), native.finish())?;
        self.compare_snapshots(&at, &mut component, &mut native, (vec![ours], vec![theirs]))?;
        let (ours, theirs) = (folder.path().join("component"), folder.path().join("twin"));
        at.both(component.write_edits(&ours), native.write_edits(&theirs))?;
        self.bits += 8 * at.compare_files(&ours, &theirs)?;
        Ok(())
    }

    /// Compares the reports of both runners, then their states after the reports, and adds what is equal to the counts.
    /// `at` is the moment in a difference; the last argument is the component's reports and the twin's.
    fn compare_snapshots(
        &mut self,
        at: &Moment,
        component: &mut Runner,
        twin: &mut Runner,
        (ours, theirs): (Vec<StepReport>, Vec<StepReport>),
    ) -> Result<(), Stopped> {
        at.compare_reports(&ours, &theirs)?;
        let (ours, theirs) = at.both(component.snapshot(ours), twin.snapshot(theirs))?;
        at.compare_states(&ours, &theirs)?;
        self.metrics += ours.reports.iter().map(|report| report.metrics.len() as u64).sum::<u64>();
        self.bits += 32 * ours.trained.len() as u64 + 8 * ours.state.len() as u64;
        self.weights = sha256(&ours.trained.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        Ok(())
    }
}

/// When something is compared, such as "at step 3".
struct Moment(String);

impl Moment {
    /// Returns both results if both are `Ok`. Two equal errors are a failure of the comparison; one error, or two
    /// different ones, are a difference.
    fn both<T>(&self, component: Result<T, Error>, twin: Result<T, Error>) -> Result<(T, T), Stopped> {
        let describe = |error: Option<Error>| match error.map(|error| (error.location(), error)) {
            None => "it went on".to_owned(),
            Some((Some(location), error)) => format!("{error} ({location})"),
            Some((None, error)) => error.to_string(),
        };
        match (component, twin) {
            (Ok(component), Ok(twin)) => Ok((component, twin)),
            (Err(component), Err(twin)) if component.to_string() == twin.to_string() => Err(Stopped::Failed(twin)),
            (component, twin) => Err(self.difference("how it ended", describe(component.err()), describe(twin.err()))),
        }
    }

    /// Fails with a difference in `what` unless both values are equal. `show` turns a value into text for the
    /// difference.
    fn same<T: PartialEq>(
        &self,
        what: impl Into<String>,
        component: &T,
        twin: &T,
        show: impl Fn(&T) -> String,
    ) -> Result<(), Stopped> {
        if component == twin { Ok(()) } else { Err(self.difference(what, show(component), show(twin))) }
    }

    /// Fails with a difference in `what` unless both numbers have the same bits.
    fn same_bits(&self, what: impl Into<String>, component: f64, twin: f64) -> Result<(), Stopped> {
        self.same(what, &component.to_bits(), &twin.to_bits(), |bits| f64::from_bits(*bits).to_string())
    }

    /// Builds the difference in `what` at this moment. Both values are made printable and cut to 200 bytes.
    fn difference(&self, what: impl Into<String>, component: String, twin: String) -> Stopped {
        let [component, twin] = [component, twin].map(|text| printable(&text, SHOWN_BYTES));
        Stopped::Differ(Difference { moment: self.0.clone(), what: what.into(), component, twin })
    }

    /// Compares the files of the component's folder (`ours`) and the twin's (`theirs`) by content; returns the number
    /// of bytes of the component's files. Fails at the first file that differs or is missing in one folder.
    fn compare_files(&self, ours: &Path, theirs: &Path) -> Result<u64, Stopped> {
        let mut names = files::names(ours)?;
        names.extend(files::names(theirs)?);
        names.sort();
        names.dedup();
        let mut bytes = 0;
        for name in names {
            let read = |folder: &Path| files::read(&folder.join(&name), u64::MAX).ok();
            let (one, other) = (read(ours), read(theirs));
            let show = |found: &Option<Vec<u8>>| found.as_deref().map_or_else(|| "absent".to_owned(), sha256);
            self.same(format!("the file `{name}` of what it leaves"), &show(&one), &show(&other), String::clone)?;
            bytes += one.map_or(0, |one| one.len() as u64);
        }
        Ok(bytes)
    }

    /// Compares the component's reports (`ours`) with the twin's, call by call: metrics, log, dropped lines and number
    /// of host calls. Fails at the first difference.
    fn compare_reports(&self, ours: &[StepReport], theirs: &[StepReport]) -> Result<(), Stopped> {
        for (one, other) in ours.iter().zip(theirs) {
            let names = |report: &StepReport| report.metrics.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
            self.same("the names of the metrics", &names(one), &names(other), |names| format!("{names:?}"))?;
            for ((name, value, combine), (_, found, found_combine)) in one.metrics.iter().zip(&other.metrics) {
                self.same_bits(format!("the metric `{name}`"), *value, *found)?;
                let what = format!("how the metric `{name}` is put together");
                self.same(what, combine, found_combine, |combine| format!("{combine:?}"))?;
            }
            self.same("the log", &one.log, &other.log, |lines| format!("{lines:?}"))?;
            let dropped = [&one.dropped_lines, &other.dropped_lines];
            self.same("the number of dropped log lines", dropped[0], dropped[1], ToString::to_string)?;
            self.same("the number of calls to the host", &one.host_calls, &other.host_calls, ToString::to_string)?;
        }
        Ok(())
    }

    /// Compares trained numbers, gradient norm, saved state and random streams of the component (`ours`) and the twin.
    /// Fails at the first difference.
    fn compare_states(&self, ours: &Snapshot, theirs: &Snapshot) -> Result<(), Stopped> {
        let (all, found) = (&ours.trained, &theirs.trained);
        self.same("the number of trained numbers", &all.len(), &found.len(), ToString::to_string)?;
        let differs = |(one, other): &(&f32, &f32)| one.to_bits() != other.to_bits();
        if let Some((index, (one, other))) = all.iter().zip(found).enumerate().find(|(_, pair)| differs(pair)) {
            let count = all.iter().zip(found).filter(differs).count();
            let what = format!("{count} of {} trained numbers, the first of them number {index},", all.len());
            self.same_bits(what, f64::from(*one), f64::from(*other))?;
        }
        self.same_bits("the norm of the gradient", ours.norm, theirs.norm)?;
        self.same("the method's state", &ours.state, &theirs.state, |state| format!("{state:?}"))?;
        let what = "where the random sequences stand";
        self.same(what, &ours.streams, &theirs.streams, |streams| format!("{streams:?}"))
    }
}

/// Compares the manifest in the component's package with the JSON manifest that the twin sent. A difference names the
/// first differing key.
fn compare_manifests(package: &Package, twin: &str) -> Result<(), Stopped> {
    let text = section::find(&package.bytes, manifest::SECTION)?.unwrap_or_default();
    let (component, native): (Value, Value) =
        (serde_json::from_slice(text).unwrap_or_default(), serde_json::from_str(twin).unwrap_or_default());
    if component == native {
        return Ok(());
    }
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let changed = keys(&component).into_iter().chain(keys(&native)).find(|key| component.get(key) != native.get(key));
    let key = changed.unwrap_or_default();
    let show = |value: &Value| value.get(&key).map_or("absent".to_owned(), Value::to_string);
    Moment("before `init`".to_owned()).same(format!("`{key}` of the manifest"), &component, &native, show)
}
