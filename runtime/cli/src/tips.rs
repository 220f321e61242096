//! Tips about commands and flags that this program does not have and other trainers do: what to type instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tunebox_package::builtin;
use tunebox_training::configuration::{find_advice, find_meant_key, find_meant_value, key_schema};

use crate::arguments::OPTION_KEYS;
use crate::command_line::flag_value;
use crate::key_flags::flag_of_key;

/// Commands that take keys of a run file by `--set`.
const COMMANDS_WITH_SET: [&str; 4] = ["train", "run", "dev", "check"];

/// Tips for commands of other trainers, with the names of these commands.
const COMMANDS: &[(&str, &[&str])] = &[
    (
        "'tunebox train' trains, with the method of '--method'",
        &["finetune", "fine-tune", "sft", "pretrain", "tune", "pt"],
    ),
    (
        "'tunebox export RUN --to hf --out FOLDER' merges an adapter into its model",
        &["merge", "merge-lora", "fuse", "merge-sharded-fsdp-weights"],
    ),
    (
        "'tunebox export RUN --to gguf --type q4_k_m --out FILE.gguf' writes a quantized model",
        &["quantize", "convert", "gguf", "save"],
    ),
    (
        "there is no server: 'tunebox chat RUN' answers here, and 'tunebox export RUN --to ollama' or '--to hf' writes \
         what Ollama or vLLM serve",
        &["serve", "server", "api", "vllm-serve", "deploy"],
    ),
    ("'tunebox eval RUN --data FILE' measures a run", &["evaluate", "evaluation", "test-model"]),
    (
        "'tunebox export RUN --to hf --out FOLDER' writes a folder that lm-evaluation-harness reads",
        &["lm-eval", "lm_eval", "harness"],
    ),
    ("'tunebox generate RUN PROMPT' prints an answer", &["inference", "infer", "predict", "complete"]),
    (
        "data needs no preparation: 'tunebox data FILE --model MODEL' shows what is learned of it",
        &["preprocess", "prepare", "tokenize"],
    ),
    (
        "'tunebox train --open' shows the run in a browser; settings are in a file, which 'tunebox init' writes",
        &["ui", "webui", "webchat", "gui", "board", "studio"],
    ),
    ("models and data on the hub are fetched when a command names them", &["download", "fetch"]),
    ("the access token of the hub is the variable HF_TOKEN", &["login"]),
    ("'tunebox doctor' shows devices and tools", &["env", "info"]),
    ("'tunebox --version' prints it", &["version"]),
];

/// Tips for flags of other trainers that no key of a run file stands for: commands, the flags, and the tip.
const FLAGS: &[(&[&str], &[&str], &str)] = &[
    (&["train", "run"], &["--config", "--config-file", "--cfg"], "a run file is no option: 'tunebox train FILE'"),
    (
        &["check"],
        &["--model", "--data", "--method", "--precision", "--name", "--sample"],
        "'tunebox train --dry-run' checks a run that is described by options",
    ),
    (&["generate"], &["--prompt", "-p"], "the prompt is no option: 'tunebox generate MODEL PROMPT'"),
    (
        &["eval"],
        &["--task", "--tasks", "--benchmark"],
        "'tunebox export RUN --to hf --out FOLDER' writes a folder for lm-evaluation-harness, which has such tasks",
    ),
    (&["init"], &["--out", "--output", "-o"], "the file is no option: 'tunebox init FILE'"),
];

