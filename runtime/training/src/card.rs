//! The model card of a run: `README.md` with its settings, its metrics and how to load the artifact.

use std::fmt::Write;

use serde_json::{Map, Value};
use tunebox_compute::precision::Base;
use tunebox_foundation::printable::printable;
use tunebox_package::Updates;

use crate::outcome::Outcome;
use crate::plan::{PlanSummary, PlannedJudge, PlannedRun};

/// The file's name in a run's folder.
pub(crate) const FILE: &str = "README.md";

/// The most rows of the table of metrics.
const MAX_ROWS: usize = 12;

/// The kind of artifact that a run leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArtifactKind {
    /// A trained adapter.
    Adapter,
    /// A whole model: all weights were trained, or some were edited.
    Model,
    /// Edits of weights, written as an adapter.
    Edits,
    /// Directions only.
    Directions,
    /// Nothing: the method made no update, edit or direction.
    Nothing,
}

/// Returns the Markdown text of a run's card: its settings, metrics, how it ended, and how to load the artifact. `rows`
/// are those of `metrics.jsonl`.
pub(crate) fn card_text(
    plan: &PlannedRun,
    kind: ArtifactKind,
    rows: &[Map<String, Value>],
    outcome: &Outcome,
) -> String {
    let PlanSummary { name, model, method, method_version: version, data, records: count, .. } = &plan.summary;
    let (library, opening, usage) = describe_kind(plan, kind);
    let (properties, table) =
        (properties_table(plan, outcome.steps), metrics_table(plan, rows) + &ending_text(outcome));
    let records = if *count == 1 { "record" } else { "records" };
    let verb = if plan.summary.adapter == "none" { "made" } else { "trained" };
    let (base, model, data) = (yaml_text(model), code_text(model), code_text(data));
    format!(
        "---\nbase_model: {base}\nlibrary_name: {library}\ntags: [tunebox, {method}]\n---\n\n\
         # {name}\n\n{opening} `{model}`, {verb} by the method `{method}` {version} on {count} {records} of `{data}`.\n\
         \n## How it was made\n\n{properties}\
         \n## What was measured\n\n{table}\
         \n## How to use it\n\n{usage}",
    )
}

/// Returns the parts of the card that depend on the kind of artifact: the library that loads it (for model hubs), the
/// beginning of the first sentence, such as `A lora adapter for`, and how to load it, in Markdown.
fn describe_kind(plan: &PlannedRun, kind: ArtifactKind) -> (&'static str, String, String) {
    let (folder, model) = (plan.folder.display(), &plan.summary.model);
    let chat = format!("```sh\ntunebox chat {folder}\n```\n");
    match kind {
        ArtifactKind::Adapter | ArtifactKind::Edits => {
            let adapter = if kind == ArtifactKind::Edits {
                "Edits as an adapter for".to_owned()
            } else {
                format!("A {} adapter for", plan.summary.adapter)
            };
            let base = python_base(model, is_nf4(plan));
            let load = format!("model = PeftModel.from_pretrained(base, {})", quoted_text(&folder.to_string()));
            ("peft", adapter, format!("{chat}\n```python\n{base}{load}\n```\n"))
        }
        ArtifactKind::Model => {
            let weights = if plan.summary.adapter == "full" { "All weights of" } else { "Edited weights of" };
            let load = format!("model = AutoModelForCausalLM.from_pretrained({})", quoted_text(&folder.to_string()));
            let python = format!("from transformers import AutoModelForCausalLM\n\n{load}");
            ("transformers", weights.to_owned(), format!("{chat}\n```python\n{python}\n```\n"))
        }
        ArtifactKind::Directions => {
            let usage =
                format!("{chat}\nAdd `--coefficient -1` to lead the other way; 1 is the vectors as they are.\n");
            ("tunebox", "Directions for".to_owned(), usage)
        }
        ArtifactKind::Nothing => {
            let usage = "There is nothing to load: no step made an update, an edit or a direction.\n";
            ("tunebox", "Nothing for".to_owned(), usage.to_owned())
        }
    }
}

/// Returns a text as a value of YAML: as it is if it has only letters, digits, `_`, `.`, `/` and `-`, else in quotes.
fn yaml_text(text: &str) -> String {
    let is_plain = text.chars().all(|letter| letter.is_alphanumeric() || "_./-".contains(letter));
    if is_plain { text.to_owned() } else { quoted_text(text) }
}

