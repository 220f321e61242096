//! The command that resumes a stopped run.

use crate::terminal::shell::quote;

/// The command that resumes the run `name`: the one that was typed, with `--resume --name NAME`, quoted for a shell.
pub(super) fn resume_command(name: &str) -> String {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    with_resume(&typed, name)
}

/// Returns a command line with its `--name` and `--resume` removed and `--resume --name NAME` added, before any `--`.
/// Each word is quoted for a shell; `typed` excludes the program's name.
fn with_resume(typed: &[String], name: &str) -> String {
    let mut words = vec!["tunebox"];
    let mut given = typed.iter().map(String::as_str);
    // Words after `--` are not flags.
    let rest: Vec<&str> = loop {
        match given.next() {
            None => break Vec::new(),
            Some("--") => break std::iter::once("--").chain(given).collect(),
            Some("--resume") => {}
            Some("--name") => {
                given.next();
            }
            Some(word) if word.starts_with("--name=") => {}
            Some(word) => words.push(word),
        }
    };
    words.extend(["--resume", "--name", name]);
    words.extend(rest);
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resume_command_is_the_typed_one_with_the_name_of_the_run() {
        for (given, wanted) in [
            ("dev calm", "tunebox dev calm --resume --name calm-1"),
            ("dev calm --name a", "tunebox dev calm --resume --name calm-1"),
            (
                "dev --name=a --resume calm --set train.rate=1e-4",
                "tunebox dev calm --set train.rate=1e-4 --resume --name calm-1",
            ),
            ("train --sample --method=dpo", "tunebox train --sample --method=dpo --resume --name calm-1"),
            ("-C work dev --json -- calm", "tunebox -C work dev --json --resume --name calm-1 -- calm"),
        ] {
            let typed: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(with_resume(&typed, "calm-1"), wanted);
        }
        let typed = ["dev", "my calm", "--set", "train.schedule=\"linear\""].map(str::to_owned);
        let wanted = "tunebox dev 'my calm' --set 'train.schedule=\"linear\"' --resume --name calm-1";
        assert_eq!(with_resume(&typed, "calm-1"), wanted);
    }
}
