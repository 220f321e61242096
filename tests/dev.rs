//! Claims about `tunebox dev`: it takes a changed source into the run that goes on, a wrong one does not end it, and a step
//! that is tried again leaves what one that never failed leaves.
//!
//! Builds share one cargo folder with those of other tests.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::processes::send;
use crate::support::workspace::{Workspace, text};

/// The longest that anything is waited for: a build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The method that `tunebox new calm` wrote, and the person who works on it.
struct Author {
    place: Workspace,
    /// The source as it was written.
    first: String,
}

impl Author {
    fn new() -> Self {
        let mut author = Self { place: Workspace::empty(), first: String::new() };
        author.place.succeed(&["new", "calm"]);
        author.first = std::fs::read_to_string(author.source()).unwrap();
        author
    }

    fn source(&self) -> PathBuf {
        self.place.path("calm/src/lib.rs")
    }

    fn save(&self, text: &str) {
        std::fs::write(self.source(), text).unwrap();
    }

    /// The first source with something else in one place.
    fn with(&self, old: &str, new: &str) -> String {
        assert_eq!(self.first.matches(old).count(), 1, "`{old}`");
        self.first.replace(old, new)
    }

    /// Whether a run of six steps came to the bits of one in which the first source did all of them.
    fn came_to_the_same(&self, run: &str) {
        self.save(&self.first);
        self.place.succeed(&["build", "calm"]);
        self.place.succeed(&["train", "calm/run.toml", "--name", "straight", "--set", "train.steps=6"]);
        let steps = |run: &str| self.place.metrics(&format!("runs/{run}"));
        assert_eq!(steps(run), steps("straight"));
        assert!(self.place.adapter(run) == self.place.adapter("straight"), "the adapters differ");
    }
}

/// A run of `tunebox dev calm`, and what it tells.
struct Dev {
    child: Child,
    told: Receiver<Value>,
}

impl Dev {
    fn start(author: &Author, more: &[&str]) -> Self {
        let words = [&["dev", "calm", "--json"], more].concat();
        let mut child = author.place.tunebox(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, told) = channel();
        std::thread::spawn(move || {
            let mut events = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            events.try_for_each(|event| send.send(event))
        });
        Self { child, told }
    }

    /// The next event of a kind; the losses of the steps before it.
    fn read_until(&self, kind: &str) -> (Value, Vec<(u64, f64)>) {
        let mut losses = Vec::new();
        loop {
            let event = self.told.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no `{kind}`: {error}"));
            if event["event"] == kind {
                return (event, losses);
            }
            if event["event"] == "step" {
                losses.push(step(&event));
            }
            assert!(event["event"] != "finished", "the run ended before `{kind}`");
            assert!(kind != "step" || event["event"] != "swapped", "another version without a change");
        }
    }

    /// The losses of the coming steps.
    fn steps(&self, count: usize) -> Vec<(u64, f64)> {
        (0..count).map(|_| step(&self.read_until("step").0)).collect()
    }

    /// The error that comes now holds these words.
    fn fails_with(&self, words: &str) {
        let (error, _) = self.read_until("error");
        assert!(error.to_string().contains(words), "{error}");
    }

    /// Ctrl-C: the exit code, and what is told after it.
    fn interrupt(mut self) -> (Option<i32>, Vec<Value>) {
        send(self.child.id(), Signal::INT);
        let code = self.child.wait().unwrap().code();
        (code, self.told.iter().collect())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number and loss of a step.
fn step(event: &Value) -> (u64, f64) {
    let loss = event["metrics"]["loss"].as_f64();
    (event["step"].as_u64().unwrap(), loss.unwrap_or_else(|| panic!("{event}")))
}

#[test]
fn a_changed_source_goes_into_the_run_and_one_that_is_wrong_does_not_end_it() {
    let author = Author::new();
    // Without end: no number of steps is given.
    let dev = Dev::start(&author, &["--name", "long", "--set", "method.focus=0.5"]);
    let before = dev.steps(2).pop().unwrap().1;

    let tenfold = author.with("-(unknown", "-10.0 * (unknown");
    author.save(&tenfold);
    let (swapped, passed) = dev.read_until("swapped");
    let after = dev.steps(2);
    assert_eq!(after[0].0, swapped["step"].as_u64().unwrap() + 1);
    assert!(after[0].1 > 3.0 * passed.last().map_or(before, |(_, loss)| *loss), "{passed:?} {after:?}");

    author.save(&format!("{tenfold}\n// The same method.\n"));
    dev.read_until("built");
    dev.steps(3);

    author.save(&tenfold.replace("self.focus", "self.fokus"));
    dev.fails_with("fokus");
    dev.steps(3);

    author.save(&tenfold.replace("focus", "sharpness"));
    dev.fails_with("`focus`");
    dev.read_until("kept");
    dev.steps(3);

    let (code, _) = dev.interrupt();
    assert_eq!(code, Some(130));
    let text = std::fs::read_to_string(author.place.path("runs/long/metrics.jsonl")).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"method\"")).count(), 1, "every version is written down");
}

