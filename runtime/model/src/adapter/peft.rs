//! `adapter_config.json` as PEFT writes and reads it.
//! What this host cannot do exactly is refused here rather than loaded wrongly; tensors are `folder`'s.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Adapter;
use super::create::ModulePlan;
use super::settings::{AdapterKind, AdapterSettings, Targets};
use super::targets::{self, ModuleKey, matches_module};
use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};

/// Keys that change the arithmetic; anything but nothing in them is refused.
const UNSUPPORTED: [&str; 14] = [
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "modules_to_save",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
    "velora_config",
];

/// What a configuration file says.
pub(crate) struct PeftConfiguration {
    pub(crate) settings: AdapterSettings,
    pub(crate) plans: Vec<ModulePlan>,
}

/// Formats `adapter_config.json` for an adapter: indented JSON with a final newline. `base` is the model name to write.
/// Writes no file.
pub(crate) fn write(adapter: &Adapter, base: &str) -> Result<String> {
    let settings = adapter.settings();
    let (ranks, alphas) = patterns(adapter);
    let value = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "revision": null,
        "r": settings.rank,
        "lora_alpha": number(settings.alpha),
        "lora_dropout": settings.dropout,
        "target_modules": target_names(adapter),
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "use_rslora": settings.kind == AdapterKind::RsLora,
        "use_dora": settings.kind == AdapterKind::Dora,
        "modules_to_save": null,
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "layers_to_transform": settings.layers,
        "layers_pattern": null,
    });
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Error::Argument(format!("the adapter's settings cannot be written as JSON: {error}")))?;
    Ok(text + "\n")
}

/// Parses the text of `adapter_config.json` and resolves its modules, ranks and alphas for a model. `path` serves
/// errors only. With `exclude_modules`, the returned settings list the remaining modules by full path and name no
/// layers. Errors: unsupported or broken keys, or names and layers that the model does not have.
pub(crate) fn read(text: &str, path: &Path, configuration: &Configuration) -> Result<PeftConfiguration> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| Error::adapter(path, format!("it is not JSON: {error}")))?;
    let Value::Object(object) = value else {
        return Err(Error::adapter(path, "it is not a JSON object"));
    };
    refuse_unsupported(&object, path)?;
    let mut settings = settings(&object, path)?;
    let mut places = targets::target_modules(configuration, &settings)?;
    if let Some(excluded) = names(&object, "exclude_modules", path)? {
        places.retain(|(layer, site)| !excluded.iter().any(|name| matches_module(name, &site.path(*layer))));
        // From here on the modules are named one by one, so that a saved copy needs no exclusion.
        settings.targets = Targets::Modules(places.iter().map(|(layer, site)| site.path(*layer)).collect());
        settings.layers = None;
    }
    let ranks = pattern(&object, "rank_pattern", path)?;
    let alphas = pattern(&object, "alpha_pattern", path)?;
    let plans = places
        .into_iter()
        .map(|place| plan(place, &settings, &ranks, &alphas, path))
        .collect::<Result<Vec<ModulePlan>>>()?;
    Ok(PeftConfiguration { settings, plans })
}

/// The rank and alpha of one module: those of the first matching name in `ranks` and `alphas`, else the settings'.
/// Errors: a rank that is not a whole number of at least 1.
fn plan(
    place: ModuleKey,
    settings: &AdapterSettings,
    ranks: &[(String, f64)],
    alphas: &[(String, f64)],
    path: &Path,
) -> Result<ModulePlan> {
    let module = place.1.path(place.0);
    let own =
        |list: &[(String, f64)]| list.iter().find(|(name, _)| matches_module(name, &module)).map(|(_, value)| *value);
    let rank = own(ranks).unwrap_or(settings.rank as f64);
    let alpha = own(alphas).unwrap_or(settings.alpha);
    Ok(ModulePlan { place, rank: whole_rank(rank, &format!("the rank of `{module}`"), path)?, alpha })
}

/// Reads kind, rank, alpha, dropout, targets and layers, and checks them; the seed is the default one. Errors: a
/// missing `r`, `lora_alpha` or `target_modules`, a value of a wrong type or range, or rsLoRA and DoRA together.
fn settings(object: &Map<String, Value>, path: &Path) -> Result<AdapterSettings> {
    let flag = |key: &str| -> Result<bool> { Ok(field(object, key, path)?.unwrap_or(false)) };
    let kind = match (flag("use_rslora")?, flag("use_dora")?) {
        (false, false) => AdapterKind::Lora,
        (true, false) => AdapterKind::RsLora,
        (false, true) => AdapterKind::Dora,
        (true, true) => return Err(Error::adapter(path, "`use_rslora` and `use_dora` together are not supported")),
    };
    let missing = |key: &str| Error::adapter(path, format!("`{key}` is missing"));
    let targets = match object.get("target_modules").and_then(Value::as_str) {
        Some("all-linear") => Targets::AllLinear,
        _ => {
            let names = names(object, "target_modules", path)?;
            Targets::Modules(names.ok_or_else(|| missing("target_modules"))?)
        }
    };
    let rank = field(object, "r", path)?.ok_or_else(|| missing("r"))?;
    let settings = AdapterSettings {
        kind,
        rank: whole_rank(rank, "`r`", path)?,
        alpha: field(object, "lora_alpha", path)?.ok_or_else(|| missing("lora_alpha"))?,
        dropout: field(object, "lora_dropout", path)?.unwrap_or(0.0),
        targets,
        layers: field(object, "layers_to_transform", path)?.map(OneOrMore::into_list),
        seed: AdapterSettings::default().seed,
    };
    settings.check()?;
    Ok(settings)
}

