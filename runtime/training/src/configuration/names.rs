//! Names that other trainers give to settings, and the hints about unknown keys.
//!
//! A name is compared in lower case, with `-` for `_`.

use serde_json::{Map, Value};
use tunebox_foundation::nearest::nearest;

use super::check::{find_key, suggest};

/// The dotted keys of settings, each with its names in other trainers: transformers, PEFT, TRL, axolotl, LLaMA-Factory,
/// torchtune and mlx-lm.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("model.path", &["model-name-or-path", "model-name", "model-id", "base-model", "pretrained-model", "checkpoint"]),
    ("model.reference", &["ref-model", "reference-model", "ref-model-path"]),
    ("model.adapter", &["adapter-path", "adapter-name-or-path", "lora-model-dir", "resume-adapter-file"]),
    (
        "model.precision",
        &["load-in-4bit", "load-in-4-bit", "quantization", "quantization-bit", "bnb-4bit-quant-type", "load-in-8bit"],
    ),
    ("model.revision", &["model-revision", "revision-of-model"]),
    ("data.files", &["interleave-probs", "mix-strategy", "dataset-mixer", "dataset-weights"]),
    ("data.path", &["dataset", "datasets", "dataset-path", "dataset-name", "train-file", "train-data", "data-path"]),
    (
        "data.validation",
        &["eval-dataset", "validation-file", "val-data", "valid-data", "eval-data", "eval-file", "test-datasets"],
    ),
    (
        "data.max-length",
        &[
            "max-seq-length",
            "max-seq-len",
            "seq-length",
            "seq-len",
            "sequence-len",
            "sequence-length",
            "cutoff-len",
            "max-len",
            "model-max-length",
            "block-size",
            "context-length",
            "max-tokens-per-example",
        ],
    ),
    ("data.packing", &["sample-packing", "pack", "packed"]),
    ("train.steps", &["max-steps", "num-steps", "total-steps", "num-train-steps", "iters", "num-iters", "max-iters"]),
    ("train.epochs", &["num-train-epochs", "num-epochs", "n-epochs", "max-epochs", "epoch"]),
    (
        "train.batch",
        &[
            "per-device-train-batch-size",
            "per-device-batch-size",
            "train-batch-size",
            "micro-batch-size",
            "batch-size",
            "mini-batch-size",
        ],
    ),
    (
        "train.accumulation",
        &["gradient-accumulation-steps", "grad-accumulation-steps", "grad-accum", "accumulation-steps", "accumulate"],
    ),
    ("train.optimizer", &["optim", "optimizer-type", "optimizer-name"]),
    ("train.rate", &["learning-rate", "lr", "peak-lr", "base-lr", "step-size"]),
    (
        "train.schedule",
        &["lr-scheduler-type", "lr-scheduler", "lr-schedule", "scheduler", "learning-rate-schedule", "min-lr-rate"],
    ),
    ("train.warmup", &["warmup-steps", "num-warmup-steps", "warmup-ratio", "warmup-iters", "lr-warmup-steps"]),
    ("train.min-rate", &["min-lr", "min-learning-rate", "lr-end", "eta-min"]),
    ("train.weight-decay", &["wd", "decay"]),
    ("train.beta1", &["adam-beta1", "adam-beta-1"]),
    ("train.beta2", &["adam-beta2", "adam-beta-2"]),
    ("train.epsilon", &["adam-epsilon", "adam-eps", "eps"]),
    ("train.b-rate-ratio", &["loraplus-lr-ratio", "lora-plus-lr-ratio"]),
    ("train.neftune-alpha", &["neftune-noise-alpha", "neftune"]),
    ("train.clip", &["max-grad-norm", "gradient-clipping", "grad-clip", "clip-grad-norm", "max-norm"]),
    ("train.seed", &["random-seed", "data-seed", "manual-seed"]),
    ("train.save-every", &["save-steps", "save-interval", "saves-per-epoch"]),
    ("train.keep", &["save-total-limit", "keep-last"]),
    ("train.log-every", &["logging-steps", "log-steps", "log-interval", "steps-per-report"]),
    ("train.validate-every", &["eval-steps", "steps-per-eval", "eval-interval", "evals-per-epoch"]),
    (
        "train.recompute",
        &["gradient-checkpointing", "activation-checkpointing", "use-gradient-checkpointing", "grad-checkpoint"],
    ),
    ("train.device", &["device-map", "accelerator"]),
    ("train.compute", &["bf16", "fp16", "mixed-precision", "torch-dtype", "dtype"]),
    ("train.adapter.kind", &["use-dora", "use-rslora", "peft-type", "fine-tune-type", "finetuning-type"]),
    ("train.adapter.rank", &["lora-r", "lora-rank", "lora-dim", "r"]),
    ("train.adapter.alpha", &["lora-alpha", "lora-scale"]),
    ("train.adapter.dropout", &["lora-dropout"]),
    ("train.adapter.targets", &["target-modules", "lora-target-modules", "lora-target", "lora-modules"]),
    ("train.adapter.initialize", &["init-lora-weights", "pissa-init"]),
    ("train.adapter.target-pattern", &["target-regex", "target-modules-regex"]),
    ("train.adapter.modules-to-save", &["lora-modules-to-save", "additional-target", "trainable-modules"]),
    ("train.adapter.layers", &["layers-to-transform", "lora-layers", "num-layers"]),
    ("run.folder", &["output-dir", "out-dir", "output", "save-path", "logging-dir"]),
    ("run.name", &["run-name", "experiment-name", "run-id"]),
    ("run.tensorboard", &["report-to", "use-tensorboard", "log-with", "metric-logger"]),
    ("method.max-tokens", &["max-new-tokens", "max-completion-length", "max-response-length", "response-length"]),
    ("method.completions", &["num-generations", "num-return-sequences", "group-size", "rollouts-per-prompt"]),
];

