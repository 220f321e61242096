//! The settings of a run's optimizer, from the keys of `[train]`.

use tunebox_compute::optimizer::{
    AdamWSettings, LionSettings, MuonSettings, OptimizerKind, OptimizerSettings, SgdSettings, UpdateRule,
};
use tunebox_foundation::explain::Explanation;
use tunebox_model::adapter::AdapterKind;

use crate::configuration::{RunSettings, TrainTable, Underline, join};
use crate::error::Error;

/// The keys of `[train]` that only some optimizers use, with these optimizers.
const OPTIMIZER_KEYS: [(&str, &[OptimizerKind]); 5] = {
    use OptimizerKind::{AdamW, AdamW8Bit, Lion, Muon, Sgd};
    [
        ("beta1", &[AdamW, AdamW8Bit, Lion, Muon]),
        ("beta2", &[AdamW, AdamW8Bit, Lion, Muon]),
        ("epsilon", &[AdamW, AdamW8Bit, Muon]),
        ("momentum", &[Muon, Sgd]),
        ("nesterov", &[Muon, Sgd]),
    ]
};

/// Lists the keys of `[train]`, without the prefix `train.`, that have no effect for a method that updates the
/// parameters itself: only the host's optimizers use them.
pub(super) fn optimizer_keys() -> impl Iterator<Item = &'static str> {
    let all = ["clip", "weight-decay", "skip-non-finite", "optimizer", "b-rate-ratio"];
    all.into_iter().chain(OPTIMIZER_KEYS.iter().map(|(key, _)| *key))
}

/// Reads the optimizer's settings. What is not given has the optimizer's own default.
///
/// # Errors
/// A key that the optimizer does not use, an optimizer other than AdamW without `train.rate`, Nesterov's variant
/// without a momentum, and a rate for factors B that the run does not train.
pub(super) fn optimizer_settings(settings: &RunSettings) -> Result<OptimizerSettings, Error> {
    join(optimizer_problems(settings))?;
    let train = &settings.file.train;
    Ok(OptimizerSettings { rule: update_rule(train), b_rate_ratio: train.b_rate_ratio })
}

/// Returns all errors that [`optimizer_settings`] can fail with.
pub(super) fn optimizer_problems(settings: &RunSettings) -> Vec<Error> {
    let train = &settings.file.train;
    let mut problems = unused_keys(settings, train.optimizer);
    problems.extend(check_rate(settings, train).err());
    if let UpdateRule::Sgd(SgdSettings { momentum: 0.0, nesterov: true, .. }) = update_rule(train) {
        let what = "`train.nesterov` is a variant of the momentum, and `train.momentum` is 0";
        let hint = "set `train.momentum`, 0.9 for example";
        problems.push(settings.conflict("train.nesterov", Underline::Key, what, hint));
    }
    let has_no_factors = train.adapter.kind == AdapterKind::Full && settings.file.model.adapter.is_none();
    if train.b_rate_ratio != 1.0 && has_no_factors {
        let what = "`train.b-rate-ratio` is for the factors B of an adapter, and all weights are trained";
        let hint = "leave it out, or set `train.adapter.kind` to `lora`";
        problems.push(settings.conflict("train.b-rate-ratio", Underline::Key, what, hint));
    }
    problems
}

/// Fails if the run's optimizer does not run on `device`, which is `cpu`, `metal` or `cuda` with a number after a
/// colon.
pub(super) fn check_device(settings: &RunSettings, device: &str) -> Result<(), Error> {
    let kind = settings.file.train.optimizer;
    if device == "cpu" || kind.runs_on_accelerators() {
        return Ok(());
    }
    let what = format!("the optimizer `{kind}` does not run on `{device}`, where there is only `adamw`");
    let hint = "set `train.optimizer` to `adamw`, or `train.device` to `cpu`";
    Err(settings.conflict("train.optimizer", Underline::Value, &what, hint))
}

/// The update rule that the table `[train]` asks for, with the optimizer's defaults for what is not given.
fn update_rule(train: &TrainTable) -> UpdateRule {
    let weight_decay = train.weight_decay;
    let usual = AdamWSettings::default();
    let adamw = AdamWSettings {
        beta1: train.beta1.unwrap_or(usual.beta1),
        beta2: train.beta2.unwrap_or(usual.beta2),
        epsilon: train.epsilon.unwrap_or(usual.epsilon),
        weight_decay,
        ..usual
    };
    match train.optimizer {
        OptimizerKind::AdamW => UpdateRule::AdamW(adamw),
        OptimizerKind::AdamW8Bit => UpdateRule::AdamW8Bit(adamw),
        OptimizerKind::Lion => {
            let usual = LionSettings::default();
            let [beta1, beta2] = [train.beta1.unwrap_or(usual.beta1), train.beta2.unwrap_or(usual.beta2)];
            UpdateRule::Lion(LionSettings { beta1, beta2, weight_decay })
        }
        OptimizerKind::Muon => {
            let usual = MuonSettings::default();
            let momentum = train.momentum.unwrap_or(usual.momentum);
            UpdateRule::Muon(MuonSettings { momentum, nesterov: train.nesterov.unwrap_or(usual.nesterov), adamw })
        }
        OptimizerKind::Sgd => {
            let usual = SgdSettings::default();
            let momentum = train.momentum.unwrap_or(usual.momentum);
            UpdateRule::Sgd(SgdSettings { momentum, nesterov: train.nesterov.unwrap_or(usual.nesterov), weight_decay })
        }
    }
}