/// Reads the value of a key; `None` if it is missing or null. Errors: a value of another type.
fn field<T: DeserializeOwned>(object: &Map<String, Value>, key: &str, path: &Path) -> Result<Option<T>> {
    let Some(value) = object.get(key) else { return Ok(None) };
    Option::<T>::deserialize(value).map_err(|error| Error::adapter(path, format!("`{key}` is `{value}`: {error}")))
}

/// One value or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "neither a value of this key nor a list of such values")]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    /// The values as a list; a single value becomes a list of one.
    fn into_list(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::More(list) => list,
        }
    }
}

/// Converts a rank to an integer. Errors: not a whole number of at least 1; `name` says in the message which rank it
/// is.
fn whole_rank(rank: f64, name: &str, path: &Path) -> Result<usize> {
    if rank < 1.0 || rank.fract() != 0.0 {
        return Err(Error::adapter(path, format!("{name} is `{rank}`, it must be a whole number of at least 1")));
    }
    Ok(rank as usize)
}

/// Checks that `peft_type` is `LORA`, that `bias` is missing or `none`, and that each key of [`UNSUPPORTED`] is
/// missing, null, false or empty. Errors name the key.
fn refuse_unsupported(object: &Map<String, Value>, path: &Path) -> Result<()> {
    let kind = object.get("peft_type").and_then(Value::as_str).unwrap_or("missing");
    if kind != "LORA" {
        return Err(Error::adapter(path, format!("`peft_type` is `{kind}`; only `LORA` is supported")));
    }
    if let Some(bias) = object.get("bias").and_then(Value::as_str).filter(|bias| *bias != "none") {
        return Err(Error::adapter(path, format!("`bias` is `{bias}`; only `none` is supported")));
    }
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        _ => false,
    };
    for key in UNSUPPORTED {
        if let Some(value) = object.get(key).filter(|value| !says_nothing(value)) {
            return Err(Error::adapter(path, format!("`{key}` is `{value}`, which is not supported")));
        }
    }
    Ok(())
}

/// Reads a key that holds one name or a list of names; `None` if it is missing or null. Errors: another type, or a name
/// with characters of regular expressions.
fn names(object: &Map<String, Value>, key: &str, path: &Path) -> Result<Option<Vec<String>>> {
    let list = field(object, key, path)?.map(OneOrMore::into_list);
    list.iter().flatten().try_for_each(|name: &String| literal(name, key, path))?;
    Ok(list)
}

/// Reads `rank_pattern` or `alpha_pattern`: pairs of module name and value, without a leading `^` or trailing `$`.
/// Empty if the key is missing or not an object. Errors: any other regular expression, or a value that is not a number.
fn pattern(object: &Map<String, Value>, key: &str, path: &Path) -> Result<Vec<(String, f64)>> {
    let Some(Value::Object(table)) = object.get(key) else {
        return Ok(Vec::new());
    };
    let mut list = Vec::with_capacity(table.len());
    for (name, value) in table {
        let name = name.trim_start_matches('^').trim_end_matches('$');
        literal(name, key, path)?;
        let value = value.as_f64().ok_or_else(|| Error::adapter(path, format!("`{key}` of `{name}` is no number")))?;
        list.push((name.to_owned(), value));
    }
    Ok(list)
}

/// Checks that a name holds no characters of regular expressions: read as a plain name, an expression would leave
/// modules out silently.
fn literal(name: &str, key: &str, path: &Path) -> Result<()> {
    if name.contains(['*', '+', '(', ')', '[', ']', '|', '\\', '?', '^', '$']) {
        return Err(Error::adapter(path, format!("`{key}` holds the expression `{name}`; only names are supported")));
    }
    Ok(())
}

/// The `target_modules` to write: the names of the settings, or, for all linear layers, the short names of the
/// adapter's sites, sorted and unique.
fn target_names(adapter: &Adapter) -> Vec<String> {
    if let Targets::Modules(names) = &adapter.settings().targets {
        return names.clone();
    }
    let mut sites: Vec<Site> = adapter.modules().iter().map(|module| module.site).collect();
    sites.sort_unstable();
    sites.dedup();
    sites.iter().map(|site| site.short_name().to_owned()).collect()
}

/// The ranks and the alphas, in this order, of the modules whose own differ from the settings', by module path.
fn patterns(adapter: &Adapter) -> (Map<String, Value>, Map<String, Value>) {
    let settings = adapter.settings();
    let (mut ranks, mut alphas) = (Map::new(), Map::new());
    for module in adapter.modules() {
        let path = module.site.path(module.layer);
        if module.rank != settings.rank {
            ranks.insert(path.clone(), json!(module.rank));
        }
        if module.alpha != settings.alpha {
            alphas.insert(path, number(module.alpha));
        }
    }
    (ranks, alphas)
}

/// Converts a number to JSON: whole numbers below 1e15 as integers, without a decimal point, as PEFT writes them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}
