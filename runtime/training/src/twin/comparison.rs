//! A component and the same source as a process, side by side: what they report, learn and keep is compared bit for bit
//! after every update, and the first difference ends it.

use std::fmt::Debug;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use tunebox_foundation::explain::Explain as _;
use tunebox_foundation::printable::printable;
use tunebox_package::{Package, manifest, section};
use tunebox_sandbox::native::Twin;
use tunebox_sandbox::{Method, StepReport};

use super::fault::TwinError;
use super::side::{Moment, Side};
use crate::configuration::RunSettings;
use crate::digest::digest;
use crate::error::Error;
use crate::plan::plan;
use tunebox_foundation::files;

/// The longest text of a difference that is shown, in bytes.
const SHOWN_BYTES: usize = 200;

/// What was compared, and what came out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The method.
    pub method: String,
    /// Updates after which both were the same.
    pub steps: u64,
    /// Numbers that both reported alike.
    pub metrics: u64,
    /// Bits of trained numbers and states that were the same.
    pub bits: u64,
    /// The SHA-256 of the trained numbers, as both had them last.
    pub weights: String,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Where two sides part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// When: "in `init`", "at step 3".
    pub moment: String,
    /// In what.
    pub what: String,
    /// How the component has it.
    pub component: String,
    /// How its native twin has it.
    pub twin: String,
}

/// Why there is no more to compare.
enum Parted {
    /// They are different.
    Differ(Difference),
    /// Both failed alike, or the comparison itself did.
    Failed(Error),
}

impl From<Error> for Parted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Has the component that the settings name and its twin do all steps of the settings. `tell` hears of each update that
/// both came through alike, and of how many there are.
///
/// # Errors
/// Whatever keeps such a run from being planned, and what ends both sides alike.
pub fn compare(settings: RunSettings, twin: Twin, tell: &mut dyn FnMut(u64, u64)) -> Result<Comparison, Error> {
    let notifier = twin.notifier().map_err(TwinError::broken)?;
    let mut comparison = Comparison::default();
    let ended = side_by_side(settings, twin, &mut comparison, tell);
    let (reason, result) = match ended {
        Ok(()) => return Ok(comparison),
        Err(Parted::Differ(difference)) => {
            let reason = format!("{} {} differs from the component's", difference.what, difference.moment);
            comparison.difference = Some(difference);
            (reason, Ok(comparison))
        }
        Err(Parted::Failed(error)) => (error.to_string(), Err(error)),
    };
    // A method that waits for an answer hears why there is none.
    notifier.stop(&reason);
    result
}

