//! Reads and writes PEFT's `adapter_config.json`.
//! Rejects settings that this program cannot run exactly, rather than load the adapter wrongly. `folder` reads and
//! writes the tensors.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Adapter;
use super::initial::Initialization;
use super::pattern::{Pattern, check_pattern};
use super::plan::{ModulePlan, plan_modules};
use super::settings::{AdapterKind, AdapterSettings, ModuleKey, Targets, matches_module, target_modules};
use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::Result;
use crate::fields::Fields;
use crate::files;

/// Settings of PEFT that change the computation and are not supported. A file is rejected if one of them is other than
/// null, false or empty.
const UNSUPPORTED: [&str; 13] = [
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
    "velora_config",
];

/// Formats `adapter_config.json` for an adapter: indented JSON with a final newline. `base` is the model name to write.
/// Writes no file.
pub(crate) fn write(adapter: &Adapter, base: &str) -> String {
    let settings = adapter.settings();
    let (rank, alpha) = saved_rank_and_alpha(settings);
    let (ranks, alphas) = patterns(adapter, (rank, alpha));
    let whole = &settings.modules_to_save;
    let mut value = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "revision": null,
        "r": rank,
        "lora_alpha": number(alpha),
        "lora_dropout": settings.dropout,
        "target_modules": targets(adapter),
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "use_rslora": settings.kind == AdapterKind::RsLora,
        "use_dora": settings.kind == AdapterKind::Dora,
        "modules_to_save": (!whole.is_empty()).then_some(whole),
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "layers_to_transform": settings.layers,
        "layers_pattern": null,
    });
    if settings.ensure_weight_tying {
        // Only here: versions of PEFT before 0.18 do not know the key.
        value["ensure_weight_tying"] = json!(true);
    }
    format!("{value:#}\n")
}

/// Reads `adapter_config.json` and resolves its modules, ranks and alphas for a model. Returns the settings, and a plan
/// for each module, by layer and then in the order of a forward pass. The first entry of `rank_pattern` or
/// `alpha_pattern` whose expression matches a module gives its rank or alpha, else `r` or `lora_alpha`. With
/// `exclude_modules`, the returned settings list the remaining modules by full path and name no layers. Errors:
/// unsupported or broken keys, or names and layers that the model does not have.
pub(crate) fn read(path: &Path, configuration: &Configuration) -> Result<(AdapterSettings, Vec<ModulePlan>)> {
    let value = files::read_json(path)?;
    let fields = Fields::new(&value, path)?;
    refuse_unsupported(&fields)?;
    let mut settings = settings(&fields)?;
    let mut places = target_modules(configuration, &settings)?;
    if let Some(excluded) = selection(&fields, "exclude_modules")? {
        places = without_excluded(places, &excluded)?;
        // From here on the modules are named one by one, so that a saved copy needs no exclusion.
        settings.targets = Targets::Modules(places.iter().map(|(layer, site)| site.path(*layer)).collect());
        settings.layers = None;
    }
    let plans = plan_modules(places, &settings)?;
    Ok((settings, plans))
}

/// Reads kind, rank, alpha, dropout, targets, layers, patterns and modules to save, and checks them with
/// [`AdapterSettings::check`]; the seed is the default one. A missing or null key has its default: false for
/// `use_rslora`, `use_dora` and `ensure_weight_tying`, 0 for `lora_dropout`, all layers, no modules to save. Errors:
/// `r`, `lora_alpha` or `target_modules` is missing or null, a value has a wrong type or range, or the adapter is
/// rsLoRA and DoRA at once.
fn settings(fields: &Fields<'_>) -> Result<AdapterSettings> {
    let kind = match (fields.get_or("use_rslora", Some(false))?, fields.get_or("use_dora", Some(false))?) {
        (false, false) => AdapterKind::Lora,
        (true, false) => AdapterKind::RsLora,
        (false, true) => AdapterKind::Dora,
        (true, true) => return Err(fields.value_error("use_rslora", "false where `use_dora` is true")),
    };
    let targets = match selection(fields, "target_modules")? {
        Some(Targets::Pattern(text)) if text == "all-linear" => Targets::AllLinear,
        Some(Targets::Modules(names)) if names == ["all-linear"] => Targets::AllLinear,
        Some(targets) => targets,
        None => fields.require("target_modules")?,
    };
    let whole: Option<Vec<String>> = fields.list("modules_to_save")?;
    let ranks = pattern::<NonZeroUsize>(fields, "rank_pattern")?;
    let settings = AdapterSettings {
        kind,
        rank: fields.require("r")?,
        alpha: fields.require("lora_alpha")?,
        dropout: fields.get_or("lora_dropout", Some(0.0))?,
        targets,
        layers: fields.list("layers_to_transform")?,
        rank_pattern: ranks.into_iter().map(|(name, rank)| (name, rank.get())).collect(),
        alpha_pattern: pattern(fields, "alpha_pattern")?,
        modules_to_save: whole.unwrap_or_default(),
        ensure_weight_tying: fields.get_or("ensure_weight_tying", Some(false))?,
        initialize: Initialization::Random,
        seed: AdapterSettings::default().seed,
    };
    settings.check()?;
    Ok(settings)
}

