//! Executes a unit test of a method's author: plans the run that the test asks for, calls the method in the test's
//! process, and sends its reports back.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files;
use tunebox_foundation::hexadecimal::from_hexadecimal;
use tunebox_foundation::printable::printable;
use tunebox_sandbox::StepReport;
use tunebox_sandbox::native::{Twin, UnitTest};

use super::runner::{Runner, disconnected};
use crate::configuration::{RandomRecords, RunSettings, VerifierTable};
use crate::error::Error;
use crate::metrics::MetricTotals;
use crate::plan::{Plan, create_engine, plan_with_method, prepare_native};
use crate::sample;

/// Serves a unit test until it disconnects: calls `init`, then `load-state` if the request has a saved state, then what
/// the test orders, and sends a report after `init` and after each order. Puts all files into a temporary folder that
/// is removed at the end.
///
/// # Errors
/// A request that is no such JSON or cannot be planned, an order that does not exist, a connection that broke, and the
/// error that ends the method.
pub fn serve_test(test: UnitTest) -> Result<(), Error> {
    let UnitTest { method, wanted } = test;
    let mut notifier = method.notifier().map_err(disconnected)?;
    let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let request = TestRequest::parse(&wanted)?;
    let state = request.saved_state()?;
    let (mut runner, opening) = Runner::start(request.plan(method, folder.path())?)?;
    if let Some(state) = state {
        runner.session.load_state(&state)?;
    }
    let mut reports = vec![opening];
    loop {
        notifier.report(&format_report(&mut runner, &reports)).map_err(disconnected)?;
        let (order, between) = runner.session.wait()?;
        let Some(order) = order else { return Ok(()) };
        // Reports between two calls count to the next call.
        reports = vec![between];
        reports.extend(run_order(&mut runner, &order)?);
    }
}

/// Executes one order of the test: `step`, a step of the run with its update; `finish`; or `save-state`, whose bytes
/// are dropped. Returns a report for each call of `step` or `finish`, none for `save-state`. Fails on another order.
fn run_order(runner: &mut Runner, order: &str) -> Result<Vec<StepReport>, Error> {
    match order {
        "step" => runner.update(),
        "finish" => Ok(vec![runner.finish()?]),
        // The test reads the state in its own process; the call only checks it.
        "save-state" => Ok(runner.session.save_state().map(|_| Vec::new())?),
        other => {
            let what = format!("there is no order `{}`", printable(other, 64));
            Err(request_error(what, "it is `step`, `finish` or `save-state`"))
        }
    }
}

/// Formats the number of finished steps, the metrics and log lines of `reports`, the last gradient norm and the
/// learning rate as a JSON object for the test. Metrics of several reports are combined as in a window.
fn format_report(runner: &mut Runner, reports: &[StepReport]) -> String {
    let mut tally = MetricTotals::default();
    reports.iter().for_each(|report| tally.add(&report.metrics));
    let metrics: Map<String, Value> =
        tally.numbers(runner.metrics()).into_iter().map(|(name, value)| (name, json!(value))).collect();
    let log: Vec<&String> = reports.iter().flat_map(|report| &report.log).collect();
    let (rate, norm) = runner.rate_and_norm();
    json!({ "step": runner.step, "metrics": metrics, "log": log, "gradient_norm": norm, "rate": rate }).to_string()
}

/// Planned steps of the run unless the test says how many: more than a test executes.
const PLANNED_STEPS: u32 = 1_000;

/// The first message of a unit test, which describes the run that it needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TestRequest {
    /// The method's settings.
    settings: Map<String, Value>,
    /// The seed of the run, of a random model and of random records.
    seed: u64,
    /// Use the embedded model; otherwise a model of its shape with random weights.
    sample: bool,
    /// Records as in a data file; random records if not given.
    records: Option<Vec<Value>>,
    /// Number of random records; 4 if not given.
    rows: Option<u32>,
    /// Tokens of each row of a random record; 16 if not given.
    width: Option<u32>,
    /// The saved state that the method starts from, in hexadecimal digits.
    state: Option<String>,
    /// The tables `[[verifier]]` of a run file.
    verifiers: Vec<VerifierTable>,
    /// Further keys of a run file.
    set: Map<String, Value>,
}

impl TestRequest {
    /// Parses the JSON of a request. Fails on an unknown key, on an empty list of records, and if the number of random
    /// records or their width is 0.
    fn parse(text: &str) -> Result<Self, Error> {
        let request: Self = serde_json::from_str(text)
            .map_err(|error| request_error(error.to_string(), "build the method against this version's SDK"))?;
        if request.records.as_ref().is_some_and(Vec::is_empty) || request.rows == Some(0) || request.width == Some(0) {
            return Err(request_error("there is no record to learn from", "give it at least one, of one token"));
        }
        Ok(request)
    }

    /// The saved state that the method starts from, decoded; `None` if the request has none. Fails if it is not
    /// hexadecimal.
    fn saved_state(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(digits) = &self.state else { return Ok(None) };
        let unreadable = || request_error("the state is not in hexadecimal digits", "give what `save_state` gave");
        Ok(Some(from_hexadecimal(digits).ok_or_else(unreadable)?))
    }