fn side_by_side(
    settings: RunSettings,
    twin: Twin,
    comparison: &mut Comparison,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<(), Parted> {
    let place = files::temporary_folder(&std::env::temp_dir(), "tunebox-twin-").map_err(Error::from)?;
    let (component, mut native) = (plan(settings.clone())?, plan(settings)?);
    let (steps, method) = (component.run.steps, &mut native.run.method);
    comparison.method.clone_from(&method.package.manifest.name);
    same_manifest(&method.package, twin.manifest())?;
    method.admitted = Method::native(&comparison.method, method.package.imports.clone(), twin);

    let moment = "in `init`".to_owned();
    let ((mut component, one), (mut native, other)) = both(&moment, Side::start(component), Side::start(native))?;
    comparison.moment(&moment, &mut component, &mut native, (vec![one], vec![other]))?;
    for step in 1..=steps {
        let moment = format!("at step {step}");
        let reports = both(&moment, component.update(), native.update())?;
        comparison.moment(&moment, &mut component, &mut native, reports)?;
        comparison.steps = step;
        tell(step, steps);
    }
    let moment = "in `finish`".to_owned();
    let (one, other) = both(&moment, component.close(), native.close())?;
    comparison.moment(&moment, &mut component, &mut native, (vec![one], vec![other]))?;
    let (ours, theirs) = (place.path().join("component"), place.path().join("twin"));
    both(&moment, component.leave(&ours), native.leave(&theirs))?;
    comparison.bits += 8 * same_files(&moment, &ours, &theirs)?;
    Ok(())
}

impl Comparison {
    /// Compares what both told and are left with.
    fn moment(
        &mut self,
        moment: &str,
        component: &mut Side,
        twin: &mut Side,
        (ours, theirs): (Vec<StepReport>, Vec<StepReport>),
    ) -> Result<(), Parted> {
        reported(moment, &ours, &theirs)?;
        let (ours, theirs) = both(moment, component.moment(ours), twin.moment(theirs))?;
        left(moment, &ours, &theirs)?;
        self.metrics += ours.reports.iter().map(|report| report.metrics.len() as u64).sum::<u64>();
        self.bits += 32 * ours.trained.len() as u64 + 8 * ours.state.len() as u64;
        self.weights = digest(&ours.trained.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        Ok(())
    }
}

/// What both came to, unless one of them ended.
fn both<T>(moment: &str, component: Result<T, Error>, twin: Result<T, Error>) -> Result<(T, T), Parted> {
    let words = |error: &Error| match error.location() {
        Some(place) => format!("{error} ({place})"),
        None => error.to_string(),
    };
    let (component, twin) = match (component, twin) {
        (Ok(component), Ok(twin)) => return Ok((component, twin)),
        (Err(component), Err(twin)) if component.to_string() == twin.to_string() => return Err(Parted::Failed(twin)),
        (component, twin) => (component.err(), twin.err()),
    };
    let went_on = || "it went on".to_owned();
    let (component, twin) = (component.as_ref().map_or_else(went_on, words), twin.as_ref().map_or_else(went_on, words));
    Err(Parted::Differ(Difference { moment: moment.into(), what: "how it ended".into(), component, twin }))
}

/// Whether both say the same about themselves.
fn same_manifest(package: &Package, twin: &str) -> Result<(), Parted> {
    let text = section::find(&package.bytes, manifest::SECTION).map_err(Error::from)?.unwrap_or_default();
    let (component, native): (Value, Value) =
        (serde_json::from_slice(text).unwrap_or_default(), serde_json::from_str(twin).unwrap_or_default());
    if component == native {
        return Ok(());
    }
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let changed = keys(&component).into_iter().chain(keys(&native)).find(|key| component.get(key) != native.get(key));
    let key = changed.unwrap_or_default();
    let shown = |value: &Value| value.get(&key).map_or("absent".to_owned(), Value::to_string);
    same_text("before `init`", || format!("`{key}` of the manifest"), &shown(&component), &shown(&native))
}

/// Whether two folders hold the same files; their bytes.
fn same_files(moment: &str, ours: &Path, theirs: &Path) -> Result<u64, Parted> {
    let mut names = files::names(ours).map_err(Error::from)?;
    names.extend(files::names(theirs).map_err(Error::from)?);
    names.sort();
    names.dedup();
    let mut bytes = 0;
    for name in names {
        let read = |folder: &Path| files::read(&folder.join(&name), u64::MAX).ok();
        let (one, other) = (read(ours), read(theirs));
        let shown = |found: &Option<Vec<u8>>| found.as_deref().map_or_else(|| "absent".to_owned(), digest);
        same_text(moment, || format!("the file `{name}` of what it leaves"), &shown(&one), &shown(&other))?;
        bytes += one.map_or(0, |one| one.len() as u64);
    }
    Ok(bytes)
}

/// Whether both reported the same, call for call.
fn reported(moment: &str, ours: &[StepReport], theirs: &[StepReport]) -> Result<(), Parted> {
    for (one, other) in ours.iter().zip(theirs) {
        let names = |report: &StepReport| report.metrics.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
        same(moment, || "the names of the metrics".into(), &names(one), &names(other))?;
        for ((name, value, how), (_, found, found_how)) in one.metrics.iter().zip(&other.metrics) {
            same_number(moment, || format!("the metric `{name}`"), *value, *found)?;
            same(moment, || format!("how the metric `{name}` is put together"), how, found_how)?;
        }
        same(moment, || "the log".into(), &one.log, &other.log)?;
        same(moment, || "the number of dropped log lines".into(), &one.dropped_lines, &other.dropped_lines)?;
        same(moment, || "the number of calls to the host".into(), &one.host_calls, &other.host_calls)?;
    }
    Ok(())
}

/// Whether both are left with the same.
fn left(moment: &str, ours: &Moment, theirs: &Moment) -> Result<(), Parted> {
    let (all, found) = (&ours.trained, &theirs.trained);
    same(moment, || "the number of trained numbers".into(), &all.len(), &found.len())?;
    let differing = |(one, other): &(&f32, &f32)| one.to_bits() != other.to_bits();
    if let Some((place, (one, other))) = all.iter().zip(found).enumerate().find(|(_, pair)| differing(pair)) {
        let count = all.iter().zip(found).filter(differing).count();
        let what = || format!("{count} of {} trained numbers, the first of them number {place},", all.len());
        same_number(moment, what, f64::from(*one), f64::from(*other))?;
    }
    same_number(moment, || "the norm of the gradient".into(), ours.norm, theirs.norm)?;
    same(moment, || "the method's state".into(), &ours.state, &theirs.state)?;
    same(moment, || "where the random sequences stand".into(), &ours.streams, &theirs.streams)
}

/// Numbers are the same when all their bits are.
fn same_number(moment: &str, what: impl Fn() -> String, component: f64, twin: f64) -> Result<(), Parted> {
    let same = component.to_bits() == twin.to_bits();
    if same { Ok(()) } else { differ(moment, what(), &component.to_string(), &twin.to_string()) }
}

fn same_text(moment: &str, what: impl Fn() -> String, component: &str, twin: &str) -> Result<(), Parted> {
    if component == twin { Ok(()) } else { differ(moment, what(), component, twin) }
}

fn same<T: PartialEq + Debug>(moment: &str, what: impl Fn() -> String, component: &T, twin: &T) -> Result<(), Parted> {
    if component == twin { Ok(()) } else { differ(moment, what(), &format!("{component:?}"), &format!("{twin:?}")) }
}

fn differ(moment: &str, what: String, component: &str, twin: &str) -> Result<(), Parted> {
    let (component, twin) = (printable(component, SHOWN_BYTES), printable(twin, SHOWN_BYTES));
    Err(Parted::Differ(Difference { moment: moment.into(), what, component, twin }))
}
