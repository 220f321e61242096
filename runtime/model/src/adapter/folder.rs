//! An adapter in a folder: `adapter_model.safetensors` beside `adapter_config.json`, names as PEFT's;
//! all weights as one `model.safetensors` in `f32`. Unknown and missing keys are errors: PEFT itself
//! loads a wrong prefix as an adapter of zeros. Files appear whole or not at all.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tunebox_compute::DType;
use tunebox_compute::parameters::Slot;
use tunebox_foundation::files::create_folder;

use super::create::ModulePlan;
use super::settings::AdapterKind;
use super::{Adapter, create, peft};
use crate::Model;
use crate::error::{Error, Result};
use crate::files::{self, TensorSpec};
use crate::weights::safetensors;

/// The file with an adapter's numbers.
const WEIGHTS: &str = "adapter_model.safetensors";
/// The file with an adapter's settings.
const SETTINGS: &str = "adapter_config.json";
/// The file with all weights.
const MODEL: &str = "model.safetensors";
/// The most bytes that a file has for each number.
const LARGEST_NUMBER: u64 = 8;
/// The most bytes of what stands before the numbers.
const LARGEST_HEAD: u64 = 100 << 20;
/// What PEFT puts before every module path.
const PREFIX: &str = "base_model.model.";

/// Checks, before the adapter is allocated, that its weights file is large enough for the planned values at 2 bytes
/// each. Errors: the file is smaller, or its size cannot be read.
fn check_file_size(model: &Model, plans: &[ModulePlan], folder: &Path) -> Result<()> {
    let path = folder.join(WEIGHTS);
    let held = std::fs::metadata(&path).map_err(|source| Error::file(&path, source))?.len();
    let values = plans.iter().fold(0_u64, |sum, plan| {
        let (rows, columns) = plan.place.1.shape(&model.configuration);
        sum.saturating_add((plan.rank as u64).saturating_mul(rows as u64 + columns as u64))
    });
    // 16 bits are the smallest number that is read.
    if values.saturating_mul(2) <= held {
        return Ok(());
    }
    Err(Error::adapter(&path, format!("its settings call for {values} numbers, the file has {held} bytes")))
}

impl Adapter {
    /// Reads an adapter, with its settings and values, from a PEFT folder onto the model's device. Does not read
    /// folders of kind full.
    ///
    /// # Errors
    /// When a file is missing or broken, or its keys or shapes are not exactly those that its settings call for in this
    /// model.
    pub fn load(model: &Model, folder: &Path) -> Result<Self> {
        let (settings, plans) = peft::read(&folder.join(SETTINGS), &model.configuration)?;
        check_file_size(model, &plans, folder)?;
        let adapter = create::zeros(model, &settings, &plans)?;
        adapter.read_values(folder)?;
        Ok(adapter)
    }

    /// Writes the adapter's weights file and, unless the kind is full, its `adapter_config.json` into a folder, which
    /// is created if needed. Values are `f32`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, model: &Model, folder: &Path) -> Result<()> {
        create_folder(folder)?;
        let slots = self.parameters.slots();
        let stored =
            |slot: &Slot| TensorSpec { name: self.key(&slot.name), shape: slot.shape.clone(), dtype: DType::F32 };
        let list: Vec<TensorSpec> = slots.iter().map(stored).collect();
        let tensor = |number| Ok(self.parameters.value_on_cpu(number)?);
        files::write_tensors(&self.values_path(folder), &list, None, tensor)?;
        if self.settings.kind == AdapterKind::Full {
            return Ok(());
        }
        files::write(&folder.join(SETTINGS), peft::write(self, &model.name))
    }

    /// Reads the weights file of a folder into this adapter's slots, as `f32`.
    ///
    /// # Errors
    /// When the file is missing, too large or broken, a key is missing or unknown, or a shape differs. Slots before the
    /// one that fails are already overwritten.
    pub(crate) fn read_values(&self, folder: &Path) -> Result<()> {
        let path = self.values_path(folder);
        let failed = |source| Error::file(&path, source);
        let most = (self.parameters.len() as u64).saturating_mul(LARGEST_NUMBER).saturating_add(LARGEST_HEAD);
        if std::fs::metadata(&path).map_err(failed)?.len() > most {
            return Err(failed(ErrorKind::FileTooLarge.into()));
        }
        let mut found = safetensors::locate(std::slice::from_ref(&path))?;
        let slots = self.parameters.slots();
        let wanted: Vec<String> = slots.iter().map(|slot| self.key(&slot.name)).collect();
        if let Some(key) = found.keys().find(|key| !wanted.contains(key)) {
            return Err(Error::adapter(&path, format!("it holds `{key}`, which its settings do not call for")));
        }
        for (number, (key, slot)) in wanted.iter().zip(slots).enumerate() {
            let missing = || Error::adapter(&path, format!("`{key}` is missing"));
            let location = found.remove(key).ok_or_else(missing)?;
            if location.shape != slot.shape {
                let (is, wanted) = (&location.shape, &slot.shape);
                let what = format!("`{key}` has shape {is:?}, the model and its settings need {wanted:?}");
                return Err(Error::adapter(&path, what));
            }
            self.parameters.set(number, &location.read()?.to_dtype(DType::F32)?)?;
        }
        Ok(())
    }

    /// The tensor name of a slot in the weights file: the slot's name, with PEFT's prefix `base_model.model.` unless
    /// the kind is full.
    fn key(&self, slot: &str) -> String {
        if self.settings.kind == AdapterKind::Full { slot.to_owned() } else { format!("{PREFIX}{slot}") }
    }

    /// The path of the weights file in a folder: `model.safetensors` for kind full, else `adapter_model.safetensors`.
    fn values_path(&self, folder: &Path) -> PathBuf {
        folder.join(if self.settings.kind == AdapterKind::Full { MODEL } else { WEIGHTS })
    }
}
