//! Saves adapters in PEFT's layout, `adapter_model.safetensors` beside `adapter_config.json`, and loads them in that or
//! mlx-lm's. Kind full has all weights in one `model.safetensors`, in `f32`, instead. Unknown and missing keys are
//! errors: PEFT itself loads keys with a wrong prefix as an adapter of zeros. Each file is written whole or not at all.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tunebox_compute::{DType, Tensor};
use tunebox_foundation::files::create_folder;

use super::settings::{AdapterKind, AdapterSettings};
use super::{Adapter, InitialFactors, create, mlx, peft};
use crate::Model;
use crate::chat::TEMPLATE_FILE;
use crate::error::{Error, Result};
use crate::families::{EMBEDDING, HEAD};
use crate::files::{self, TensorSpec};
use crate::weights::location::Location;
use crate::weights::safetensors;

/// The name of the file with an adapter's weights.
const WEIGHTS: &str = "adapter_model.safetensors";
/// The name of the file with an adapter's settings.
pub(super) const SETTINGS: &str = "adapter_config.json";
/// The name of the file with all weights, for kind full.
const MODEL: &str = "model.safetensors";
/// The most bytes per value that a weights file may have.
const LARGEST_NUMBER: u64 = 8;
/// The most bytes of a safetensors header.
const MAX_HEADER_BYTES: u64 = 100 << 20;
/// What PEFT puts before every module path.
const PREFIX: &str = "base_model.model.";

impl Adapter {
    /// Reads an adapter, with its settings and values, from a folder of PEFT or of mlx-lm onto the model's device. Does
    /// not read folders of kind full.
    ///
    /// # Errors
    /// When a file is missing or broken, its settings are not supported or name modules that the model does not have,
    /// or its keys or shapes are not exactly those that its settings call for in this model.
    pub fn load(model: &Model, folder: &Path) -> Result<Self> {
        if weights_file(folder).ends_with(mlx::WEIGHTS) {
            return mlx::load(model, folder);
        }
        let (settings, plans) = peft::read(&folder.join(SETTINGS), &model.configuration)?;
        // What the file holds is compared before anything of the size that the settings claim is allocated.
        let wanted = create::slots(model, &settings, &plans)?;
        let wanted = wanted.into_iter().map(|(name, shape)| (key(settings.kind, &name), shape)).collect();
        let copy = ties_head(model, &settings).then(|| key(settings.kind, HEAD));
        let values = take_values(&values_path(settings.kind, folder), wanted, copy.as_deref())?;
        let adapter = create::zeros(model, &settings, &plans)?;
        adapter.set_values(&values)?;
        Ok(adapter)
    }

    /// Writes the adapter's weights file and, unless the kind is full, its `adapter_config.json`, with a chat template
    /// that is not of the model's files beside it, into a folder, which is created if needed; replaces files of these
    /// names. Values are `f32`. An adapter that began with a part of the
    /// frozen weights is written with twice its rank, as one for these weights. The settings name the base by the path
    /// or hub name by which the user gave the model.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, model: &Model, folder: &Path) -> Result<()> {
        self.save_for(model, &model.name, folder)
    }

    /// Writes the adapter as [`save`](Self::save) does; its settings name the base model as `base`. A head that is tied
    /// to a trained embedding is written once more under its own name, without which PEFT does not load the adapter.
    pub(crate) fn save_for(&self, model: &Model, base: &str, folder: &Path) -> Result<()> {
        create_folder(folder)?;
        let slots = self.parameters.slots().iter().enumerate();
        let mut names: Vec<(usize, &str)> = slots.map(|(number, slot)| (number, slot.name.as_str())).collect();
        let embedding = self.parameters.index(EMBEDDING).filter(|_| ties_head(model, &self.settings));
        names.extend(embedding.map(|number| (number, HEAD)));
        let stored = |(number, name): &(usize, &str)| {
            let name = key(self.settings.kind, name);
            Ok(TensorSpec { name, shape: self.saved_shape(*number)?, dtype: DType::F32 })
        };
        let list: Vec<TensorSpec> = names.iter().map(stored).collect::<Result<_>>()?;
        let value = |at: usize| self.saved_value(names[at].0);
        files::write_tensors(&values_path(self.settings.kind, folder), &list, None, value)?;
        if self.settings.kind == AdapterKind::Full {
            return Ok(());
        }
        if let Some(template) = model.template.as_ref().filter(|_| model.has_other_template) {
            files::write(&folder.join(TEMPLATE_FILE), template.source())?;
        }
        files::write(&folder.join(SETTINGS), peft::write(self, base))
    }

    /// Reads the weights file of a folder into this adapter's slots, as `f32`. An adapter that begins with a part of
    /// the frozen weights also takes its first values from there: those of another machine may differ in rounding.
    ///
    /// # Errors
    /// When the file is missing, too large or broken, a key is missing or unknown, or a shape differs. If a value
    /// cannot be read, the slots before it are already overwritten.
    pub(crate) fn read_values(&mut self, model: &Model, folder: &Path) -> Result<()> {
        let count = self.parameters.slots().len();
        let shapes: Vec<Vec<usize>> = (0..count).map(|number| self.saved_shape(number)).collect::<Result<_>>()?;
        let names = self.parameters.slots().iter().map(|slot| key(self.settings.kind, &slot.name));
        let wanted = names.zip(shapes).collect();
        let copy = ties_head(model, &self.settings).then(|| key(self.settings.kind, HEAD));
        let located = take_values(&values_path(self.settings.kind, folder), wanted, copy.as_deref())?;
        let appended = self.set_values(&located)?;
        for module in self.modules.iter_mut().filter(|module| module.initial.is_some()) {
            if let (Some(a), Some(b)) = (&appended[module.a_slot], &appended[module.b_slot]) {
                module.initial = Some(InitialFactors::place(model, module.scale, a.clone(), b.neg()?)?);
            }
        }
        Ok(())
    }

    /// Reads the value of every slot as `f32`; `values` holds the location of each slot's value, in the order of the
    /// slots. Returns what a saved adapter has beside the values of each slot. If one cannot be read, the slots before
    /// it are already overwritten.
    fn set_values(&self, values: &[Location]) -> Result<Vec<Option<Tensor>>> {
        let set =
            |(number, location): (usize, &Location)| self.set_saved(number, &location.read()?.to_dtype(DType::F32)?);
        values.iter().enumerate().map(set).collect()
    }
}

