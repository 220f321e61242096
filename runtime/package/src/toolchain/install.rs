//! Getting the target's standard library: from rustup, else from the distribution.

use tunebox_foundation::explain::Explanation;

use super::{command, find, find_on_path};
use crate::Error;

/// Adds the target to a Rust of rustup.
const RUSTUP_COMMAND: &str = "rustup target add wasm32-unknown-unknown";
/// Installs Debian's Rust with the source of its standard library, and a linker for it.
const APT_COMMANDS: [&str; 2] =
    ["apt-get update", "apt-get install --yes --no-install-recommends rustc-web cargo-web rust-web-src lld"];

/// Makes sure that there is a toolchain for methods: does nothing if there is one, else runs `rustup target add`, then
/// `apt-get` if there is still none. Returns the commands that were tried, also those that failed. Errors: there is no
/// toolchain after all commands; the error lists what each command answered.
pub fn install() -> Result<Vec<String>, Error> {
    if find().is_ok() {
        return Ok(Vec::new());
    }
    let mut tried = Vec::new();
    for way in [&[RUSTUP_COMMAND][..], &APT_COMMANDS] {
        tried.extend(way.iter().map(|command| (*command, run_command_line(command))));
        if find().is_ok() {
            return Ok(tried.into_iter().map(|(command, _)| command.to_owned()).collect());
        }
    }
    let why: Vec<_> = tried.iter().map(|(command, answer)| format!("`{command}`: {answer}")).collect();
    let error = Explanation::new("build", "cannot install a WebAssembly target for Rust").with_why(why.join("; "));
    let location = tried.pop().map(|(command, _)| command.to_owned());
    let hint = format!("`{RUSTUP_COMMAND}`, or as root `{}`", APT_COMMANDS[1]);
    Err(Explanation { location, ..error.with_hint(hint) }.into())
}

/// Runs a command line, split at spaces, without a shell, and waits for its end. Returns a phrase about it: `done`, the
/// last line of its error output if it fails, or why it could not be run.
fn run_command_line(line: &str) -> String {
    let mut words = line.split(' ');
    let Some(program) = words.next().and_then(find_on_path) else { return "there is no such program here".to_owned() };
    let output = command(program).args(words).env("DEBIAN_FRONTEND", "noninteractive").output();
    match output {
        Err(error) => error.to_string(),
        Ok(output) if output.status.success() => "done".to_owned(),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            text.lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it failed without a word")
                .trim()
                .to_owned()
        }
    }
}
