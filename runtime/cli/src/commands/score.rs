//! `tunebox score`: prints the log-probability of each token of a text, of token ids, or of the lines of a file.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tunebox_compute::fused::{Tap, TapSet};
use tunebox_foundation::files;
use tunebox_model::{Rows, View};

use crate::access::Access;
use crate::arguments::Global;
use crate::model::{LoadedModel, ModelOptions};
use crate::steering::SteeringOptions;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Score {
    #[command(flatten)]
    model: ModelOptions,
    /// Score this text
    #[arg(long, conflicts_with_all = ["ids", "file"])]
    text: Option<String>,
    /// Score these token ids, separated by commas
    #[arg(long, conflicts_with = "file", value_delimiter = ',')]
    ids: Option<Vec<u32>>,
    /// Score each line of this file of at most 64 MiB: plain text, or JSON with `text` or `ids`
    #[arg(long)]
    file: Option<PathBuf>,
}

/// Token ids to score, with their text if they were encoded from one.
struct Item {
    text: Option<String>,
    ids: Vec<u32>,
}

impl Score {
    /// Fetches the model and returns the files that the command reads; `None` if it computes on an accelerator. Fails
    /// if the file of `--file` cannot be opened.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        if let Some(path) = &self.file {
            files::open(path)?;
        }
        let access = self.model.prepare(global)?;
        Ok(access.map(|mut access| {
            access.read.extend(self.file.clone());
            access
        }))
    }

    /// Scores each text and prints a table, or one JSON object for each. Fails at the first text of fewer than two
    /// tokens or more than the model's window; those before it are printed.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut loaded = self.model.load(terminal, global)?;
        SteeringOptions::default().add_vectors(terminal, &mut loaded)?;
        let window = loaded.policy.model().configuration.max_positions;
        for (number, item) in self.read_items(&loaded)?.into_iter().enumerate() {
            check_length(number + 1, item.ids.len(), window)?;
            let logprobs = score_ids(&loaded, &item.ids)?;
            if !terminal.json {
                print_table(terminal, &loaded, &item.ids, &logprobs)?;
            }
            terminal.event(json!({ "text": item.text, "ids": item.ids, "logprobs": logprobs }));
        }
        Ok(ExitStatus::Success)
    }

    /// Reads what to score from `--text`, `--ids` or the non-blank lines of `--file`, and encodes texts with the
    /// model's tokenizer. Fails if none of the three is given.
    fn read_items(&self, loaded: &LoadedModel) -> Result<Vec<Item>, Failure> {
        let encode = |text: String| -> Result<Item, Failure> {
            let ids = loaded.policy.model().tokenizer()?.encode(&text, true)?;
            Ok(Item { text: Some(text), ids })
        };
        match (&self.text, &self.ids, &self.file) {
            (Some(text), ..) => Ok(vec![encode(text.clone())?]),
            (_, Some(ids), _) => Ok(vec![Item { text: None, ids: ids.clone() }]),
            (.., Some(path)) => {
                let content = files::read_text(path)?;
                content.lines().filter(|line| !line.trim().is_empty()).map(|line| parse_line(line, encode)).collect()
            }
            _ => Err(Failure::usage("there is nothing to score", "give `--text`, `--ids` or `--file`")),
        }
    }
}

/// Fails unless entry `number`, counted from 1, has at least two `tokens` and at most `window`, the most that the model
/// was made for, since the time of a row grows with the square of its length.
fn check_length(number: usize, tokens: usize, window: usize) -> Result<(), Failure> {
    let (what, hint) = match tokens {
        0 | 1 => (
            format!("entry {number} has {tokens} tokens"),
            "a token's log-probability needs a token before it; give at least two",
        ),
        _ if tokens > window => (
            format!("entry {number} has {tokens} tokens, the model takes {window}"),
            "score it in parts, each of at most that many tokens",
        ),
        _ => return Ok(()),
    };
    Err(Failure::usage(what, hint))
}

/// Parses one line of `--file`: a JSON object with `ids` or else `text`, or plain text. Texts are encoded with
/// `encode`. Fails for an object with neither.
fn parse_line(line: &str, encode: impl Fn(String) -> Result<Item, Failure>) -> Result<Item, Failure> {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(line) else {
        return encode(line.to_owned());
    };
    if let Some(ids) = object.get("ids") {
        let ids = serde_json::from_value(ids.clone()).map_err(|error| {
            Failure::usage(format!("`ids` is not a list of token ids: {error}"), "write `{\"ids\": [1, 2, 3]}`")
        })?;
        return Ok(Item { text: None, ids });
    }
    match object.get("text").and_then(|text| text.as_str()) {
        Some(text) => encode(text.to_owned()),
        None => Err(Failure::usage("a JSON line has neither `text` nor `ids`", "write `{\"text\": \"…\"}`")),
    }
}

/// Computes the log-probability, in nats, of each token after the first, given the tokens before it. `ids` has at least
/// two entries.
fn score_ids(loaded: &LoadedModel, ids: &[u32]) -> Result<Vec<f32>, Failure> {
    let mut targets = vec![true; ids.len()];
    targets[0] = false;
    let rows = Arc::new(Rows::new(vec![ids.to_vec()], vec![targets])?);
    let scored = loaded.policy.score(&View::Policy, &rows, TapSet::default(), 1.0, false)?;
    let row = scored
        .tap(Tap::Logprob)?
        .flatten_all()
        .and_then(|row| row.to_vec1::<f32>())
        .map_err(tunebox_compute::Error::from)?;
    Ok(row[1..].to_vec())
}

/// Prints log-probability, id and text of each token (no log-probability for the first), then their sum and the
/// perplexity. The text is empty if the model has no tokenizer.
fn print_table(terminal: Terminal, loaded: &LoadedModel, ids: &[u32], logprobs: &[f32]) -> Result<(), Failure> {
    for (i, id) in ids.iter().enumerate() {
        let piece = match loaded.policy.model().tokenizer() {
            Ok(tokenizer) => format!("{:?}", tokenizer.decode(&[*id], false)?),
            Err(_) => String::new(),
        };
        let number = if i == 0 { String::new() } else { format!("{:.4}", logprobs[i - 1]) };
        terminal.print_line(format!("{number:>10}  {id:>7}  {piece}"));
    }
    let sum: f64 = logprobs.iter().map(|value| f64::from(*value)).sum();
    let mean = sum / logprobs.len() as f64;
    terminal.print_line(format!("{sum:>10.4}  sum over {} tokens, perplexity {:.3}", logprobs.len(), (-mean).exp()));
    Ok(())
}
