//! A method under test: a host of its own with seeded data, so that a unit test needs neither a model nor a run.
//!
//! ```no_run
//! # use tunebox::prelude::*;
//! # pub struct Calm;
//! # impl Method for Calm {
//! #     type Settings = ();
//! #     fn init((): ()) -> Result<Self> { Ok(Self) }
//! #     fn step(&mut self, _: &Batch) -> Result<()> { Ok(()) }
//! # }
//! # method! { Calm, shape: "supervised", metrics: ["loss"] }
//! # fn main() -> std::result::Result<(), tunebox::bench::Error> {
//! use tunebox::bench::{Bench, json};
//!
//! let mut run = Bench::<Calm>::new().seed(1).records([json!({ "text": "calm seas" })]).start()?;
//! let before = run.step()?.metric("loss");
//! assert!(run.step()?.metric("loss") < before);
//! # Ok(())
//! # }
//! ```
//!
//! The host is the program `tunebox`, with the operations, limits and refusals of a real run. `TUNEBOX` names the
//! program where it is not on the path. While a [`Run`] lives, its thread may call the host itself, so a test can hand
//! tensors to the parts of a method; what it made belongs to that run.

mod host;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use self::host::Host;
use crate::Method;
use crate::native::{
    Connected, Declared, Decode, Ended, Outcome, Reader, Role, dispatch_of, request_next, send_greeting, serve_calls,
};

pub use host::Error;
pub use serde_json::json;

/// A test bench: what its host is to run. Settings, records and model are set before [`start`](Self::start).
pub struct Bench<M> {
    /// What the host reads, as a JSON object.
    wanted: Value,
    method: PhantomData<M>,
}

impl<M: Method + Declared> Default for Bench<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Method + Declared> Bench<M> {
    /// A bench: seed 0, default settings, generated records in the method's shape, and a tiny model of random weights.
    #[must_use]
    pub fn new() -> Self {
        Self { wanted: json!({ "settings": {} }), method: PhantomData }
    }

    /// Sets a setting of the method. The host checks its name and range when the run starts.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.wanted["settings"][name] = value.into();
        self
    }

    /// Sets the seed of everything random: weights, generated records, sampling, the random tensors of the method.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.want("seed", seed)
    }

    /// Sets the records to train on, as in a data file. All of them are one micro-batch, unless `train.batch` is set.
    #[must_use]
    pub fn records(self, records: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        let records: Vec<Value> = records.into_iter().map(Into::into).collect();
        self.want("records", records)
    }

    /// Sets how many records to generate (`rows`), and of how many tokens each (`width`).
    #[must_use]
    pub fn made_up(self, rows: u32, width: u32) -> Self {
        self.want("rows", rows).want("width", width)
    }

    /// Uses the tiny trained model of `tunebox train --sample` instead of random weights.
    #[must_use]
    pub fn sample(self) -> Self {
        self.want("sample", true)
    }

    /// Sets a key of `run.toml`, such as `train.accumulation`, for this run. The host checks it when the run starts.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.wanted["set"][key] = value.into();
        self
    }

    /// Adds a verifier, a table `[[verifier]]` of `run.toml`, such as `json!({ "use": "number" })`. The verdicts of
    /// [`judge`](crate::prelude::judge) come from these. The host finds it when the run starts.
    #[must_use]
    pub fn verifier(mut self, table: impl Into<Value>) -> Self {
        match self.wanted.get_mut("verifiers").and_then(Value::as_array_mut) {
            Some(tables) => tables.push(table.into()),
            None => self.wanted["verifiers"] = json!([table.into()]),
        }
        self
    }

    /// Restores the method from the [`state`](Run::state) of another run when this one starts.
    #[must_use]
    pub fn resume(self, state: &[u8]) -> Self {
        let hexadecimal: String = state.iter().map(|byte| format!("{byte:02x}")).collect();
        self.want("state", hexadecimal)
    }

    /// Starts the host and calls `init`. Errors: no program, a setting that the host refuses, the method's own message.
    pub fn start(self) -> Result<Run<M>, Error> {
        let (host, stream) = Host::start()?;
        self.over(stream, Some(host))
    }

    /// Starts the run over a connection to a host: sends the manifest and what to run, and answers the host's calls
    /// until its first report. `host` is the child process to end with the run; `None` if the host is no child process.
    /// Errors: the thread has a connection already, or the start fails.
    fn over(self, stream: UnixStream, host: Option<Host>) -> Result<Run<M>, Error> {
        let wanted = self.wanted.to_string();
        let connected = Connected::new(stream, Role::Bench).map_err(|ended| Error(ended.to_string()))?;
        let mut run = Run { report: Report::default(), connected: Some(connected), host, method: PhantomData };
        let met = send_greeting(&(M::MANIFEST, wanted.as_str())).and_then(|()| run.serve());
        run.describe_end(met)?;
        Ok(run)
    }

    /// Sets a key of the object that the host reads.
    fn want(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.wanted[key] = value.into();
        self
    }
}

