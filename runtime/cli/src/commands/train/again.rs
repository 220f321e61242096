//! The command line that goes on with a run: the one that was given, with the run's name.

use crate::terminal::shell::word;

/// The command that goes on with the run of a name, for a shell: this one again.
pub(super) fn going_on(name: &str) -> String {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    of_words(&typed, name)
}

/// The same of these words.
fn of_words(typed: &[String], name: &str) -> String {
    let mut words = vec!["tunebox"];
    let mut given = typed.iter().map(String::as_str);
    // What follows `--` is no flag.
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
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_goes_on_is_the_one_that_was_given_with_the_name_of_the_run() {
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
            assert_eq!(of_words(&typed, "calm-1"), wanted);
        }
        let typed = ["dev", "my calm", "--set", "train.schedule=\"linear\""].map(str::to_owned);
        let wanted = "tunebox dev 'my calm' --set 'train.schedule=\"linear\"' --resume --name calm-1";
        assert_eq!(of_words(&typed, "calm-1"), wanted);
    }
}
