//! Verifiers and environments in Python. The verifier of the example runs code of the model: by the commands of its page, and
//! against code that attacks it.

use std::fs;

use tempfile::TempDir;
use tunebox_sandbox::{
    CodeOptions, Compiling, Engine, Error, Judge, Limits, Responder, Response, Turn, Value, Verdict,
};

use super::python::require_compiler;
use super::{command, commands, interfaces, play};
use crate::support::folders::copy;
use crate::support::golden::root;
use crate::support::workspace::text;

const FOLDER: &str = "examples/16-code";

/// Tests of a record, and code that passes them.
const TESTS: &str = "double(2) == 4\ndouble('a') == 'aa'";
const HONEST: &str = "def double(x):\n    return x + x";

/// Code that gets no reward: what it tries, and the text.
const HOSTILE: [(&str, &str); 24] = [
    ("an endless loop", "while True: pass"),
    ("an endless loop in a test", "def double(x):\n    while True: pass"),
    ("an endless loop that catches what ends it", "while True:\n    try:\n        while True: pass\n    except: pass"),
    ("an endless loop in C", "double = sum(map(abs, iter(int, 1)))"),
    ("a number without end", "double = 10 ** 10 ** 10"),
    ("a list without end", "many = [0]\nwhile True: many += many"),
    ("a long text", "double = 'a' * 10 ** 12"),
    ("recursion", "def double(x): return double(x)"),
    ("recursion of the parser", "PARENTHESES"),
    ("a flood of output", "while True: print('a' * 1000)"),
    ("an import of the system", "import os\nos._exit(0)"),
    ("an import by name", "__import__('sys').modules.clear()"),
    ("an end of the process", "raise SystemExit"),
    ("an assert of its own", "class AssertionError: pass\nassert True\ndouble = lambda x: None"),
    (
        "a value that equals everything",
        "class Same:\n    def __eq__(self, other): return True\ndouble = lambda x: Same()",
    ),
    (
        "a number that equals everything",
        "class Same(int):\n    def __eq__(self, other): return True\ndouble = lambda x: Same(4)",
    ),
    ("other builtins", "__builtins__['len'] = lambda x: 2\ndouble = lambda x: x"),
    ("the frame of the checker", "def g(): yield\nf = g().gi_frame.f_back\ndouble = lambda x: x"),
    (
        "the frame of the checker, by a pattern",
        "match (0 for _ in '').__class__, 0:\n    case object(gi_frame=f), _: pass\ndouble = lambda x: x",
    ),
    (
        "a frame of an exception",
        "try: 1 / 0\nexcept Exception as e: f = e.__traceback__.tb_frame\ndouble = lambda x: x",
    ),
    ("subclasses of all", "double = ().__class__.__base__.__subclasses__"),
    ("the checker's module", "import tunebox.isolated\ntunebox.isolated.reward = lambda *_: 1.0"),
    (
        "globals of a library",
        "import functools\nfunctools.update_wrapper(print, functools.reduce, updated=['__globals__'])",
    ),
    ("no code", "I cannot help with that.\0"),
];

/// Code that is wrong and does no harm: it is judged, and the instance goes on.
const WRONG: [(&str, &str); 8] = [
    ("prose", "I cannot help with that."),
    ("an error of the parser", "def double(x)\n    return x"),
    ("an error of the compiler", "return 4"),
    ("another error of the compiler", "def f(x):\n    global x\ndouble = f"),
    ("an escape that Python warns of", "double = lambda x: '\\d'"),
    ("a comparison that Python warns of", "double = lambda x: x is 4"),
    ("an exception", "def double(x): return x.half + missing"),
    ("an import that fails", "import numpy as np\ndouble = np.double"),
];

/// The component, by the first command of the page, in a copy of the example.
fn built() -> (TempDir, Vec<u8>) {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    copy(&root().join(FOLDER), &place.path().join(FOLDER));
    let page = commands(&format!("{FOLDER}/README.md"));
    let [build, test] = [0, 1].map(|number| play(&page[number], place.path()));
    assert!(build.contains("passes-tests.wasm"), "{build}");
    assert!(test.contains("OK") || test.contains("passed"), "{test}");
    let bytes = fs::read(place.path().join(FOLDER).join("passes-tests.wasm")).unwrap();
    (place, bytes)
}

