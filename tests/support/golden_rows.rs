//! Rows of `golden/methods/` for the preference methods: a batch, the scores of its records, and the numbers that
//! must come out. Components run inside the sandbox, in a run whose scores are given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::{Map, Value};
use tunebox_model::rows::Rows;
use tunebox_package::{Manifest, Package, Reference, resolve_settings};
use tunebox_sandbox::{
    Batch, Engine, Error, Grants, Limits, Method, RunHooks, Session, SessionSettings, StepReport, TrainState,
};

use super::given_scores::{Arrived, GivenScores, Passes, RowScore};
use super::golden::root;

/// One line of `golden/methods/`.
#[derive(Deserialize)]
pub(crate) struct Row {
    method: String,
    pub(crate) settings: Map<String, Value>,
    pub(crate) sides: BTreeMap<String, Side>,
    columns: BTreeMap<String, Vec<f32>>,
    pub(crate) loss: f64,
    pub(crate) each: Option<Vec<f64>>,
    pub(crate) gradients: BTreeMap<String, Vec<Vec<f64>>>,
    pub(crate) metrics: BTreeMap<String, f64>,
}

/// The rows of one side: target tokens, and the log-probability of each row.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Side {
    lengths: Vec<usize>,
    policy: Vec<f64>,
    reference: Vec<f64>,
    #[serde(default)]
    log_sum_square: Vec<f64>,
}

/// What a step told, the gradients by side and record, and how often rows were scored.
pub(crate) type Stepped = (StepReport, BTreeMap<u32, Vec<f32>>, usize);

/// The rows of a method.
pub(crate) fn rows(method: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(root().join(format!("tests/golden/methods/{method}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn package(method: &str) -> Package {
    Reference::parse(method, &root()).unwrap().open().unwrap()
}

/// A session of a method that was admitted, with its settings taken.
pub(crate) fn begin<H: RunHooks>(
    method: &Method,
    manifest: &Manifest,
    settings: &Map<String, Value>,
    train_state: TrainState<H>,
) -> Result<Session<H>, Error> {
    let settings = resolve_settings(manifest, &toml::Table::try_from(settings).unwrap()).unwrap();
    let own = SessionSettings { metric_names: manifest.metrics.clone(), ..SessionSettings::default() };
    let mut session = Session::start(method, train_state, own)?;
    session.init(&settings)?;
    Ok(session)
}

/// The last value under a name: that of the last update.
pub(crate) fn metric(report: &StepReport, name: &str) -> f64 {
    let found = report.metrics.iter().rev().find(|(other, ..)| other == name);
    found.unwrap_or_else(|| panic!("no metric `{name}` in {:?}", report.metrics)).1
}

/// The first token of a row: which side, and which record.
pub(crate) fn name(side: usize, record: usize) -> u32 {
    (1 + 100 * side + record) as u32
}

impl Row {
    /// How many records it has.
    pub(crate) fn records(&self) -> usize {
        self.sides.values().next().unwrap().lengths.len()
    }

    /// The batch of some of its records, as if they were the whole window.
    pub(crate) fn batch(&self, records: &[usize]) -> Batch {
        let mut batch = Batch { size: records.len() as u32, window_size: records.len() as u32, ..Batch::default() };
        for (number, (side, rows)) in self.sides.iter().enumerate() {
            let ids =
                records.iter().map(|record| [vec![name(number, *record)], vec![7; rows.lengths[*record]]].concat());
            let rows = records.iter().map(|record| [vec![false], vec![true; rows.lengths[*record]]].concat());
            let rows = Arc::new(Rows::new(ids.collect(), rows.collect()).unwrap());
            batch.window_targets.insert(side.clone(), rows.targets() as u32);
            batch.sides.push((side.clone(), rows));
        }
        let pick = |column: &Vec<f32>| records.iter().map(|record| column[*record]).collect();
        batch.columns = self.columns.iter().map(|(name, column)| (name.clone(), pick(column))).collect();
        batch
    }

    fn scores(&self) -> BTreeMap<u32, RowScore> {
        let mut table = BTreeMap::new();
        for (number, side) in self.sides.values().enumerate() {
            for record in 0..side.lengths.len() {
                let log_sum_square = side.log_sum_square.get(record).copied().unwrap_or(-1.0);
                let (policy, reference) = (side.policy[record], side.reference[record]);
                table.insert(name(number, record), RowScore { policy, reference, log_sum_square });
            }
        }
        table
    }

    /// Runs one step on some records: what was reported, and the gradients by side and record. Both are the same
    /// whether rows that are scored one after another go through the model apart or together.
    pub(crate) fn run(&self, engine: &Engine, records: &[usize]) -> (StepReport, BTreeMap<u32, Vec<f32>>) {
        let (report, arrived, apart) = self.run_by(engine, records, false);
        let (joined, same, together) = self.run_by(engine, records, true);
        assert_eq!((&report.metrics, &arrived), (&joined.metrics, &same));
        assert!(together <= apart);
        (report, arrived)
    }

    /// One step of the built-in method.
    pub(crate) fn run_by(&self, engine: &Engine, records: &[usize], joins: bool) -> Stepped {
        let package = package(&self.method);
        let method = engine.admit(&package.bytes, &self.method, &Grants::default(), &Limits::default()).unwrap();
        self.step_of(&method, &package.manifest, records, joins)
    }

    /// One step of a method that was admitted.
    pub(crate) fn step_of(&self, method: &Method, manifest: &Manifest, records: &[usize], joins: bool) -> Stepped {
        let (mut session, arrived, passes) = self.session_of(method, manifest, joins);
        let report = session.step(self.batch(records)).unwrap();
        drop(session);
        let arrived = arrived.lock().unwrap().clone();
        (report, arrived, passes.load(Ordering::Relaxed))
    }

    /// A session that has begun, with what will arrive in it.
    pub(crate) fn session_of(
        &self,
        method: &Method,
        manifest: &Manifest,
        joins: bool,
    ) -> (Session<GivenScores>, Arrived, Passes) {
        let (train_state, arrived, passes) = GivenScores::over(self.scores(), joins);
        (begin(method, manifest, &self.settings, train_state).unwrap(), arrived, passes)
    }
}