/// Replaces clap's suggestion in the error about a command, a flag or a format of `export` that other trainers have, by
/// what to type instead: the flag that sets a key, else how `--set` sets it, with the flag's value if one is given.
/// `words` are the words of the command line. Returns any other error unchanged.
pub(crate) fn add_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => command_tip(&text(ContextKind::InvalidSubcommand)),
        ErrorKind::UnknownArgument => flag_tip(&text(ContextKind::InvalidArg), words),
        ErrorKind::InvalidValue if text(ContextKind::InvalidArg).starts_with("--to ") => {
            format_tip(&text(ContextKind::InvalidValue))
        }
        _ => None,
    };
    let Some(tip) = tip else { return error };
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue] {
        error.remove(kind);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// The tip about a word that is no command: for a command or a key of another trainer, a method, and a run file.
fn command_tip(word: &str) -> Option<String> {
    if [".toml", ".yaml", ".yml"].iter().any(|ending| word.ends_with(ending)) {
        return Some(format!("'tunebox train {word}' trains as a run file describes"));
    }
    if builtin::find(word).is_some() {
        return Some(format!("'tunebox train --method {word}' trains with this method"));
    }
    let tip = COMMANDS.iter().find(|(_, names)| names.contains(&word)).map(|(tip, _)| *tip);
    tip.or_else(|| find_advice(word)).map(str::to_owned)
}

/// The tip about a flag that a command does not have: for one of [`FLAGS`]; and of a command that takes `--set`, for
/// one that means a key of the run file, also by its name in another trainer, or that no key stands for.
fn flag_tip(flag: &str, words: &[String]) -> Option<String> {
    let has = |commands: &[&str]| words.iter().any(|word| commands.contains(&word.as_str()));
    if let Some((.., tip)) = FLAGS.iter().find(|(commands, flags, _)| has(commands) && flags.contains(&flag)) {
        return Some((*tip).to_owned());
    }
    let name = flag.strip_prefix("--").filter(|_| has(&COMMANDS_WITH_SET))?;
    let Some(key) = find_meant_key(name) else { return find_advice(name).map(str::to_owned) };
    let is_switch = key_schema(&key)["type"] == "boolean";
    let given = flag_value(words, flag).unwrap_or(if is_switch { "true" } else { "…" });
    let value = find_meant_value(name).unwrap_or(given);
    let option = OPTION_KEYS.iter().find(|(_, own)| *own == key && has(&["train", "run"]));
    Some(match option.map(|(option, _)| (*option).to_owned()).or_else(|| flag_of_key(&key)) {
        Some(own) => format!("it is called '{own} {value}' here"),
        None => format!("it is a key of the run file: '--set {key}={value}'"),
    })
}

/// The tip about a format that `export` does not write, if it is another name of one that it writes.
fn format_tip(format: &str) -> Option<String> {
    match format {
        "merged" | "safetensors" | "transformers" | "vllm" | "sglang" | "16bit" => {
            Some("'--to hf' writes the merged model as such a folder".to_owned())
        }
        "lora" | "adapter" => Some("'--to peft' writes the adapter alone".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::CommandLine;

    /// The message of the error about a command line.
    fn error(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        add_tip(CommandLine::try_parse_from(&words).unwrap_err(), &words).to_string()
    }

    #[test]
    fn a_flag_that_is_a_key_of_the_run_file_gets_a_tip_about_set() {
        let tip = "tip: it is a key of the run file: '--set train.clip=5'";
        assert!(error("tunebox train --sample --clip 5").contains(tip));
        assert!(error("tunebox train --sample --clip=5").contains(tip));
        assert!(!error("tunebox list --clip 5").contains("--set"));
        assert!(error("tunebox train --sample --max-grad-norm 5").contains(tip), "its name in another trainer");
        let own = "tip: it is called '--rate 1e-4' here";
        assert!(error("tunebox check --learning_rate 1e-4").contains(own));
        assert!(error("tunebox train --mehtod dpo").contains("'--method'"));
    }

    #[test]
    fn a_switch_of_another_trainer_gets_the_value_that_it_stands_for() {
        let tip = |words: &str, tip: &str| assert!(error(words).contains(tip), "{}", error(words));
        tip("tunebox train --load_in_4bit", "'--precision nf4'");
        tip("tunebox train --load-in-4bit true", "'--precision nf4'");
        tip("tunebox train --gradient-checkpointing", "'--set train.recompute=true'");
        tip("tunebox train --dataset a.jsonl", "'--data a.jsonl'");
        tip("tunebox check --dataset a.jsonl", "'--set data.path=a.jsonl'");
    }

    #[test]
    fn a_flag_that_no_key_stands_for_gets_what_to_do_instead() {
        let tip = |words: &str, tip: &str| assert!(error(words).contains(tip), "{}", error(words));
        tip("tunebox train --flash_attn fa2", "there is nothing to choose");
        tip("tunebox train --config a.toml", "'tunebox train FILE'");
        tip("tunebox check --model m", "'tunebox train --dry-run'");
        tip("tunebox generate m --prompt Hi", "'tunebox generate MODEL PROMPT'");
        tip("tunebox export m --to vllm --out x", "'--to hf'");
    }

    #[test]
    fn a_command_of_another_trainer_gets_what_to_type_instead() {
        let tip = |words: &str, tip: &str| assert!(error(words).contains(tip), "{}", error(words));
        tip("tunebox merge runs/a", "'tunebox export RUN --to hf --out FOLDER'");
        tip("tunebox serve runs/a", "there is no server");
        tip("tunebox dpo a.jsonl", "'tunebox train --method dpo'");
        tip("tunebox run.toml", "'tunebox train run.toml'");
        tip("tunebox tran", "'train'");
    }

    #[test]
    fn no_tip_is_about_a_command_that_exists() {
        use clap::CommandFactory;
        let own = CommandLine::command();
        for name in COMMANDS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(own.find_subcommand(name).is_none(), "`{name}` is a command");
        }
    }
}