/// A method at work on a bench. Dropping it ends its host.
pub struct Run<M> {
    report: Report,
    // The connection ends first: it is how the host learns that it may go.
    connected: Option<Connected>,
    host: Option<Host>,
    method: PhantomData<M>,
}

impl<M: Method + Declared> Run<M> {
    /// Runs one update: `step` of each micro-batch, then the optimizer. Errors: the method's own, its panic, a limit.
    pub fn step(&mut self) -> Result<&Report, Error> {
        self.next("step")?;
        Ok(&self.report)
    }

    /// Calls the method's `finish`; call it last. Errors: the method's own message, its panic, a limit.
    pub fn finish(&mut self) -> Result<&Report, Error> {
        self.next("finish")?;
        Ok(&self.report)
    }

    /// Calls the method's `save_state` and returns the bytes. Errors: the method's panic, a limit.
    pub fn state(&mut self) -> Result<Vec<u8>, Error> {
        let returned = self.next("save-state")?;
        Vec::decode(&mut Reader::new(&returned)).map_err(|malformed| Error(Ended::from(malformed).to_string()))
    }

    /// A metric that the last call reported. Panics when it did not report it.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        self.report.metric(name)
    }

    /// The report of the last call.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Asks the host to call the function `what`, such as `step`, answers calls until its report, and returns the
    /// encoded result of the last call.
    fn next(&mut self, what: &str) -> Result<Vec<u8>, Error> {
        let done = request_next(what).and_then(|()| self.serve());
        self.describe_end(done)
    }

    /// Answers calls of the host until it reports. Stores the report and returns the encoded result of the last call.
    fn serve(&mut self) -> Result<Vec<u8>, Ended> {
        loop {
            match serve_calls(dispatch_of::<M>())? {
                Outcome::Report { shown, returned } => {
                    self.report =
                        Report::read(&shown).ok_or_else(|| Ended::Unknown("a report that is not one".into()))?;
                    return Ok(returned);
                }
                // That is for the method; why comes behind it.
                Outcome::End => {}
            }
        }
    }

    /// Converts the reason of an end to an error. If the host is gone, adds what it wrote to stderr, and disconnects.
    fn describe_end<T>(&mut self, done: Result<T, Ended>) -> Result<T, Error> {
        done.map_err(|ended| {
            let mut words = ended.to_string();
            if let (Ended::Lost(_), Some(host)) = (&ended, self.host.as_mut()) {
                // A host that is still there ends when nobody listens.
                self.connected = None;
                words = format!("{words}\n{}", host.error_output());
            }
            words.truncate(words.trim_end().len());
            Error(words)
        })
    }
}

impl<M> fmt::Debug for Run<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Run").field("report", &self.report).finish_non_exhaustive()
    }
}

/// Metrics and log lines of one call, as a run would record them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The number of finished updates.
    pub step: u64,
    /// Metrics by name, those of micro-batches put together; NaN where a number was not finite.
    pub metrics: BTreeMap<String, f64>,
    /// The lines that the method logged.
    pub log: Vec<String>,
    /// The norm of the gradient before clipping, if there was an update.
    pub gradient_norm: Option<f64>,
    /// The learning rate of the coming update.
    pub rate: Option<f64>,
}

impl Report {
    /// A metric by its name. Panics when it was not reported.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        match self.metrics.get(name) {
            Some(value) => *value,
            None => {
                let names: Vec<&str> = self.metrics.keys().map(String::as_str).collect();
                panic!("`{name}` was not reported at step {}; reported were: {}", self.step, names.join(", "))
            }
        }
    }

    /// Parses the host's report, a JSON object. `None` if it is not JSON or has no number `step`.
    fn read(text: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(text).ok()?;
        let metrics = report["metrics"].as_object().into_iter().flatten();
        let lines = report["log"].as_array().into_iter().flatten();
        Some(Self {
            step: report["step"].as_u64()?,
            metrics: metrics.map(|(name, value)| (name.clone(), value.as_f64().unwrap_or(f64::NAN))).collect(),
            log: lines.filter_map(Value::as_str).map(str::to_owned).collect(),
            gradient_norm: report["gradient_norm"].as_f64(),
            rate: report["rate"].as_f64(),
        })
    }
}
