//! The settings of the adapter that a run trains, from the table `train.adapter`.

use tunebox_model::adapter::{AdapterSettings, Targets, check_pattern};
use tunebox_model::error::Error as ModelError;

use crate::configuration::{AdapterTable, RunSettings, Underline};
use crate::error::Error;

/// Converts the table `train.adapter` of the run file to the settings of a new adapter, whose first values are drawn
/// from `seed`. Alpha is twice the rank unless given.
pub(super) fn adapter_settings(table: &AdapterTable, seed: u64) -> AdapterSettings {
    let targets = table.target_pattern.clone().map_or_else(|| table.targets.clone(), Targets::Pattern);
    AdapterSettings {
        kind: table.kind,
        rank: table.rank as usize,
        alpha: table.alpha.unwrap_or(2.0 * f64::from(table.rank)),
        dropout: table.dropout,
        targets,
        layers: table.layers.as_ref().map(|layers| layers.iter().map(|layer| *layer as usize).collect()),
        rank_pattern: table.rank_pattern.iter().map(|(text, rank)| (text.clone(), *rank as usize)).collect(),
        alpha_pattern: table.alpha_pattern.clone().into_iter().collect(),
        modules_to_save: table.modules_to_save.clone(),
        ensure_weight_tying: table.ensure_weight_tying,
        initialize: table.initialize,
        seed,
    }
}

/// Returns the problems of the table `train.adapter` that show without a model: regular expressions that are none, and
/// a pattern for targets beside `targets` or `layers`.
pub(super) fn adapter_problems(settings: &RunSettings) -> Vec<Error> {
    let table = &settings.file.train.adapter;
    let patterns = table.target_pattern.iter().map(|text| ("target-pattern", text));
    let patterns = patterns.chain(table.rank_pattern.keys().map(|text| ("rank-pattern", text)));
    let patterns = patterns.chain(table.alpha_pattern.keys().map(|text| ("alpha-pattern", text)));
    let mut problems: Vec<Error> = patterns
        .filter_map(|(key, text)| {
            let what = check_pattern(text).err()?.to_string();
            let hint = "a dot is any character, `.*` any number of them; in double quotes, TOML wants `\\\\` for `\\`";
            Some(settings.conflict(&format!("train.adapter.{key}"), Underline::Value, &what, hint))
        })
        .collect();
    for (key, is_given) in [("targets", table.targets != Targets::AllLinear), ("layers", table.layers.is_some())] {
        if table.target_pattern.is_some() && is_given {
            let what = format!("`train.adapter.target-pattern` and `train.adapter.{key}` both select modules");
            let hint = "leave one of them out; the pattern may name layers, as `model.layers.[0-3].*q_proj` does";
            problems.push(settings.conflict("train.adapter.target-pattern", Underline::Key, &what, hint));
        }
    }
    problems
}

/// Adds the location of the key in the run file to an error about the modules, layers, patterns or first values of a
/// new adapter. Returns other errors without a location.
pub(super) fn locate_error(settings: &RunSettings, error: ModelError) -> Error {
    let key = match &error {
        ModelError::NoModule { .. } => "targets",
        ModelError::NoLayer { .. } => "layers",
        ModelError::AdapterSetting { key, .. } => key,
        _ => return error.into(),
    };
    settings.with_location(&format!("train.adapter.{key}"), error)
}

/// Fails if `model.reference` names the base model and the run continues no adapter: the base model is the reference of
/// a new adapter anyway.
pub(super) fn check_reference(settings: &RunSettings) -> Result<(), Error> {
    let table = &settings.file.model;
    if table.reference.is_start() || table.adapter.is_some() {
        return Ok(());
    }
    let what = "`model.reference` is for a run that continues an adapter";
    let hint = "leave it out: the base model is the reference of a new adapter; or set `model.adapter`";
    Err(settings.conflict("model.reference", Underline::Key, what, hint))
}

/// Fails if the settings give both `model.adapter` and `train.adapter`.
pub(super) fn check_one_adapter(settings: &RunSettings) -> Result<(), Error> {
    if settings.file.model.adapter.is_none() || !settings.is_given("train.adapter") {
        return Ok(());
    }
    let what = "`train.adapter` describes a new adapter, `model.adapter` continues an old one";
    let hint = "leave one of them out; the old adapter keeps its kind, rank and places";
    Err(settings.conflict("train.adapter", Underline::Key, what, hint))
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn problems(overrides: &[&str]) -> Vec<Error> {
        let named = ["model.path=m", "data.path=d", "method.use=lora"];
        adapter_problems(&RunSettings::from_overrides(&[&named[..], overrides].concat()).unwrap())
    }

    #[test]
    fn a_text_that_is_no_expression_is_refused_before_anything_is_opened() {
        for (given, text) in [
            ("train.adapter.target-pattern=(q", "(q"),
            ("train.adapter.rank-pattern={\"[q\"=3}", "[q"),
            ("train.adapter.alpha-pattern={\"q)(\"=3}", "q)("),
        ] {
            let found = problems(&[given]);
            assert_eq!(found.len(), 1, "{given}");
            assert!(
                found[0].to_string().starts_with(&format!("`{text}` is not a regular expression: ")),
                "{}",
                found[0]
            );
        }
        assert!(problems(&["train.adapter.target-pattern=.*_proj"]).is_empty());
    }

    #[test]
    fn a_reference_is_for_a_continued_adapter() {
        let check = |overrides: &[&str]| {
            let base = ["model.path=m", "data.path=d", "method.use=dpo", "model.reference=base"];
            check_reference(&RunSettings::from_overrides(&[&base[..], overrides].concat())?)
        };
        assert!(check(&["model.adapter=runs/a"]).is_ok());
        assert_eq!(check(&[]).unwrap_err().to_string(), "`model.reference` is for a run that continues an adapter");
    }

    #[test]
    fn a_pattern_beside_names_or_layers_is_refused() {
        for key in ["targets=['q_proj']", "layers=[0]"] {
            let found = problems(&["train.adapter.target-pattern=.*_proj", &format!("train.adapter.{key}")]);
            let name = key.split('=').next().unwrap();
            let wanted = format!("`train.adapter.target-pattern` and `train.adapter.{name}` both select modules");
            assert_eq!(found[0].to_string(), wanted);
            assert!(found[0].hint().unwrap().starts_with("leave one of them out"));
        }
    }
}
