//! What goes wrong in a method in Python is told with the line of its source: while it is made, and while it runs.

use std::fs;

use tempfile::TempDir;
use tunebox_foundation::explain::Explain;
use tunebox_package::build::{self, Options};
use tunebox_sandbox::{Engine, Error, Grants, Session, SessionSettings, Value};

use super::python::{limits, require_compiler};
use super::{interfaces, message};
use crate::support::{given_scores, golden_rows};

/// A method that goes wrong in the way that its setting names; a line with `HERE name` is where.
const FAULTS: &str = r#"import os
import random
import sys
import time
import warnings
from contextlib import contextmanager
from datetime import datetime
from sys import stdout
from typing import Literal

from tunebox import Batch, Error, Refused, learn, method, model, setting, tensor

print("while it is made", end="")

@method(shape="supervised", metrics=["kept"])
class Faults:
    """Goes wrong."""

    way: Literal[
        "side", "shapes", "word", "view", "number", "range", "closed", "exit", "context", "late", "own", "caught",
        "printed", "nothing", "input", "clock", "today", "seed", "entropy", "folder", "terminal", "bare", "silent",
    ] = setting("own", doc="How.")
    lambda_: float = setting(1.0, low=0.0, doc="A word that Python keeps.")

    def step(self, batch: Batch) -> None:
        getattr(self, self.way)(batch)

    def side(self, batch: Batch) -> None:
        batch.rows("nowhere")  # HERE side

    def shapes(self, batch: Batch) -> None:
        tensor.full([2], 1.0) + tensor.full([3], 1.0)  # HERE shapes

    def word(self, batch: Batch) -> None:
        batch.size() + "one"  # HERE word

    def view(self, batch: Batch) -> None:
        model.score(model.reference, batch.rows("chosen"))  # HERE view

    def number(self, batch: Batch) -> None:
        learn.backward(0.5)  # HERE number

    def range(self, batch: Batch) -> None:
        tensor.full([2, -1], 1.0)  # HERE range

    def closed(self, batch: Batch) -> None:
        with tensor.full([2], 1.0) as numbers:
            pass
        numbers.exp()  # HERE closed

    def exit(self, batch: Batch) -> None:
        sys.exit("enough")  # HERE exit

    def context(self, batch: Batch) -> None:
        @contextmanager
        def around():
            yield

        with around():
            batch.rows("nowhere")  # HERE context

    def nothing(self, batch: Batch) -> None:
        pass

    def save_state(self):  # HERE saved
        return "no bytes"

    def late(self, batch: Batch) -> None:
        import statistics  # HERE late

    def own(self, batch: Batch) -> None:
        raise Error("the `batch` is not to my liking")

    def caught(self, batch: Batch) -> None:
        try:
            batch.rows("nowhere")
        except Refused as refused:
            print("caught", refused.value.code)

    def clock(self, batch: Batch) -> None:
        time.monotonic()  # HERE clock

    def today(self, batch: Batch) -> None:
        datetime.now()  # HERE today

    def seed(self, batch: Batch) -> None:
        random.seed(7)
        random.Random()  # HERE seed

    def entropy(self, batch: Batch) -> None:
        os.urandom(4)  # HERE entropy

    def folder(self, batch: Batch) -> None:
        print(os.path.exists("/"))
        os.listdir("/")  # HERE folder

    def terminal(self, batch: Batch) -> None:
        input()  # HERE terminal

    def input(self, batch: Batch) -> None:
        sys.stdin.readline()  # HERE input

    def bare(self, batch: Batch) -> None:
        raise ValueError  # HERE bare

    def silent(self, batch: Batch) -> None:
        raise Error("")

    def printed(self, batch: Batch) -> None:
        print("one\ntwo", 3)
        print(tensor.full([2], 1.0) * 2.0 + 1.0)
        print(tensor.arange(0.0, 0.5, 200).reshape([2, 100]))
        warnings.warn("take care")  # HERE warned
        stdout.write("kept\n")
        print("by its other name", file=sys.__stderr__)
        print("a line without an end", end="")
"#;

/// What each way of `FAULTS` ends with.
const ENDS: &[(&str, &str)] = &[
    ("side", "nowhere"),
    ("shapes", "Refused: "),
    ("word", "TypeError"),
    ("view", "TypeError: score() takes a `View` as `view`, not the function `reference`: `reference()` calls it"),
    ("number", "TypeError: backward() takes a `Tensor` as `loss`, not `float` 0.5"),
    ("range", "item 1 is `int` -1"),
    ("closed", "this one was given back"),
    ("exit", "SystemExit: enough"),
    ("context", "Refused: "),
    ("late", "at the top of the file"),
    ("clock", "`time.monotonic` needs a clock, and the sandbox has none"),
    ("today", "needs a clock, and the sandbox has none"),
    ("seed", "`random` without a seed needs randomness of the system, and the sandbox has none"),
    ("entropy", "`os.urandom` needs randomness of the system, and the sandbox has none"),
    ("folder", "`os.listdir` needs the operating system"),
    ("terminal", "there is no terminal"),
    ("input", "`sys.stdin`: there is no terminal"),
    ("bare", "raised an exception at step 1: ValueError"),
];