/// The weights file of an adapter's folder: `adapters.safetensors` of mlx-lm if the folder has that file and not
/// PEFT's, else PEFT's `adapter_model.safetensors`, whether it exists or not.
#[must_use]
pub fn weights_file(folder: &Path) -> PathBuf {
    let names = [WEIGHTS, mlx::WEIGHTS];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| folder.join(WEIGHTS))
}

/// Locates the values of the `wanted` names and shapes, in their order, in the weights file `path`. Reads none of them,
/// and leaves out `ignored`, which the file may have beside them. Errors: the file is missing or broken, has more than
/// 100 MiB and 8 bytes for each wanted value, lacks a wanted key or has another one, or a shape differs.
pub(super) fn take_values(
    path: &Path,
    wanted: Vec<(String, Vec<usize>)>,
    ignored: Option<&str>,
) -> Result<Vec<Location>> {
    let numbers = wanted.iter().flat_map(|(_, shape)| shape.iter().copied().reduce(usize::saturating_mul));
    let most =
        numbers.fold(MAX_HEADER_BYTES, |sum, count| sum.saturating_add((count as u64).saturating_mul(LARGEST_NUMBER)));
    let held = std::fs::metadata(path).map_err(|source| Error::file(path, source))?.len();
    if held > most {
        return Err(Error::adapter(path, format!("it has {held} bytes, its settings call for at most {most}")));
    }
    let mut found = safetensors::locate(&[path.to_path_buf()])?;
    let known: HashSet<&String> = wanted.iter().map(|(key, _)| key).collect();
    if let Some(key) = found.keys().find(|key| !known.contains(key) && Some(key.as_str()) != ignored) {
        return Err(Error::adapter(path, format!("it holds `{key}`, which its settings do not call for")));
    }
    let take = |(key, shape): &(String, Vec<usize>)| {
        let location = found.remove(key).ok_or_else(|| Error::adapter(path, format!("`{key}` is missing")))?;
        if location.shape == *shape {
            return Ok(location);
        }
        let is = &location.shape;
        let what = format!("`{key}` has shape {is:?}, the model and its settings need {shape:?}");
        Err(Error::adapter(path, what))
    };
    wanted.iter().map(take).collect()
}

/// Whether the head of the model is the embedding also where settings train the latter whole. PEFT's files have both
/// then.
fn ties_head(model: &Model, settings: &AdapterSettings) -> bool {
    model.configuration.tied && settings.ensure_weight_tying && settings.kind != AdapterKind::Full
}

/// The tensor name of a slot in the weights file: the slot's name, with PEFT's prefix `base_model.model.` unless the
/// kind is full.
fn key(kind: AdapterKind, slot: &str) -> String {
    if kind == AdapterKind::Full { slot.to_owned() } else { format!("{PREFIX}{slot}") }
}

/// The path of the weights file in a folder: `model.safetensors` for kind full, else `adapter_model.safetensors`.
fn values_path(kind: AdapterKind, folder: &Path) -> PathBuf {
    folder.join(if kind == AdapterKind::Full { MODEL } else { WEIGHTS })
}
