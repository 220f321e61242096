//! Attacks from `tests/attacks/`: read, run in a fake run, and told as a person would read the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_sandbox::{
    Batch, Engine, Error, Grants, Limits, Question, RunHooks as _, Session, SessionSettings, StepReport,
};

use super::fake_run::{FakeRun, rows};
use super::guest;

const ATTACKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/attacks");

/// Tight enough that an attack ends soon, loose enough for anything honest.
pub(crate) fn limits() -> Limits {
    let bytes = Limits { device_bytes: 8 << 20, parameter_state_bytes: 4 << 20, ..Limits::default() };
    Limits { step_seconds: 0.3, init_seconds: 0.3, handles: 2_000, ..bytes }
}

/// A batch of two examples.
pub(crate) fn batch() -> Batch {
    Batch {
        sides: vec![("example".into(), rows())],
        size: 2,
        columns: BTreeMap::new(),
        window_targets: BTreeMap::from([("example".into(), 3)]),
        window_size: 2,
        ends_window: true,
        questions: vec![Question::default(); 2],
        ..Batch::default()
    }
}

/// Admits a component and takes it through a whole run of one step.
pub(crate) fn run(engine: &Engine, bytes: &[u8], name: &str) -> Result<StepReport, Error> {
    // What a run grants by name is attacked as well: by the folders that say so.
    let granted = name.starts_with("granted-");
    let named = if granted { Grants::default().with("weights").with("text") } else { Grants::default() };
    let method = engine.admit(bytes, name, &named, &limits())?;
    let (train_state, record) = FakeRun::with_record();
    let metric_names = vec!["loss".to_owned()];
    // And what a method may do that updates the parameters itself.
    let updates_itself = name.starts_with("updates-");
    let settings =
        SessionSettings { limits: limits(), seed: 1, metric_names, updates_itself, ..SessionSettings::default() };
    let mut session = Session::start(&method, train_state, settings)?;
    let outcome = session.init(&[]).and_then(|_| {
        let report = session.step(batch())?;
        session.save_state()?;
        session.finish()?;
        Ok(report)
    });
    record.lock().unwrap().updates = 7;
    let held = session.held_bytes();
    session.end();
    assert_eq!(session.held_bytes(), 0, "`{name}` held {held} bytes, and some are taken after its end");
    assert_eq!(session.train_state().hooks.position(), 7, "`{name}`: the run answers after the method");
    outcome
}

/// What a person would read, with the measured time left out.
pub(crate) fn message(outcome: Result<StepReport, Error>) -> String {
    let error = match outcome {
        Err(error) => error,
        Ok(report) => {
            let first = report.log.first().map_or("", String::as_str);
            let (kept, dropped) = (report.log.len(), report.dropped_lines);
            return format!("ran to its end, {kept} log lines kept, {dropped} dropped\nfirst: {first}\n");
        }
    };
    assert_eq!(error.exit(), Exit::Sandbox);
    let explanation = error.explanation();
    let mut text = format!("error[{}]: {}\n", explanation.category, explanation.what);
    for (label, part) in [("  --> ", explanation.location), ("why:  ", explanation.why), ("hint: ", explanation.hint)] {
        if let Some(part) = part {
            text.push_str(&format!("{label}{}\n", without_time(&part)));
        }
    }
    text
}

/// Measured seconds differ from run to run; the limit beside them does not.
fn without_time(text: &str) -> String {
    let measured = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    match text.split_once("after ").filter(|(_, rest)| measured(rest)) {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
            format!("{before}after a few{rest}")
        }
        None => text.to_owned(),
    }
}

/// One folder of `attacks/`.
pub(crate) struct Attack {
    /// Its name.
    pub(crate) name: String,
    /// The component.
    pub(crate) bytes: Vec<u8>,
    /// What is written beside it.
    pub(crate) expected: String,
    folder: PathBuf,
}

impl Attack {
    /// Whether the end is the one written beside it; with `BLESS=1` it is written there first.
    pub(crate) fn expects(&self, told: &str) -> bool {
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(self.folder.join("expected.txt"), told).unwrap();
            return true;
        }
        self.expected == told
    }
}

/// Every attack, in the order of the names.
pub(crate) fn attacks() -> Vec<Attack> {
    let mut folders: Vec<_> = std::fs::read_dir(ATTACKS).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    folders.iter().map(|folder| attack(folder)).collect()
}

fn attack(folder: &Path) -> Attack {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let bytes = guest::component(&text("component.wat"));
    Attack {
        name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
        bytes: treated(bytes, text("treatment.txt").trim()),
        expected: text("expected.txt"),
        folder: folder.to_owned(),
    }
}

/// What no text form can say is done to the bytes afterwards, as `treatment.txt` has it.
fn treated(mut bytes: Vec<u8>, treatment: &str) -> Vec<u8> {
    let number = || treatment.split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
    let words: Vec<&str> = treatment.split(' ').filter(|word| word.chars().all(char::is_alphabetic)).collect();
    match words.join(" ").as_str() {
        "" => {}
        "keep the first bytes" => bytes.truncate(number()),
        "add a section of bytes" => {
            let size = number();
            bytes.push(0);
            let mut rest = size + 2;
            while rest >= 0x80 {
                bytes.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            bytes.extend([rest as u8, 1, b'x']);
            bytes.resize(bytes.len() + size, 0);
        }
        "put in front" => {
            let hexadecimal = treatment.split(' ').nth(1).unwrap();
            let digits = (0..hexadecimal.len()).step_by(2).map(|at| &hexadecimal[at..at + 2]);
            let front: Vec<u8> = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
            bytes.splice(0..0, front);
        }
        other => panic!("`{other}` is no treatment"),
    }
    bytes
}

/// What a person reads when the host itself fails.
pub(crate) fn run_on_a_host_that_panics(engine: &Engine, bytes: &[u8]) -> Error {
    let method = engine.admit(bytes, "unlucky", &Grants::default(), &limits()).unwrap();
    let (train_state, record) = FakeRun::with_record();
    record.lock().unwrap().panics = true;
    let mut session = Session::start(&method, train_state, SessionSettings::default()).unwrap();
    session.step(batch()).unwrap_err()
}
