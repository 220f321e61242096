//! Edits of a policy as files: an adapter in PEFT's layout, and what a checkpoint keeps of them.
//!
//! A whole edited model is `merge`'s to write.

use std::path::Path;

use tunebox_compute::{DType, Device, Tensor};

use super::Policy;
use crate::adapter::{Adapter, AdapterKind, AdapterSettings, Targets};
use crate::decoder::Site;
use crate::edit::{Edits, Form};
use crate::error::{Error, Result};
use crate::files::{self, Stored};
use crate::weights::safetensors as stored;

/// The file of a checkpoint that holds edited weights.
const EDITS: &str = "edits.safetensors";

/// How the names of an adapter's edits begin in a checkpoint.
const FACTOR: &str = "factor.";

impl Policy {
    /// The edits as an adapter in PEFT's layout; none where weights themselves were changed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn edits_as_adapter(&self) -> Result<Option<Adapter>> {
        let factors = self.edits.factors();
        let Some(rank) = factors.values().map(Vec::len).max() else { return Ok(None) };
        let names = factors.keys().map(|(layer, site)| site.path(*layer)).collect();
        let settings = AdapterSettings {
            kind: AdapterKind::Lora,
            rank,
            alpha: rank as f64,
            targets: Targets::Modules(names),
            ..AdapterSettings::default()
        };
        Adapter::of_products(&self.model, &settings, factors).map(Some)
    }

    /// Writes the edited weights into a checkpoint; nothing where there are none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_edits(&self, folder: &Path) -> Result<()> {
        if self.edits.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        for (name, tensor) in self.edits.changed() {
            list.push((Stored { name: name.clone(), shape: tensor.dims().to_vec(), dtype: tensor.dtype() }, tensor));
        }
        for ((layer, site), factors) in self.edits.factors() {
            for (number, (left, right)) in factors.iter().enumerate() {
                for (side, tensor) in [("left", left), ("right", right)] {
                    let name = format!("{FACTOR}{layer}.{}.{number:04}.{side}", site.short_name());
                    list.push((Stored { name, shape: tensor.dims().to_vec(), dtype: DType::F32 }, tensor));
                }
            }
        }
        let (list, tensors): (Vec<Stored>, Vec<&Tensor>) = list.into_iter().unzip();
        files::write_tensors(&folder.join(EDITS), &list, |number| Ok(tensors[number].clone()))
    }

    /// Reads the edited weights of a checkpoint, if it has any.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn restore_edits(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(EDITS);
        if !path.is_file() {
            return Ok(());
        }
        let mut edits = Edits::default();
        let mut sides: Vec<((usize, Site), Tensor)> = Vec::new();
        for (name, location) in stored::locate(std::slice::from_ref(&path))? {
            let tensor = stored::read(&name, &location, &Device::Cpu)?;
            match name.strip_prefix(FACTOR) {
                None => {
                    let placed = self.placed(&tensor)?;
                    edits.set(&name, tensor, placed);
                }
                Some(rest) => sides.push((place_of(rest).ok_or_else(|| Error::broken(&path, name.clone()))?, tensor)),
            }
        }
        // Names are sorted, so each left is followed by its right.
        for pair in sides.chunks_exact(2) {
            edits.note(pair[0].0, (pair[0].1.clone(), pair[1].1.clone()))?;
            edits.form = Form::Adapter;
        }
        self.edits = edits;
        Ok(())
    }
}

/// The place in `LAYER.MODULE.NUMBER.SIDE`.
fn place_of(rest: &str) -> Option<(usize, Site)> {
    let mut parts = rest.split('.');
    let (layer, module) = (parts.next()?.parse().ok()?, parts.next()?);
    Some((layer, Site::EVERY.into_iter().find(|site| site.short_name() == module)?))
}
