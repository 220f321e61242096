//! What the test programs of the workspace hold, and what one of them says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// How a test begins its panic where this machine lacks what the test needs, as in "absent `gdb`: no such program".
const ABSENT: &str = "absent `";

/// How the reason of `#[ignore]` begins where a test needs a device or a program.
const NEEDS: &str = ", needs ";

/// The devices that `TUNEBOX_DEVICES` may require.
pub const DEVICES: [&str; 2] = ["cuda", "metal"];

/// The programs that `TUNEBOX_TOOLS` may require.
pub const TOOLS: [&str; 14] = [
    "chromium",
    "clang",
    "componentize-py",
    "docker-registry",
    "gdb",
    "llama.cpp",
    "mpich",
    "mypy",
    "nvrtc",
    "openmpi",
    "openssl",
    "profiler-cli",
    "slurm",
    "wkg",
];

/// An executable with tests of one crate.
#[derive(Debug)]
pub struct Program {
    executable: PathBuf,
    /// The folder of its package, in which cargo runs it.
    folder: PathBuf,
}

/// How many cases a program runs by itself, and which it leaves to this crate.
#[derive(Debug, Default)]
pub struct Cases {
    /// Cases without `#[ignore]`.
    pub ordinary: usize,
    /// Names of the cases that need a device or a program.
    pub optional: Vec<String>,
}

/// What became of optional cases.
#[derive(Debug, Default, PartialEq)]
pub struct Outcomes {
    /// How many passed.
    pub passed: usize,
    /// Names of those that failed.
    pub failed: Vec<String>,
    /// Names of those that were skipped, by what is absent and why.
    pub skipped: BTreeMap<String, Vec<String>>,
}

impl Program {
    /// Reads the messages of `cargo test --no-run --message-format json`; this crate's own programs are left out.
    #[must_use]
    pub fn list(messages: &str) -> Vec<Self> {
        let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        artifacts
            .filter(|artifact| artifact["profile"]["test"] == true && artifact["target"]["name"] != "optional")
            .filter_map(|artifact| {
                let executable = PathBuf::from(artifact["executable"].as_str()?);
                let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned();
                Some(Self { executable, folder })
            })
            .collect()
    }

    /// The cases whose names contain one of the filters, or all of them without filters.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be started.
    pub fn cases(&self, filters: &[String]) -> std::io::Result<Cases> {
        let mut list = self.command();
        let all = names(&list.args(["--list", "--format", "terse"]).args(filters).output()?);
        let mut list = self.command();
        let ignored = names(&list.args(["--list", "--format", "terse", "--ignored"]).args(filters).output()?);
        if ignored.is_empty() {
            return Ok(Cases { ordinary: all.len(), optional: Vec::new() });
        }
        // Ignored cases do not run here: the program only names the reason of each.
        let reasons = text(&self.command().arg("--exact").args(&ignored).output()?.stdout);
        let optional = reasons.lines().filter_map(|line| {
            let (name, reason) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
            reason.starts_with(NEEDS).then(|| name.to_owned())
        });
        Ok(Cases { ordinary: all.len() - ignored.len(), optional: optional.collect() })
    }

    /// Runs optional cases and returns what became of them; prints the program's output if a case failed.
    /// A case whose device or program is absent but in `required` has failed.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be started.
    #[expect(clippy::print_stdout, reason = "the output of a failed case is shown as every test program shows it")]
    pub fn run(&self, cases: &[String], required: &BTreeSet<String>) -> std::io::Result<Outcomes> {
        // A case whose need is absent panics, and a backtrace takes longer than the case.
        let output = self.command().env("RUST_BACKTRACE", "0").args(["--exact", "--ignored"]).args(cases).output()?;
        let told = text(&output.stdout);
        let outcomes = Outcomes::read(&told, cases, required);
        if !outcomes.failed.is_empty() {
            println!("{}\n{told}\n{}", self.executable.display(), text(&output.stderr));
        }
        Ok(outcomes)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder);
        command
    }
}

impl Outcomes {
    /// Reads what a program printed about cases. One about which it printed nothing has failed.
    fn read(told: &str, cases: &[String], required: &BTreeSet<String>) -> Self {
        let mut outcomes = Self::default();
        for case in cases {
            let panic = told.split_once(&format!("---- {case} stdout ----\n")).map(|(_, rest)| rest);
            let panic = panic.map(|rest| rest.split("\n---- ").next().unwrap_or(rest));
            let absent = panic.and_then(|panic| panic.lines().find(|line| line.starts_with(ABSENT)));
            let name = absent.and_then(|line| line[ABSENT.len()..].split('`').next());
            match (absent, name) {
                (Some(absent), Some(name)) if !required.contains(name) => {
                    outcomes.skipped.entry(absent.to_owned()).or_default().push(case.clone());
                }
                _ if told.contains(&format!("test {case} ... ok\n")) => outcomes.passed += 1,
                _ => outcomes.failed.push(case.clone()),
            }
        }
        outcomes
    }

    /// Adds the outcomes of another program.
    pub fn extend(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        for (absent, cases) in other.skipped {
            self.skipped.entry(absent).or_default().extend(cases);
        }
    }
}

/// The names in a list separated by commas.
///
/// # Errors
///
/// Fails on a name that is not in `known`: such a requirement would never be checked.
pub fn required(list: &str, known: &[&str]) -> Result<BTreeSet<String>, String> {
    let names = list.split(',').filter(|name| !name.is_empty());
    names
        .map(|name| match known.contains(&name) {
            true => Ok(name.to_owned()),
            false => Err(format!("`{name}` is none of {}", known.join(", "))),
        })
        .collect()
}

fn names(list: &Output) -> Vec<String> {
    text(&list.stdout).lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_requirement_is_an_error() {
        assert!(required("", &DEVICES).unwrap().is_empty());
        assert!(required("cuda,metal", &DEVICES).unwrap().iter().eq(["cuda", "metal"]));
        for name in ["cuda:0", "CUDA", "gpu", "cpu,cuda"] {
            assert!(required(name, &DEVICES).is_err(), "{name}");
        }
    }

    #[test]
    fn an_absent_program_skips_a_case_and_a_required_one_fails_it() {
        let told = "test a ... ok\ntest b ... FAILED\ntest c ... FAILED\n\nfailures:\n\n---- b stdout ----\n\n\
            thread 'b' panicked at tests/b.rs:1:1:\nabsent `gdb`: no such program\n\n---- c stdout ----\n\n\
            thread 'c' panicked at tests/c.rs:1:1:\nassertion failed\n\n";
        let cases = ["a", "b", "c", "d"].map(str::to_owned);
        let found = Outcomes::read(told, &cases, &BTreeSet::new());
        assert_eq!((found.passed, found.failed), (1, vec!["c".to_owned(), "d".to_owned()]));
        assert_eq!(found.skipped["absent `gdb`: no such program"], ["b"]);
        let found = Outcomes::read(told, &cases, &required("gdb", &TOOLS).unwrap());
        assert_eq!((found.failed.len(), found.skipped.len()), (3, 0));
    }
}
