//! Names of training algorithms in other trainers, and the method that does the same here.

/// What to do for algorithms that no method has as its name: the advice, and the names of the algorithms in lower case
/// with `-` between words. `{}` in the advice is the name.
const COUNTERPARTS: &[(&str, &[&str])] = &[
    (
        "`lora` is supervised fine-tuning, on records with `messages`, `prompt` and `completion`, or `text`",
        &["sft", "finetune", "fine-tune", "instruct", "pretrain", "pretraining", "pt", "cpt", "completion", "clm"],
    ),
    (
        "take `lora`, and `--set train.adapter.kind=full`, which trains all weights",
        &["full", "full-finetune", "full-finetuning", "freeze"],
    ),
    ("take `lora`, and `--precision nf4`, which quantizes the base to 4 bits", &["qlora"]),
    ("take `lora`, and `--set train.adapter.kind={}`", &["dora", "rslora"]),
    ("take `lora`, and `--set train.adapter.initialize={}`", &["pissa", "olora"]),
    ("take `lora`, and `--set method.loss={}`", &["dft"]),
    ("take `cpo`, with `--set method.loss=simpo --set method.nll-weight=0`", &["simpo"]),
    ("take `cpo`, with `--set method.loss={}`", &["alphapo"]),
    ("take `dpo`, with `--set method.loss={}`", &["ipo", "cdpo", "discopop"]),
    ("take `dpo`, with `--set method.loss={}-pair`", &["bco", "exo", "nca"]),
    ("take `dpo`, with `--set method.loss=sppo-hard`", &["sppo"]),
    ("take `dpo`, with `--set method.loss=hinge`", &["slic", "rso"]),
    ("take `dpo`, with `--set method.loss=apo-zero` or `apo-down`", &["apo"]),
    ("take `dpo`, with `--set method.use-weighting=true`", &["wpo"]),
    ("take `grpo`, with `--set method.loss={}`", &["dapo", "bnpo", "dr-grpo", "cispo", "sapo", "luspo", "vespo"]),
    ("take `grpo`, with `--set method.importance=sequence`", &["gspo"]),
    ("take `grpo`, with `--set method.combine-rewards=normalize-then-sum`", &["gdpo"]),
    (
        "`grpo` is the nearest built-in method; RLOO as a method of its own is `examples/9-rloo` of the source",
        &["rloo", "reinforce"],
    ),
    (
        "`grpo` and `rlvr` learn from rewards, without a model of values",
        &["ppo", "reinforce++", "online-dpo", "xpo", "nash-md", "raft"],
    ),
    (
        "take `distill`, with a `[[teacher]]`",
        &["gkd", "opd", "on-policy-distillation", "distillation", "kd", "minillm", "gold"],
    ),
    (
        "no built-in method trains a reward model: `dpo` learns from the same pairs, and `[[verifier]]` with \
         `use = \"model:PATH\"` takes a reward model that another program trained",
        &["reward", "reward-model", "reward-modeling", "reward-trainer", "rm", "prm"],
    ),
];

/// Returns what to use for the training algorithm `name`, as other trainers call it. Ignores case, and reads `_` as
/// `-`. `None` for a name that is not listed.
pub(crate) fn find_counterpart(name: &str) -> Option<String> {
    let name = name.to_lowercase().replace('_', "-");
    let (advice, _) = COUNTERPARTS.iter().find(|(_, names)| names.contains(&name.as_str()))?;
    Some(advice.replace("{}", &name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use tunebox_foundation::explain::Explain;

    use super::*;
    use crate::{Reference, builtin, read_manifest};

    #[test]
    fn an_algorithm_of_another_trainer_is_answered_with_the_method_that_does_the_same() {
        for (name, wanted) in [
            ("sft", "`lora` is supervised"),
            ("DAPO", "take `grpo`, with `--set method.loss=dapo`"),
            ("dr_grpo", "method.loss=dr-grpo"),
            ("simpo", "take `cpo`"),
            ("rloo", "examples/9-rloo"),
            ("ppo", "without a model of values"),
        ] {
            let hint = Reference::parse(name, Path::new(".")).unwrap_err().explanation().hint.unwrap();
            assert!(hint.contains(wanted), "{name}: {hint}");
        }
    }

    #[test]
    fn every_algorithm_is_listed_once_and_no_method_has_its_name() {
        let mut seen = BTreeSet::new();
        for name in COUNTERPARTS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(seen.insert(name), "`{name}` is listed twice");
            assert!(builtin::find(name).is_none(), "`{name}` is built in");
        }
    }

    #[test]
    fn every_setting_that_is_advised_exists_with_that_value() {
        for name in COUNTERPARTS.iter().flat_map(|(_, names)| names.iter()) {
            let advice = find_counterpart(name).unwrap();
            let method = advice.split('`').nth(1).unwrap();
            let Some(builtin) = builtin::find(method) else { continue };
            let manifest = read_manifest(builtin.bytes).unwrap();
            for pair in advice.split("--set method.").skip(1) {
                let (setting, value) = pair.split(['`', ' ']).next().unwrap().split_once('=').unwrap();
                let known = manifest.settings.iter().find(|known| known.name == setting);
                let known = known.unwrap_or_else(|| panic!("`{method}` has no `{setting}`"));
                let is_listed = format!("{known:?}").contains(value);
                assert!(is_listed || ["0", "true"].contains(&value), "{method}.{setting} = {value}");
            }
        }
    }
}