#[test]
fn a_step_that_failed_is_done_again_from_where_it_began() {
    let author = Author::new();
    // What the weights learned before the panic must not be learned twice; and no step counts whose state is not known.
    let hasty = "backward(&loss)?;\n        if tunebox::run::position() == 2 {\n            update()?;\n            \
                 panic!(\"too hasty\");\n        }";
    let mute = "fn save_state(&self) -> Vec<u8> {\n        panic!(\"no words\")\n    }\n\n    fn step(";
    author.save(&author.with("backward(&loss)?;", hasty));
    let dev = Dev::start(&author, &["--name", "tried", "--set", "train.steps=6"]);
    dev.fails_with("too hasty");
    author.save(&author.with("fn step(", mute));
    dev.fails_with("no words");
    author.save(&author.first);
    let (swapped, _) = dev.read_until("swapped");
    assert_eq!(swapped["step"], 2);
    dev.read_until("finished");
    assert_eq!(dev.interrupt().0, Some(130));
    author.came_to_the_same("tried");
}

#[test]
fn a_run_that_is_left_while_it_waits_goes_on_by_the_next_version() {
    let author = Author::new();
    let stubborn = "backward(&loss)?;\n        assert!(tunebox::run::position() != 2, \"too stubborn\");";
    author.save(&author.with("backward(&loss)?;", stubborn));
    let words = ["--name", "left", "--set", "train.steps=6"];
    let dev = Dev::start(&author, &words);
    dev.fails_with("too stubborn");
    let (code, after) = dev.interrupt();
    assert_eq!(code, Some(130));
    assert!(after.iter().all(|event| event["event"] != "error"), "it is said twice: {after:?}");
    assert!(author.place.path("runs/left/steps/000002/state.json").is_file());

    author.save(&author.first);
    let dev = Dev::start(&author, &[&words[..], &["--resume"]].concat());
    let (planned, _) = dev.read_until("planned");
    assert_eq!(planned["plan"]["method-changed"], true, "{planned}");
    dev.read_until("finished");
    assert_eq!(dev.interrupt().0, Some(130));
    author.came_to_the_same("left");
}

#[test]
fn a_source_that_is_broken_at_the_start_is_waited_for_and_a_run_without_a_step_leaves_no_folder() {
    let author = Author::new();
    author.save(&author.with("self.focus", "self.fokus"));
    let dev = Dev::start(&author, &[]);
    dev.fails_with("fokus");
    dev.read_until("waiting");
    author.save(&author.with("backward(&loss)?;", "backward(&loss)?;\n        panic!(\"too early\");"));
    dev.read_until("planned");
    dev.fails_with("too early");
    dev.read_until("waiting");
    // Whatever is told of it, the run goes on as it began.
    let run_file = author.place.path("calm/run.toml");
    let text = std::fs::read_to_string(&run_file).unwrap();
    std::fs::write(&run_file, text + "\n# Another.\n").unwrap();
    let (told, _) = dev.read_until("run-file-changed");
    assert_eq!(told["path"], "calm/run.toml");

    let (code, after) = dev.interrupt();
    assert_eq!(code, Some(130));
    let stopped = after.iter().find(|event| event["event"] == "stopped").unwrap();
    assert_eq!((&stopped["folder"], &stopped["checkpoint"]), (&Value::Null, &Value::Null));
}

#[test]
fn what_is_no_folder_of_a_method_is_not_waited_for() {
    let author = Author::new();
    for (words, told) in [
        (["dev", "nowhere"], "there is no method in `nowhere`"),
        (["dev", "calm/run.toml"], "give its folder, `calm`; a run file is for `tunebox train calm/run.toml`"),
        (["build", "calm/run.toml"], "`calm/run.toml` is a file; expected the folder of a method"),
        (["dev", "--method=calm"], "unexpected argument '--method'"),
    ] {
        let said = text(&author.place.end(&words, 2));
        assert!(said.contains(told), "{words:?}: {said}");
    }
}
