//! Parsing of the command line: clap, plus a method's settings in `--help`, tips, and errors as JSON.

use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;
use tunebox_foundation::explain::Exit;
use tunebox_package::Reference;

use crate::commands::CommandLine;
use crate::package::describe::describe_settings;
use crate::terminal::{Failure, Terminal, escape};
use crate::tips::add_tip;

/// Parses the arguments of the process. Prints and exits the process for `--help`, `--version` and wrong arguments,
/// which with `--json` are an event on stdout as other errors are. Help with `--method` also lists the settings of that
/// method.
pub(crate) fn parse() -> CommandLine {
    let words: Vec<String> = std::env::args_os().map(|word| escape(&word.to_string_lossy())).collect();
    CommandLine::try_parse().unwrap_or_else(|error| {
        // The text of an error repeats words, which may hold characters that act on a terminal.
        let error = CommandLine::try_parse_from(&words).err().unwrap_or(error);
        if error.kind() == ErrorKind::DisplayHelp
            && let Some(settings) = settings_help(&words)
        {
            let _ = error.print();
            Terminal { json: false, quiet: false, verbose: false }.print_rows(&format!("\n{}", escape(&settings)));
            std::process::exit(0);
        }
        let error = add_tip(error, &words);
        if error.use_stderr() && words.iter().any(|word| word == "--json") {
            failure_of(&error).show(Terminal { json: true, quiet: false, verbose: false });
            std::process::exit(Exit::Usage as i32);
        }
        error.exit()
    })
}

/// Describes the settings of the method that a command line names with `--method`, for its help. Returns a message if
/// the method has no settings or cannot be read, and `None` without `--method`.
fn settings_help(words: &[String]) -> Option<String> {
    let method = flag_value(words, "--method")?;
    let base = Path::new(flag_value(words, "-C").unwrap_or("."));
    Some(match Reference::parse(method, base).and_then(|reference| reference.open()) {
        Ok(package) if package.manifest.settings.is_empty() => format!("`{method}` has no settings"),
        Ok(package) => {
            let title =
                format!("Settings of `{method}`, set by `--set method.NAME=VALUE` or `[method]` of a run file:");
            describe_settings(&title, &package.manifest).join("\n")
        }
        Err(error) => format!("the settings of `{method}` cannot be read: {error}"),
    })
}

/// Converts clap's error about the command line: its first paragraph says what is wrong, its tips or else its usage
/// what to do.
fn failure_of(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::MissingSubcommand {
        return Failure::usage("a command is missing", "`tunebox --help` lists the commands");
    }
    let text = error.render().to_string();
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = parts.next().unwrap_or_default();
    let rest: Vec<String> = parts.collect();
    let tips = rest.iter().find_map(|part| part.strip_prefix("tip: ")).map(|tips| tips.replace(" tip: ", "; "));
    let usage = rest.iter().find_map(|part| part.strip_prefix("Usage: ")).map(|usage| format!("usage: `{usage}`"));
    Failure::usage(what.trim_start_matches("error: "), tips.or(usage).unwrap_or_else(|| "try `--help`".to_owned()))
}

/// Returns the value of a flag on a command line: what follows the first `flag=`, else the word after `flag`, unless
/// that word begins with `-`. `None` if there is neither.
pub(crate) fn flag_value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let joined = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    let next = words.iter().skip_while(|word| *word != flag).nth(1);
    joined.or(next.map(String::as_str).filter(|word| !word.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(words: &str) -> Vec<String> {
        words.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_error_of_clap_says_what_is_wrong_and_what_to_do() {
        let told = |words: &str| {
            let words = split(words);
            let event = failure_of(&add_tip(CommandLine::try_parse_from(&words).unwrap_err(), &words)).json();
            assert_eq!(
                (&event["event"], &event["area"], &event["exit"]),
                (&"error".into(), &"usage".into(), &2.into())
            );
            (event["what"].as_str().unwrap().to_owned(), event["hint"].as_str().unwrap().to_owned())
        };
        let (what, hint) = told("tunebox train --json --clip 5");
        assert_eq!(what, "unexpected argument '--clip' found");
        assert_eq!(hint, "it is a key of the run file: '--set train.clip=5'");
        let (what, hint) = told("tunebox report --json");
        assert_eq!(what, "the following required arguments were not provided: <RUN>");
        assert!(hint.starts_with("usage: `tunebox report ") && hint.contains("<RUN>"), "{hint}");
        assert!(told("tunebox tran --json").1.contains("'train'"));
        assert!(told("tunebox new a --json --kind b").0.ends_with("[possible values: method, verifier, environment]"));
        assert_eq!(told("tunebox --json").0, "a command is missing");
    }

    #[test]
    fn the_error_of_an_argument_has_no_characters_that_act_on_a_terminal() {
        let word = escape("--st\u{202e}eps\u{1b}[2J");
        let error = CommandLine::try_parse_from(["tunebox", "train", &word]).unwrap_err().to_string();
        assert!(error.contains(r"--st\u{202e}eps\u{1b}[2J") && !error.contains(['\u{202e}', '\u{1b}']), "{error}");
    }

    #[test]
    fn help_with_a_method_lists_its_settings() {
        let settings = |words: &str| settings_help(&split(words));
        for words in ["tunebox train --method orpo --help", "tunebox train --help --method=orpo"] {
            let help = settings(words).unwrap();
            assert!(help.contains("beta  The weight of the odds term") && help.contains("at least 0"), "{help}");
        }
        assert!(settings("tunebox train --method orpoo --help").unwrap().contains("cannot be read"));
        assert_eq!(settings("tunebox train --help"), None);
    }
}