/// Returns an error for each key of [`OPTIMIZER_KEYS`] that the settings give and the optimizer `kind` does not use.
fn unused_keys(settings: &RunSettings, kind: OptimizerKind) -> Vec<Error> {
    let is_unused =
        |(key, users): &&(&str, &[OptimizerKind])| settings.is_given(&format!("train.{key}")) && !users.contains(&kind);
    let error = |(key, users): &(&str, &[OptimizerKind])| {
        let (path, users) = (format!("train.{key}"), users.iter().map(|user| format!("`{user}`")).collect::<Vec<_>>());
        let what = format!("the optimizer `{kind}` does not use `{path}`");
        let hint = format!("leave it out; {} use it", users.join(", "));
        settings.conflict(&path, Underline::Key, &what, &hint)
    };
    OPTIMIZER_KEYS.iter().filter(is_unused).map(error).collect()
}

/// Fails if the settings give no `train.rate` for another optimizer than AdamW and its 8-bit variant: AdamW's default
/// rate does not suit it.
fn check_rate(settings: &RunSettings, train: &TrainTable) -> Result<(), Error> {
    let usual = match train.optimizer {
        OptimizerKind::AdamW | OptimizerKind::AdamW8Bit => return Ok(()),
        OptimizerKind::Lion => "its authors take a third to a tenth of a good rate of AdamW",
        OptimizerKind::Muon | OptimizerKind::Sgd => "torch's default is 1e-3",
    };
    if train.rate.is_some() {
        return Ok(());
    }
    let what = format!("`train.rate` is missing: the optimizer `{}` has no default rate", train.optimizer);
    let problem = Explanation::new("config", what).with_hint(format!("set it; {usual}"));
    Err(settings.error("train.optimizer", Underline::Value, problem))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn read(overrides: &[&str]) -> Result<OptimizerSettings, Error> {
        optimizer_settings(&settings(overrides))
    }

    fn settings(overrides: &[&str]) -> RunSettings {
        let named = ["model.path=m", "data.path=d", "method.use=lora"];
        RunSettings::from_overrides(&[&named[..], overrides].concat()).unwrap()
    }

    #[test]
    fn every_optimizer_has_its_own_defaults() {
        for (kind, wanted) in [
            ("adamw", "adamw, beta1 0.9, beta2 0.999, epsilon 1e-8, weight decay 0"),
            ("adamw-8bit", "adamw-8bit, beta1 0.9, beta2 0.999, epsilon 1e-8, weight decay 0"),
            ("lion", "lion, beta1 0.9, beta2 0.99, weight decay 0"),
            ("muon", "muon, momentum 0.95 (Nesterov), beta1 0.9, beta2 0.999, epsilon 1e-8, weight decay 0"),
            ("sgd", "sgd, momentum 0, weight decay 0"),
        ] {
            let found = read(&[&format!("train.optimizer={kind}"), "train.rate=1e-3"]).unwrap();
            assert_eq!(found.to_string(), wanted);
        }
        assert_eq!(read(&[]).unwrap(), OptimizerSettings::default());
    }

    #[test]
    fn given_keys_replace_the_defaults() {
        let given = ["train.optimizer=sgd", "train.rate=0.1", "train.momentum=0.9", "train.nesterov=true"];
        let found = read(&[&given[..], &["train.weight-decay=0.5", "train.b-rate-ratio=16"]].concat()).unwrap();
        let wanted = "sgd, momentum 0.9 (Nesterov), weight decay 0.5, 16 times the rate for the factors B";
        assert_eq!(found.to_string(), wanted);
    }

    #[test]
    fn a_key_that_the_optimizer_does_not_use_is_refused_with_those_that_use_it() {
        for (optimizer, key, users) in [
            ("adamw", "momentum=0.9", "`muon`, `sgd` use it"),
            ("adamw-8bit", "nesterov=true", "`muon`, `sgd` use it"),
            ("lion", "epsilon=1e-6", "`adamw`, `adamw-8bit`, `muon` use it"),
            ("sgd", "beta2=0.9", "`adamw`, `adamw-8bit`, `lion`, `muon` use it"),
        ] {
            let kind = format!("train.optimizer={optimizer}");
            let error = read(&[&kind, "train.rate=1e-3", &format!("train.{key}")]).unwrap_err();
            let name = key.split('=').next().unwrap();
            assert_eq!(error.to_string(), format!("the optimizer `{optimizer}` does not use `train.{name}`"));
            assert_eq!(error.hint().unwrap(), format!("leave it out; {users}"));
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        for (overrides, wanted) in [
            (&["train.optimizer=lion"][..], "`train.rate` is missing: the optimizer `lion` has no default rate"),
            (
                &["train.optimizer=sgd", "train.rate=1", "train.nesterov=true"],
                "`train.nesterov` is a variant of the momentum, and `train.momentum` is 0",
            ),
            (
                &["train.b-rate-ratio=2", "train.adapter.kind=full"],
                "`train.b-rate-ratio` is for the factors B of an adapter, and all weights are trained",
            ),
        ] {
            assert_eq!(read(overrides).unwrap_err().to_string(), wanted);
        }
        assert!(read(&["train.b-rate-ratio=1", "train.adapter.kind=full"]).is_ok());
    }

    #[test]
    fn an_accelerator_takes_adamw_alone() {
        let lion = settings(&["train.optimizer=lion", "train.rate=1e-4"]);
        assert!(check_device(&lion, "cpu").is_ok() && check_device(&settings(&[]), "cuda:0").is_ok());
        let error = check_device(&lion, "cuda:0").unwrap_err();
        let wanted = "the optimizer `lion` does not run on `cuda:0`, where there is only `adamw`";
        assert_eq!(error.to_string(), wanted);
        assert_eq!(error.hint().unwrap(), "set `train.optimizer` to `adamw`, or `train.device` to `cpu`");
    }
}