    /// Plans the run of the method in its own process, connected by `twin`, with all files below `folder`.
    fn plan(&self, twin: Twin, folder: &Path) -> Result<Plan, Error> {
        let settings = self.run_settings(folder)?;
        let (engine, manifest) = (create_engine(&settings)?, twin.manifest().to_owned());
        let method = prepare_native(&settings, &manifest, twin)?;
        plan_with_method(settings, &engine, method)
    }

    /// Unpacks the sample model and writes the request's records, if any, below `folder`, and builds the settings of
    /// the run on them. Without records, the run trains on random ones. The keys in `set` replace other settings. Fails
    /// for a setting that TOML cannot express or that the schema rejects.
    fn run_settings(&self, folder: &Path) -> Result<RunSettings, Error> {
        let model = sample::unpack(folder)?.join("model");
        let data = folder.join("records.jsonl");
        if let Some(records) = &self.records {
            let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
            files::write(&data, lines.as_bytes())?;
        }
        let path = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned()).to_string();
        let mut overrides = vec![
            format!("model.path={}", path(&model)),
            format!("data.path={}", path(&data)),
            "data.shuffle=false".into(),
            "method.use=native".into(),
            "method.grants=[\"weights\", \"text\"]".into(),
            format!("train.seed={}", self.seed),
            format!("train.batch={}", self.batch_size()),
            format!("train.steps={PLANNED_STEPS}"),
            "train.schedule=constant".into(),
            format!("run.folder={}", path(folder)),
            "run.name=bench".into(),
        ];
        if !self.sample {
            overrides.push("model.initialize=random".into());
        }
        let settings = self.settings.iter().map(|(name, value)| format_assignment(&format!("method.{name}"), value));
        let further = self.set.iter().map(|(key, value)| format_assignment(key, value));
        overrides.extend(settings.chain(further).collect::<Result<Vec<_>, _>>()?);
        let mut settings = RunSettings::from_overrides(&overrides)?;
        settings.file.verifier.clone_from(&self.verifiers);
        let (records, sequence) = (self.random_rows() as usize, self.width.unwrap_or(16) as usize);
        settings.random = self.records.is_none().then_some(RandomRecords { records, sequence, seed: self.seed });
        Ok(settings)
    }

    /// Number of records in a micro-batch, chosen such that one update has all records: all of them, divided by
    /// `train.accumulation` and rounded up.
    fn batch_size(&self) -> u64 {
        let records =
            self.records.as_ref().map_or_else(|| u64::from(self.random_rows()), |records| records.len() as u64);
        let parts = self.set.get("train.accumulation").and_then(Value::as_u64).unwrap_or(1).max(1);
        records.div_ceil(parts)
    }

    /// Number of random records that the request asks for; 4 if it does not say.
    fn random_rows(&self) -> u32 {
        self.rows.unwrap_or(4)
    }
}

/// The error about a unit test's request that cannot be met. `why` is the cause, `hint` what to do.
fn request_error(why: impl Into<String>, hint: &str) -> Error {
    Explanation::new("test", "the bench cannot do what the test wants").with_why(why).with_hint(hint).into()
}

/// Formats a key and its JSON value as a `--set` argument. Fails for a value that TOML cannot express, such as null.
fn format_assignment(key: &str, value: &Value) -> Result<String, Error> {
    let unwritable = |_| request_error(format!("`{key}` is `{value}`, which no setting can be"), "leave it out");
    Ok(format!("{key}={}", toml::Value::try_from(value).map_err(unwritable)?))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    fn settings(text: &str) -> RunSettings {
        let folder = tempfile::tempdir().unwrap();
        TestRequest::parse(text).unwrap().run_settings(folder.path()).unwrap()
    }

    #[test]
    fn all_records_are_one_micro_batch_unless_the_test_says_otherwise() {
        assert_eq!(settings("{}").file.train.batch, 4);
        assert_eq!(settings(r#"{"records": [{}, {}, {}]}"#).file.train.batch, 3);
        let parted = settings(r#"{"rows": 5, "set": {"train.accumulation": 2}}"#).file.train;
        assert_eq!((parted.batch, parted.accumulation), (3, 2));
        assert_eq!(settings(r#"{"set": {"train.batch": 2}}"#).file.train.batch, 2);
    }

    #[test]
    fn settings_keep_their_kinds() {
        let file = settings(r#"{"settings": {"beta": 0.2, "loss": "ipo", "steps": 3, "on": true}, "seed": 9}"#).file;
        assert_eq!(file.method.settings["beta"], 0.2);
        assert_eq!(file.method.settings["loss"], "ipo");
        assert_eq!(
            (file.method.settings["steps"].as_i64(), file.method.settings["on"].as_bool()),
            (Some(3), Some(true))
        );
        assert_eq!(file.train.seed, 9);
    }

    #[test]
    fn an_unknown_key_of_a_request_is_named_in_the_error() {
        let why = |text: &str| TestRequest::parse(text).unwrap_err().why().unwrap();
        assert!(why(r#"{"sizes": 3}"#).contains("`sizes`"));
        assert!(why(r#"{"records": []}"#).contains("no record"));
        assert!(why(r#"{"verifiers": [{"weight": 2}]}"#).contains("`use`"));
        assert!(TestRequest::parse(r#"{"state": "0g"}"#).unwrap().saved_state().is_err());
    }
}
