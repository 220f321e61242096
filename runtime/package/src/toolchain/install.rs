//! Getting the target's standard library: from rustup, else from the distribution.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use super::{Toolchain, command, find, on_path};
use crate::Error;
use crate::constants::TARGET;

/// Debian's Rust with the source of its standard library, and a linker for it.
const PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld"];

/// What was done.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The toolchain that builds use now.
    pub toolchain: Toolchain,
    /// The commands that were run; none when it was there already.
    pub commands: Vec<String>,
}

/// Makes sure that there is a toolchain for methods: does nothing if there is one, else tries rustup, then apt. Returns
/// the toolchain and the commands that were run. Errors: no way worked; the error lists what each command answered.
pub fn install() -> Result<Installed, Error> {
    if let Ok(toolchain) = find() {
        return Ok(Installed { toolchain, commands: Vec::new() });
    }
    let mut tried = Vec::new();
    for way in [vec![rustup()], apt()] {
        for command in way {
            let answer = run(&command);
            tried.push((command.join(" "), answer));
        }
        if let Ok(toolchain) = find() {
            return Ok(Installed { toolchain, commands: tried.into_iter().map(|(command, _)| command).collect() });
        }
    }
    let why: Vec<_> = tried.iter().map(|(command, answer)| format!("`{command}`: {answer}")).collect();
    let error = Explanation::new("build", "cannot install a WebAssembly target for Rust").with_why(why.join("; "));
    let location = tried.pop().map(|(command, _)| command);
    let hint = format!("`rustup target add {TARGET}`, or as root `apt-get install {}`", PACKAGES.join(" "));
    Err(Explanation { location, ..error.with_hint(hint) }.into())
}

/// Returns the command that adds the target to a Rust of rustup.
fn rustup() -> Vec<String> {
    ["rustup", "target", "add", TARGET].map(str::to_owned).to_vec()
}

/// Returns the commands that install Debian's Rust with the source of its standard library.
fn apt() -> Vec<Vec<String>> {
    let mut install = ["apt-get", "install", "--yes", "--no-install-recommends"].map(str::to_owned).to_vec();
    install.extend(PACKAGES.map(str::to_owned));
    vec![["apt-get", "update"].map(str::to_owned).to_vec(), install]
}

/// Runs a command and returns a phrase about it: `done`, the last line of its error output, or why it could not be run.
fn run(words: &[String]) -> String {
    let Some((program, arguments)) = words.split_first() else { return String::new() };
    let Some(program) = on_path(program) else { return "there is no such program here".to_owned() };
    let output = command(Path::new(&program)).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").output();
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