/// Checks that `peft_type` is present and `LORA`, that `bias` is missing, null or `none`, and that each key of
/// [`UNSUPPORTED`] is missing, null, false or an empty list or object. Errors name the key.
fn refuse_unsupported(fields: &Fields<'_>) -> Result<()> {
    let _: &str = fields.require("peft_type")?;
    fields.only("peft_type", &json!("LORA"))?;
    fields.only("bias", &json!("none"))?;
    for key in UNSUPPORTED {
        let value: Option<Value> = fields.get(key)?;
        if value.is_some_and(|value| ![json!(false), json!([]), json!({})].contains(&value)) {
            return Err(fields.value_error(key, "no value: this setting is not supported"));
        }
    }
    Ok(())
}

/// Reads a key that selects modules: a list of names, or a text, which is a regular expression for whole paths; `None`
/// if it is missing or null. Errors: another type, a text that is no regular expression, or a name that
/// [`check_literal`] refuses.
fn selection(fields: &Fields<'_>, key: &str) -> Result<Option<Targets>> {
    if let Some(Value::String(text)) = fields.get(key)? {
        check_pattern(&text).map_err(|_| fields.value_error(key, "names or a regular expression"))?;
        return Ok(Some(Targets::Pattern(text)));
    }
    let list: Option<Vec<String>> = fields.list(key)?;
    list.iter().flatten().try_for_each(|name| check_literal(fields, key, name))?;
    Ok(list.map(Targets::Modules))
}

/// Returns the modules that `excluded` does not select by names or by a pattern; none for all linear layers. Errors:
/// the pattern is no regular expression, or matching a path takes too long.
fn without_excluded(places: Vec<ModuleKey>, excluded: &Targets) -> Result<Vec<ModuleKey>> {
    let (names, pattern) = match excluded {
        Targets::AllLinear => return Ok(Vec::new()),
        Targets::Modules(names) => (names.as_slice(), None),
        Targets::Pattern(text) => (&[][..], Some(Pattern::of_path(text)?)),
    };
    let mut kept = Vec::new();
    for place in places {
        let path = place.1.path(place.0);
        let is_named = names.iter().any(|name| matches_module(name, &path));
        if !is_named && !pattern.as_ref().map_or(Ok(false), |pattern| pattern.is_match(&path))? {
            kept.push(place);
        }
    }
    Ok(kept)
}

/// Reads `rank_pattern` or `alpha_pattern`: pairs of a regular expression and a value, in the order of the file. Empty
/// if the key is missing, null or an empty object. Errors: a key that is no regular expression, or a value that is null
/// or of another type.
fn pattern<T: DeserializeOwned>(fields: &Fields<'_>, key: &str) -> Result<Vec<(String, T)>> {
    let Some(object) = fields.object(key)? else { return Ok(Vec::new()) };
    let read = |name: &String| {
        check_pattern(name).map_err(|_| fields.value_error(key, "names or regular expressions as keys"))?;
        Ok((name.clone(), object.require(name)?))
    };
    object.keys().map(read).collect()
}

/// Checks that `name`, from a list in the setting `key`, has none of the characters `* + ( ) [ ] | \ ? ^ $` of regular
/// expressions; a dot is allowed. PEFT compares such a name as it is, and it is the name of no module.
fn check_literal(fields: &Fields<'_>, key: &str, name: &str) -> Result<()> {
    if name.contains(['*', '+', '(', ')', '[', ']', '|', '\\', '?', '^', '$']) {
        return Err(fields.value_error(key, &format!("names in a list, not an expression such as `{name}`")));
    }
    Ok(())
}

/// The `target_modules` to write: the names of the settings; for a pattern, the path of every adapted module, because
/// a pattern of the settings may match modules in PEFT that are no linear layers; or, for all linear layers, the short
/// names of the adapter's sites. Sorted and unique.
fn targets(adapter: &Adapter) -> Value {
    match &adapter.settings().targets {
        Targets::Modules(names) => json!(names),
        Targets::Pattern(_) => {
            let paths: BTreeSet<String> =
                adapter.modules().iter().map(|module| module.site.path(module.layer)).collect();
            json!(paths)
        }
        Targets::AllLinear => {
            let sites: BTreeSet<Site> = adapter.modules().iter().map(|module| module.site).collect();
            json!(sites.iter().map(|site| site.short_name()).collect::<Vec<_>>())
        }
    }
}

/// The rank and alpha of a saved adapter with these settings.
fn saved_rank_and_alpha(settings: &AdapterSettings) -> (usize, f64) {
    match settings.initialize {
        Initialization::Random => (settings.rank, settings.alpha),
        _ => settings.kind.double_rank(settings.rank, settings.alpha),
    }
}

/// Returns PEFT's `rank_pattern` and `alpha_pattern`, in this order: maps from module path to rank, and to alpha. Each
/// has only the modules whose saved value differs from those of the adapter, `rank` and `alpha`.
fn patterns(adapter: &Adapter, (rank, alpha): (usize, f64)) -> (Map<String, Value>, Map<String, Value>) {
    let (mut ranks, mut alphas) = (Map::new(), Map::new());
    for module in adapter.modules() {
        let path = module.site.path(module.layer);
        let (own_rank, own_alpha) = module.saved_rank_and_alpha(adapter.settings().kind);
        if own_rank != rank {
            ranks.insert(path.clone(), json!(own_rank));
        }
        if own_alpha != alpha {
            alphas.insert(path, number(own_alpha));
        }
    }
    (ranks, alphas)
}

/// Converts a number to JSON: whole numbers below 1e15 as integers, without a decimal point, as PEFT writes them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}