#[test]
#[ignore = "needs componentize-py"]
fn a_method_in_python_tells_its_line_and_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    write_method(&folder, "faults", FAULTS);
    require_compiler();
    let built = build::compile(folder.path(), &Options::default(), &mut |_| {});
    let built = built.unwrap_or_else(|error| panic!("{}", message(&error)));
    assert_eq!(interfaces(&built.bytes), ["data", "learn", "model", "run", "tensor", "types"]);
    assert_eq!(built.manifest.settings[1].name, "lambda");
    let engine = Engine::new().unwrap();
    let method = engine.admit(&built.bytes, "faults", &Grants::default(), &limits()).unwrap();
    let row = golden_rows::rows("dpo").remove(0);
    let begin = |way: &str| {
        let (train_state, ..) = given_scores::GivenScores::over(Default::default(), false);
        let mut session = Session::start(&method, train_state, SessionSettings::default()).unwrap();
        let kept = ("lambda".to_owned(), Value::Number(1.0));
        session.init(&[("way".to_owned(), Value::Text(way.to_owned())), kept]).unwrap();
        session
    };
    let step = |way: &str| begin(way).step(row.batch(&[0, 1]));
    let line = |way: &str| FAULTS.lines().position(|line| line.ends_with(&format!("# HERE {way}"))).unwrap() + 1;
    for (way, words) in ENDS.iter().copied() {
        let error = step(way).unwrap_err();
        let line = line(way);
        assert!(error.to_string().contains(words), "{error}");
        let place = error.location().unwrap();
        assert!(place.starts_with(&format!("src/faults.py:{line}:")), "{way}: {place}, {error}");
    }
    let saved = begin("nothing").save_state().unwrap_err();
    assert!(saved.to_string().contains("save_state() gives `bytes`, and this is a `str`"), "{saved}");
    assert!(saved.location().unwrap().starts_with(&format!("src/faults.py:{}:", line("saved"))), "{saved}");
    let own = step("own").unwrap_err();
    assert!(matches!(&own, Error::Refused { .. }), "{own}");
    assert!(own.to_string().contains("not to my liking"), "{own}");
    let silent = step("silent").unwrap_err();
    assert_eq!(silent.to_string(), "`faults` returned an error at step 1, and gave no message");
    assert_eq!(step("caught").unwrap().log, ["caught invalid-argument"]);
    let (large, warning) = (
        "Tensor([2, 100], f32, [0, 0.5, 1, 1.5, 2, 2.5, …])",
        format!("src/faults.py:{}: UserWarning: take care", line("warned")),
    );
    let lines = ["one", "two 3", "Tensor([2], f32, [3, 3])", large, &warning];
    let printed = [&lines[..], &["kept", "by its other name", "a line without an end"]].concat();
    assert_eq!(step("printed").unwrap().log, printed);
}

fn write_method(folder: &TempDir, name: &str, source: &str) {
    let project = format!("[project]\nname = \"{name}\"\nversion = \"0.1.0\"\ndescription = \"A test\"\n");
    fs::write(folder.path().join("pyproject.toml"), project).unwrap();
    fs::create_dir_all(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src").join(format!("{name}.py")), source).unwrap();
}

#[test]
#[ignore = "needs componentize-py"]
fn what_a_source_gets_wrong_is_told_before_anything_is_made() {
    require_compiler();
    let wrong: [(&str, &str, Option<&str>); 9] = [
        ("from tunebox import method\n\ndef (:\n", "invalid syntax", Some("src/wrong.py:3:")),
        ("from tunebox import weihgts\n", "weihgts", Some("src/wrong.py:1:")),
        ("import tunebox\n", "declares no method", None),
        (
            "from tunebox import method\n\n@method(shape=\"supervisd\", metrics=[])\nclass A:\n    pass\n",
            "a shape is one of `supervised`",
            Some("src/wrong.py:3:"),
        ),
        (
            "from tunebox import method\n\n@method(shape=\"supervised\", metrics=[])\nclass A:\n    pass\n",
            "step",
            Some("src/wrong.py:3:"),
        ),
        (
            "from tunebox import method\n\n@method(shape=\"supervised\", metrics=[])\nclass A:\n    \
             size: int = 3\n\n    def step(self, batch):\n        pass\n",
            "`size` is no setting",
            None,
        ),
        (
            "from tunebox import method, setting\n\n@method(shape=\"supervised\", metrics=[])\nclass A:\n    \
             size: float = setting(0.0, above=0.0, doc=\"How.\")\n\n    def step(self, batch):\n        pass\n",
            "the default is 0.0, it must be above 0",
            Some("src/wrong.py:5:"),
        ),
        (
            "import logging\nfrom datetime import date\n\nTODAY = date.today()\n",
            "needs a clock, and the sandbox has none",
            Some("src/wrong.py:4:"),
        ),
        ("from random import Random\n\nDRAWS = Random()\n", "`random` without a seed", Some("src/wrong.py:3:")),
    ];
    for (source, words, line) in wrong {
        let folder = tempfile::tempdir().unwrap();
        write_method(&folder, "wrong", source);
        let error = build::compile(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
        assert_eq!(error.category(), "build", "{}", message(&error));
        assert!(error.to_string().contains(words), "{}", message(&error));
        let place = error.location();
        assert_eq!(place.is_some(), line.is_some(), "{}", message(&error));
        assert!(line.is_none_or(|line| place.unwrap().starts_with(line)), "{}", message(&error));
    }
}