/// Returns a text in double quotes, escaped as JSON, YAML and Python read it.
fn quoted_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns a text that ends no code of Markdown around it: unprintable characters are escaped, and a backtick is `'`.
fn code_text(text: &str) -> String {
    printable(text, usize::MAX).replace('`', "'")
}

/// Returns a text for a cell of a Markdown table, in which it makes no other cell, line, element or link: it may be of
/// the author of a method, or of a run file of others.
fn cell_text(text: &str) -> String {
    printable(text, usize::MAX).replace('|', "\\|").replace('<', "&lt;").replace("](", "]\\(")
}

/// Returns the Markdown table of the method, its settings, the training of `steps` steps and the digests. Escapes
/// values ([`cell_text`]); a missing paper or license is a dash.
fn properties_table(plan: &PlannedRun, steps: u64) -> String {
    let (summary, manifest) = (&plan.summary, &plan.method.package.manifest);
    let mut text = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "| {} | {} |", cell_text(name), cell_text(&value));
    };
    row("method", format!("{} {}: {}", manifest.name, manifest.version, manifest.description));
    row("paper", manifest.paper.clone().unwrap_or_else(|| "–".into()));
    row("license of the method", manifest.license.clone().unwrap_or_else(|| "–".into()));
    for (name, value) in &summary.settings {
        row(&format!("`{name}`"), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    if !matches!(summary.adapter.as_str(), "full" | "none") {
        row("adapter", format!("{}, rank {}", summary.adapter, summary.rank));
    }
    if !summary.modules_to_save.is_empty() {
        row("trained whole", summary.modules_to_save.join(", "));
    }
    let share = 100.0 * summary.trainable as f64 / summary.parameters.max(1) as f64;
    row("trained", format!("{} of {} parameters ({share:.2} %)", summary.trainable, summary.parameters));
    row("steps", format!("{steps} of {} × {} examples", summary.accumulation, summary.batch));
    row("rate", format!("{:e}, schedule {}", summary.rate, summary.schedule));
    let is_own = manifest.update == Updates::Method;
    row("optimizer", if is_own { "the method's own".into() } else { plan.optimizer.to_string() });
    let quantized = match plan.settings.file.model.precision {
        Base::Stored => None,
        Base::Nf4 => Some("NF4 with double quantization"),
        Base::Q8_0 => Some("Q8_0 of GGUF"),
    };
    if let Some(format) = quantized {
        row("base", format!("matrices of the blocks in {format}, computed from the model's weights"));
    }
    row("seed", plan.settings.file.train.seed.to_string());
    row("device", summary.device.clone());
    row("model, SHA-256", format!("`{}`", plan.identity.model));
    for (table, digest) in plan.settings.file.teacher.iter().zip(&plan.identity.teachers) {
        row(&format!("teacher `{}`, SHA-256", table.name), format!("`{digest}`"));
    }
    row("data, SHA-256", format!("`{}`", plan.identity.data));
    row("method, SHA-256", format!("`{}`", plan.identity.method));
    for verifier in &plan.verifiers {
        if let PlannedJudge::Model(reward) = &verifier.judge {
            let name = reward.source.name();
            row(&format!("reward model `{}`, SHA-256", verifier.name), format!("`{}` (`{name}`)", reward.digest));
        }
    }
    if let Some(environment) = &plan.environment {
        let (name, version) = (&environment.name, &environment.package.manifest.version);
        row("environment", format!("{name} {version}, at most {} turns", environment.table.max_turns));
        row("environment, SHA-256", format!("`{}`", environment.package.digest));
    }
    row("made with", format!("tunebox {}", env!("CARGO_PKG_VERSION")));
    text
}

/// The Markdown table of at most 13 steps, evenly spaced but for the last, with the metrics of the manifest that some
/// step reported, and the gradient norm; then the first and last validation loss, the last usage of limits, and the
/// closing metrics, as far as `rows` have them.
fn metrics_table(plan: &PlannedRun, rows: &[Map<String, Value>]) -> String {
    let steps: Vec<_> = rows.iter().filter(|row| row.contains_key("rate")).collect();
    let reported = |name: &&String| steps.iter().any(|row| row.contains_key(name.as_str()));
    let metrics: Vec<&str> = plan.method.package.manifest.metrics.iter().filter(reported).map(String::as_str).collect();
    let heads: Vec<&str> = ["step"].into_iter().chain(metrics.iter().copied()).chain(["gradient norm"]).collect();
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---:|".repeat(heads.len()));
    let every = steps.len().div_ceil(MAX_ROWS).max(1);
    let last = steps.len().saturating_sub(1);
    for (_, row) in steps.iter().enumerate().filter(|(index, _)| index % every == 0 || *index == last) {
        let names = metrics.iter().copied().chain(["gradient-norm"]);
        let cells: Vec<String> = names.map(|name| format_number(row.get(name))).collect();
        let _ = writeln!(text, "| {} | {} |", row["step"], cells.join(" | "));
    }
    let looks: Vec<_> = rows.iter().filter_map(|row| Some((&row["step"], row.get("validation-loss")?))).collect();
    if let (Some((first, before)), Some((last, after))) = (looks.first(), looks.last()) {
        let (before, after) = (format_number(Some(before)), format_number(Some(after)));
        let _ = writeln!(text, "\nValidation loss: {before} at step {first}, {after} at step {last}.");
    }
    if let Some(used) = rows.iter().rev().find_map(|row| row.get("used")) {
        let _ = write!(text, "\n{}\n", usage_sentence(used));
    }
    for row in rows.iter().filter(|row| row.contains_key("closing")) {
        let _ = writeln!(text, "\n| at the end | |\n|---|---:|");
        for (name, value) in row.iter().filter(|(name, _)| !matches!(name.as_str(), "closing" | "step")) {
            let _ = writeln!(text, "| {name} | {} |", format_number(Some(value)));
        }
    }
    text
}

/// Describes how the run ended, one paragraph for each sentence of [`Outcome::sentences`]. Adds a hint with the setting
/// of a longer run if the loss was still falling at the end. Returns an empty text if there is nothing to say.
fn ending_text(outcome: &Outcome) -> String {
    let longer = outcome
        .longer
        .as_ref()
        .map(|setting| format!("The loss was still falling at the end: a longer run (`{setting}`) may be better."));
    outcome.sentences().into_iter().chain(longer).map(|sentence| format!("\n{sentence}\n")).collect()
}

/// Describes the method's usage of its limits in two sentences. `used` is the value of the key `used` in a metrics row;
/// missing numbers count as 0.
fn usage_sentence(used: &Value) -> String {
    let whole = |value: &Value| value.as_u64().unwrap_or(0);
    let seconds = |value: &Value| value.as_f64().unwrap_or(0.0);
    let total = &used["total"];
    format!(
        "The method made {} calls to the host in {} calls of its own, {} passes through the model among them; it computed for {:.3} s \
         itself and the host {:.1} s for it. At once it held at most {} tensors of {} bytes.",
        whole(&total["host-calls"]),
        whole(&used["calls"]),
        whole(&total["passes"]),
        seconds(&total["guest-seconds"]),
        seconds(&total["host-seconds"]),
        whole(&used["peak-tensors"]),
        whole(&used["peak-device-bytes"])
    )
}

/// Formats a JSON number with four decimals; `–` if the value is missing or no number.
fn format_number(value: Option<&Value>) -> String {
    value.and_then(Value::as_f64).map_or("–".into(), |value| format!("{value:.4}"))
}

/// Returns the Python code that imports PEFT and loads the base model `model` into `base`; with `nf4`, quantized to NF4
/// by bitsandbytes.
fn python_base(model: &str, nf4: bool) -> String {
    const NF4: &str =
        "nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant=True)\n";
    let (import, setup, option) =
        if nf4 { (", BitsAndBytesConfig", NF4, ", quantization_config=nf4") } else { ("", "", "") };
    format!(
        "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM{import}\n\n\
         {setup}base = AutoModelForCausalLM.from_pretrained({}{option})\n",
        quoted_text(model)
    )
}

/// Whether `model.precision` of the run is NF4.
fn is_nf4(plan: &PlannedRun) -> bool {
    plan.settings.file.model.precision == Base::Nf4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_change_nothing_of_the_card_around_them() {
        assert_eq!(
            (yaml_text("Qwen/Qwen2.5-0.5B"), yaml_text("m\nlicense: mit")),
            ("Qwen/Qwen2.5-0.5B".into(), "\"m\\nlicense: mit\"".into())
        );
        assert_eq!(quoted_text("m\")\nimport os"), "\"m\\\")\\nimport os\"");
        assert_eq!(code_text("d`\n# Other"), "d'\\u{a}# Other");
        assert_eq!(cell_text("a|b\n<img src=x> ![x](y) https://z"), "a\\|b\\u{a}&lt;img src=x> ![x]\\(y) https://z");
    }
}
