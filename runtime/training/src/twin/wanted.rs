//! What a test wants of the bench, and the run that it means: a model, records, settings.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use tunebox_sandbox::native::Twin;

use super::fault::TwinError;
use crate::bench::made_up::{self, Sizes};
use crate::configuration::RunSettings;
use crate::data::{Dataset, Reading, Shape};
use crate::digest::from_hexadecimal;
use crate::error::Error;
use crate::plan::{Plan, Records, datasets, engine, native, plan_of};
use crate::sample::Sample;
use tunebox_foundation::files;

/// Updates that the run plans, unless the test says how many: more than a test makes.
const PLANNED: u32 = 1_000;

/// What a test says first.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wanted {
    /// The method's settings.
    settings: Map<String, Value>,
    /// The seed of the run, of a random model and of records that are made up.
    seed: u64,
    /// The embedded model; else one of its shape with random weights.
    sample: bool,
    /// Records as in a data file; made up without.
    records: Option<Vec<Value>>,
    /// Records that are made up.
    rows: Option<u32>,
    /// Tokens of each.
    width: Option<u32>,
    /// The method's own bytes of an earlier run, in hexadecimal digits.
    state: Option<String>,
    /// Further keys of a run file.
    set: Map<String, Value>,
}

impl Wanted {
    /// Reads it.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let wanted: Self = serde_json::from_str(text)
            .map_err(|error| TwinError::wanted(error.to_string(), "build the method against this version's SDK"))?;
        if wanted.records.as_ref().is_some_and(Vec::is_empty) || wanted.rows == Some(0) || wanted.width == Some(0) {
            return Err(
                TwinError::wanted("there is no record to learn from", "give it at least one, of one token").into()
            );
        }
        Ok(wanted)
    }

    /// The method's own bytes of an earlier run, if it goes on from there.
    pub(super) fn state(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(digits) = &self.state else { return Ok(None) };
        let unreadable = || TwinError::wanted("the state is not in hexadecimal digits", "give what `save_state` gave");
        Ok(Some(from_hexadecimal(digits).ok_or_else(unreadable)?))
    }

    /// The run of a method in a process, with its files below a folder.
    pub(super) fn plan(&self, twin: Twin, place: &Path) -> Result<Plan, Error> {
        let settings = self.run_settings(place)?;
        let (engine, manifest) = (engine(&settings)?, twin.manifest().to_owned());
        let method = native(&settings, &manifest, twin)?;
        let made_up: &Records<'_> = &|_, model, reading| {
            let records = self.made_up(reading, model.configuration.vocabulary)?;
            Ok((records, None))
        };
        plan_of(settings, &engine, method, if self.records.is_some() { &datasets } else { made_up })
    }

    /// The run file as it would be written by hand.
    fn run_settings(&self, place: &Path) -> Result<RunSettings, Error> {
        let model = Sample::embedded().ok_or(Error::NoSample)?.unpack(place)?.join("model");
        let data = place.join("records.jsonl");
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
            format!("train.batch={}", self.batch()),
            format!("train.steps={PLANNED}"),
            "train.schedule=constant".into(),
            format!("run.folder={}", path(place)),
            "run.name=bench".into(),
        ];
        if !self.sample {
            overrides.push("model.initialise=random".into());
        }
        let settings = self.settings.iter().map(|(name, value)| assignment(&format!("method.{name}"), value));
        let further = self.set.iter().map(|(key, value)| assignment(key, value));
        overrides.extend(settings.chain(further).collect::<Result<Vec<_>, _>>()?);
        RunSettings::from_overrides(&overrides)
    }

    /// Records of a micro-batch, where nothing else is said: all of them in one update.
    fn batch(&self) -> u64 {
        let records = self.records.as_ref().map_or_else(|| u64::from(self.rows()), |records| records.len() as u64);
        let parts = self.set.get("train.accumulation").and_then(Value::as_u64).unwrap_or(1).max(1);
        records.div_ceil(parts)
    }

    fn rows(&self) -> u32 {
        self.rows.unwrap_or(4)
    }

    /// Records that nobody wrote, of the first shape that the method takes.
    fn made_up(&self, reading: &Reading, vocabulary: usize) -> Result<Dataset, Error> {
        let (records, sequence) = (self.rows() as usize, self.width.unwrap_or(16) as usize);
        let sizes = Sizes { records, sequence, vocabulary, seed: self.seed };
        let made = |shape: &Shape| made_up::dataset(*shape, sizes);
        let none = || {
            let what = "records of the shape that this method learns from cannot be made up";
            TwinError::wanted(what, "give `records`, as they would stand in a data file")
        };
        Ok(reading.wanted.iter().find_map(made).ok_or_else(none)?)
    }
}

/// A key and its value as `--set` takes them.
fn assignment(key: &str, value: &Value) -> Result<String, Error> {
    let unwritable = |_| TwinError::wanted(format!("`{key}` is `{value}`, which no setting can be"), "leave it out");
    Ok(format!("{key}={}", toml::Value::try_from(value).map_err(unwritable)?))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    fn settings(text: &str) -> RunSettings {
        let place = tempfile::tempdir().unwrap();
        Wanted::read(text).unwrap().run_settings(place.path()).unwrap()
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
    fn what_a_bench_does_not_know_is_refused_by_name() {
        let why = |text: &str| Wanted::read(text).unwrap_err().why().unwrap();
        assert!(why(r#"{"sizes": 3}"#).contains("`sizes`"));
        assert!(why(r#"{"records": []}"#).contains("no record"));
        assert!(Wanted::read(r#"{"state": "0g"}"#).unwrap().state().is_err());
    }
}