/// Finds the dotted key of the setting that a user means by `name`, such as `train.rate` for `learning_rate`. `name`
/// may be another trainer's name, or the last part of a key in any table but `[[verifier]]`. Ignores case, and reads
/// `_` as `-`. Returns `None` if no setting is known by this name. A returned key that begins with `method.` exists in
/// some methods only.
#[must_use]
pub fn find_meant_key(name: &str) -> Option<String> {
    let name = name.to_lowercase().replace('_', "-");
    let synonym = SYNONYMS.iter().find(|(_, names)| names.contains(&name.as_str()));
    synonym.map(|(key, _)| (*key).to_owned()).or_else(|| find_key(&name))
}

/// Returns the hint about the unknown key `name` of the table with the dotted key `table` (empty for the whole file),
/// whose known keys are `properties`: the meant setting ([`find_meant_key`]), else the most similar key of the table,
/// else all its keys.
pub(super) fn unknown_key_hint(table: &str, name: &str, properties: &Map<String, Value>) -> String {
    if let Some(hint) = meant_key_hint(table, name) {
        return hint;
    }
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    match nearest(name, known.iter().copied()) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None if table.is_empty() => suggest(name, &known, "tables"),
        None => suggest(name, &known, &format!("keys of `[{table}]`")),
    }
}

/// Returns the hint about `name`, a key that the table with the dotted key `table` does not have, if [`find_meant_key`]
/// knows which setting is meant. The hint names the table of that setting if it is another one.
pub(crate) fn meant_key_hint(table: &str, name: &str) -> Option<String> {
    let key = find_meant_key(name)?;
    let (own, last) = key.rsplit_once('.')?;
    Some(if own == table { format!("did you mean `{last}`?") } else { format!("did you mean `{last}` of `[{own}]`?") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_of_another_trainer_means_one_key_that_exists_and_is_no_key_itself() {
        let mut seen = BTreeSet::new();
        for (key, names) in SYNONYMS {
            let pointer = key.split('.').map(|part| format!("/properties/{part}")).collect::<String>();
            let exists = crate::configuration::schema().pointer(&pointer).is_some();
            assert!(exists || key.starts_with("method."), "`{key}` does not exist");
            for name in *names {
                assert!(seen.insert(name), "`{name}` means two keys");
                assert_eq!(find_key(name), None, "`{name}` is a key");
            }
        }
    }

    #[test]
    fn a_name_is_found_in_the_spelling_of_the_other_trainer() {
        for (name, wanted) in [
            ("learning_rate", Some("train.rate")),
            ("LR", Some("train.rate")),
            ("lora_alpha", Some("train.adapter.alpha")),
            ("per_device_train_batch_size", Some("train.batch")),
            ("max_length", Some("data.max-length")),
            ("nothing", None),
        ] {
            assert_eq!(find_meant_key(name).as_deref(), wanted, "{name}");
        }
    }
}
