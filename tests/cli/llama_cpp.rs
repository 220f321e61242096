//! A run that is exported as GGUF gives the same greedy text in llama.cpp as in tunebox.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::workspace;
use crate::support::absent::absent;
use crate::support::golden::root;
use crate::support::transcript::BINARY;

/// Questions whose answers the model was taught, so that no rounding decides between two tokens.
const QUESTIONS: [&str; 5] = [
    "What is 3 + 4?",
    "What is the capital of France?",
    "Hello!",
    "What does a lion say?",
    "What is the opposite of full?",
];

/// The Python of the environment that `VIRTUAL_ENV` names, else `python3` of the path. Ends the test if it lacks
/// llama.cpp.
fn python() -> PathBuf {
    let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
    let python = environment.unwrap_or_else(|| "python3".into());
    let import = Command::new(&python).args(["-c", "import xllamacpp"]).stderr(Stdio::null()).status();
    if !import.is_ok_and(|status| status.success()) {
        absent("llama.cpp", "Python has no package `xllamacpp`");
    }
    python
}

/// Runs a program in a folder and returns what it printed to stdout, without the line end.
fn run(command: &mut Command, folder: &Path) -> String {
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
}

#[test]
#[ignore = "needs llama.cpp"]
fn llama_cpp_gives_the_greedy_text_of_the_run() {
    let (python, place) = (python(), workspace());
    let tunebox = |words: &[&str]| run(Command::new(BINARY).args(words), place.folder());
    tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--steps", "12", "--name", "x"]);
    let answer =
        |question| tunebox(&["generate", "runs/x", question, "--temperature", "0", "--max-tokens", "64", "--quiet"]);
    let wanted = QUESTIONS.map(answer);
    for format in ["f16", "q8_0"] {
        let file = format!("{format}.gguf");
        tunebox(&["export", "runs/x", "--to", "gguf", "--type", format, "--out", &file]);
        let mut peer = Command::new(&python);
        peer.arg(root().join("tests/peers/greedy.py")).arg(&file).args(QUESTIONS);
        let answers: Vec<String> = serde_json::from_str(&run(&mut peer, place.folder())).unwrap();
        assert_eq!(answers, wanted, "{format}");
    }
}
