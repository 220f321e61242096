//! Writes and reads adapters in the layout of mlx-lm: `adapters.safetensors` beside `adapter_config.json`. mlx-lm has A
//! and B transposed, one rank for all modules, and one factor of B·A in the place of alpha ÷ rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;
use tunebox_compute::DType;

use super::create;
use super::folder::{SETTINGS, take_values};
use super::plan::ModulePlan;
use super::settings::{AdapterKind, AdapterSettings, ModuleKey, Targets};
use super::{Adapter, ModuleFactors};
use crate::Model;
use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::files::{self, TensorSpec};
use crate::weights::Location;
use crate::weights::safetensors;

/// The name of the file with the weights of an adapter of mlx-lm.
pub(super) const WEIGHTS: &str = "adapters.safetensors";

impl Adapter {
    /// Writes the adapter as a folder for mlx-lm, on the base model `base`. Factors of a smaller rank than the largest
    /// are filled up with zeros, and where a module needs another scale than the first, its B is multiplied.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn save_for_mlx(&self, model: &Model, base: &str, folder: &Path) -> Result<()> {
        let (kind, modules) = (self.settings().kind, self.modules());
        let scale = modules.first().map_or(1.0, |module| module.scale);
        let rank = modules.iter().map(|module| module.saved_rank_and_alpha(kind).0).max().unwrap_or(1);
        let (mut list, mut values) = (Vec::new(), Vec::new());
        for module in modules {
            let ModuleFactors { a, b, scale: own, magnitude } = ModuleFactors::of(self, module)?;
            let missing = rank - a.dim(0)?;
            let a = a.t()?.pad_with_zeros(1, 0, missing)?.contiguous()?;
            // Not multiplied by 1: that would still copy B.
            let b = if own == scale { b } else { (b * (own / scale))? };
            let b = b.t()?.pad_with_zeros(0, 0, missing)?.contiguous()?;
            let named = [("lora_a", Some(a)), ("lora_b", Some(b)), ("m", magnitude)];
            for (suffix, tensor) in named {
                let Some(tensor) = tensor else { continue };
                let name = format!("{}.{suffix}", module.site.path(module.layer));
                list.push(TensorSpec { name, shape: tensor.dims().to_vec(), dtype: DType::F32 });
                values.push(tensor);
            }
        }
        files::write_tensors(&folder.join(WEIGHTS), &list, None, |number| Ok(values[number].clone()))?;
        let keys: BTreeSet<&str> = modules.iter().map(|module| module.site.module()).collect();
        let settings = json!({
            "fine_tune_type": if kind == AdapterKind::Dora { "dora" } else { "lora" },
            "model": base,
            "num_layers": model.configuration.layers,
            "lora_parameters": { "rank": rank, "scale": scale, "dropout": 0.0, "keys": keys },
        });
        files::write(&folder.join(SETTINGS), format!("{settings:#}\n"))
    }
}

/// Reads an adapter from a folder of mlx-lm onto the model's device. The modules are those that the weights name: which
/// ones mlx-lm takes if `keys` is missing differs between its versions.
///
/// # Errors
/// When a file is missing or broken, the settings are not those of LoRA or DoRA, a tensor belongs to no linear map of
/// the model's blocks, or has another shape than the model and the rank call for.
pub(super) fn load(model: &Model, folder: &Path) -> Result<Adapter> {
    let path = folder.join(WEIGHTS);
    let found = safetensors::locate(std::slice::from_ref(&path))?;
    let modules = modules(&found, &model.configuration);
    let settings = settings(&folder.join(SETTINGS), &modules)?;
    if modules.is_empty() {
        return Err(Error::adapter(&path, "it holds no adapter of a linear map of this model"));
    }
    let plan = |place: &ModuleKey| ModulePlan { place: *place, rank: settings.rank, alpha: settings.alpha };
    let plans: Vec<ModulePlan> = modules.iter().map(plan).collect();
    let slots = create::slots(model, &settings, &plans)?;
    let wanted = slots.iter().map(|(name, shape)| (mlx_name(name), shape.iter().copied().rev().collect())).collect();
    let values = take_values(&path, wanted, None)?;
    let adapter = create::zeros(model, &settings, &plans)?;
    for (number, location) in values.iter().enumerate() {
        let value = location.read()?.to_dtype(DType::F32)?;
        let value = if value.rank() == 2 { value.t()?.contiguous()? } else { value };
        adapter.parameters.set(number, &value)?;
    }
    Ok(adapter)
}

/// The linear maps of a model for which a file of mlx-lm has a matrix A, by layer and then in the order of a forward
/// pass.
fn modules(found: &BTreeMap<String, Location>, configuration: &Configuration) -> Vec<ModuleKey> {
    let sites = Site::all(configuration);
    let all = (0..configuration.layers).flat_map(|layer| sites.iter().map(move |site| (layer, *site)));
    all.filter(|(layer, site)| found.contains_key(&format!("{}.lora_a", site.path(*layer)))).collect()
}

/// The name in files of mlx-lm of a slot with PEFT's name, such as `….q_proj.lora_a` for `….q_proj.lora_A.weight`.
fn mlx_name(slot: &str) -> String {
    let pairs = [(".lora_A.weight", ".lora_a"), (".lora_B.weight", ".lora_b"), (".lora_magnitude_vector", ".m")];
    let renamed = pairs.iter().find_map(|(peft, mlx)| Some(format!("{}{mlx}", slot.strip_suffix(peft)?)));
    renamed.unwrap_or_else(|| slot.to_owned())
}

/// Reads the settings of an adapter of mlx-lm, which is on `modules`. Alpha is scale × rank. A missing
/// `fine_tune_type` counts as `lora`, as in files of mlx-lm before it had the key, and a missing dropout as 0. Errors:
/// another type than `lora` and `dora`, a rank or scale that is missing, an `alpha`, or settings that
/// [`AdapterSettings::check`] refuses.
fn settings(path: &Path, modules: &[ModuleKey]) -> Result<AdapterSettings> {
    let value = files::read_json(path)?;
    let fields = Fields::new(&value, path)?;
    let kind = match fields.get_or("fine_tune_type", Some("lora"))? {
        "lora" => AdapterKind::Lora,
        "dora" => AdapterKind::Dora,
        _ => return Err(fields.value_error("fine_tune_type", "lora or dora, fuse other weights by `mlx_lm.fuse`")),
    };
    let missing = || Error::missing("`lora_parameters`", path);
    let parameters = fields.object("lora_parameters")?.ok_or_else(missing)?;
    if parameters.has_value("alpha") {
        let allowed = "no alpha: mlx-lm scaled by it or not, depending on its version; take it out if yours did not";
        return Err(parameters.value_error("alpha", allowed));
    }
    let (rank, scale): (usize, f64) = (parameters.require("rank")?, parameters.require("scale")?);
    let settings = AdapterSettings {
        kind,
        rank,
        alpha: scale * rank as f64,
        dropout: parameters.get_or("dropout", Some(0.0))?,
        targets: Targets::Modules(modules.iter().map(|(layer, site)| site.path(*layer)).collect()),
        ..AdapterSettings::default()
    };
    settings.check()?;
    Ok(settings)
}