#[test]
#[ignore = "needs componentize-py"]
fn code_that_attacks_its_verifier_gets_no_reward_and_spoils_no_other() {
    let (_place, bytes) = built();
    assert!(interfaces(&bytes).is_empty());
    let limits = Limits {
        verifier_component_bytes: 32 << 20,
        compile_seconds: 120.0,
        verifier_instructions: 500_000_000,
        ..Limits::default()
    };
    let code = CodeOptions { count_instructions: true, ..CodeOptions::default() };
    let engine = Engine::with(Compiling { code, ..Compiling::default() }).unwrap();
    let verifier = engine.admit_verifier(&bytes, "passes-tests", &limits).unwrap();
    let mut judge = Judge::new(verifier, &[("partial".into(), Value::Boolean(true))]).unwrap();
    for (what, code) in HOSTILE {
        let code = code.replace("PARENTHESES", &"(".repeat(100_000));
        let verdict = judge.verdict("", &code, TESTS, None);
        assert!(matches!(verdict, Verdict::Failed(_) | Verdict::Value(0.0)), "{what}: {verdict:?}");
        judge.drop_instance();
        assert_eq!(judge.verdict("", HONEST, TESTS, None), Verdict::Value(1.0), "after {what}");
    }
    assert_eq!(judge.verdict("", HONEST, "", None), Verdict::Abstained);
    let verdicts = WRONG.map(|(what, code)| (what, judge.verdict("", code, TESTS, None)));
    assert!(verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Value(0.0)), "{verdicts:#?}");
}

/// Builds a folder with a module; the component, or what the program says where it fails.
fn build_module(source: &str) -> Result<Vec<u8>, String> {
    require_compiler();
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("src")).unwrap();
    fs::write(place.path().join("src/halves.py"), source).unwrap();
    let project = "[project]\nname = \"halves\"\nversion = \"0.1.0\"\ndescription = \"Halves numbers\"\n";
    fs::write(place.path().join("pyproject.toml"), project).unwrap();
    let output = command("tunebox build .", place.path()).output().unwrap();
    if output.status.success() { Ok(fs::read(place.path().join("halves.wasm")).unwrap()) } else { Err(text(&output)) }
}

#[test]
#[ignore = "needs componentize-py"]
fn an_environment_in_python_answers_and_ends_episodes() {
    let bytes = build_module(
        "import sys\n\nfrom tunebox import Error, environment, setting\n\n\n@environment\nclass Halves:\n    \
         least: int = setting(1, low=0, doc=\"Where an episode ends.\")\n\n    def __post_init__(self) -> None:\n        \
         if self.least > 9:\n            raise Error(\"`least` is a digit\")\n\n    \
         def respond(self, prompt: str, answer: str, turns: list[str]) -> str | float | None:\n        \
         number = int(turns[-1])\n        sys.__stdout__.write(\"lost\")\n        \
         if number <= self.least:\n            return 1 if answer == \"low\" else None\n        \
         return f\"{len(turns)}: {number // 2}\"\n",
    )
    .unwrap();
    assert!(interfaces(&bytes).is_empty());
    let limits = Limits { environment_component_bytes: 32 << 20, compile_seconds: 120.0, ..Limits::default() };
    let environment = || Engine::new().unwrap().admit_environment(&bytes, "halves", &limits).unwrap();
    let least = |number| [("least".to_owned(), Value::Integer(number))];
    let refused = Responder::new(environment(), &least(10)).err().unwrap();
    assert!(
        matches!(refused, Error::Refused { .. }) && refused.to_string().contains("`least` is a digit"),
        "{refused}"
    );

    let mut responder = Responder::new(environment(), &least(1)).unwrap();
    let mut turns = vec![Turn::Completion("4".into())];
    assert_eq!(responder.respond("", "low", &turns, None), Response::Message("1: 2".into()));
    turns.extend([Turn::Message("1: 2".into()), Turn::Completion("2".into())]);
    assert_eq!(responder.respond("", "low", &turns, None), Response::Message("3: 1".into()));
    turns.extend([Turn::Message("3: 1".into()), Turn::Completion("1".into())]);
    assert_eq!(responder.respond("", "low", &turns, None), Response::End(Some(1.0)));
    assert_eq!(responder.respond("", "high", &turns, None), Response::End(None));
    let failed = responder.respond("", "low", &[Turn::Completion("four".into())], None);
    assert!(matches!(failed, Response::Failed(_)), "{failed:?}");
}

#[test]
#[ignore = "needs componentize-py"]
fn what_a_verifier_in_python_lacks_or_may_not_use_is_said_with_its_line() {
    let class = "@verifier\nclass Halves:\n    def verify(self, prompt, completion, answer): return 1.0\n";
    for (text, wanted) in [
        (
            "from tunebox import verifier\n\n@verifier\nclass Halves:\n    pass\n",
            "`Halves` has no `verify(self, prompt, completion, answer)`",
        ),
        (
            &*format!("from tunebox import verifier, weights\n{class}"),
            "`weights` of the contract: a component of `@verifier` can ask the host for nothing",
        ),
        (&*format!("from tunebox import verifier\n{class}{class}"), "a folder holds one"),
    ] {
        let said = build_module(text).unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}
