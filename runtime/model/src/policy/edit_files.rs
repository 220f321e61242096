//! Converts the edits of a policy to a LoRA adapter, and saves and restores them in checkpoints.
//!
//! `merge` writes the whole edited model.

use std::collections::BTreeMap;
use std::path::Path;

use tunebox_compute::Tensor;

use super::Policy;
use crate::adapter::{Adapter, AdapterKind, AdapterSettings, Targets};
use crate::decoder::Site;
use crate::edit::{Edits, Form};
use crate::error::{Error, Result};
use crate::families;
use crate::files::{self, TensorSpec};
use crate::weights::{Location, safetensors};

/// The file of a checkpoint that holds edited weights.
const EDITS: &str = "edits.safetensors";

impl Policy {
    /// Builds a LoRA adapter that holds the edits: each edited linear map gets a module with one rank for each of its
    /// edits and scale 1. `None` if there are no edits, or they are held as weights ([`Form::Weights`]).
    ///
    /// # Errors
    /// When the device fails.
    pub fn edits_as_adapter(&self) -> Result<Option<Adapter>> {
        let factors = &self.edits.factors;
        let Some(rank) = factors.values().map(Vec::len).max() else { return Ok(None) };
        let names = factors.keys().map(|(layer, site)| site.path(*layer)).collect();
        let settings = AdapterSettings {
            kind: AdapterKind::Lora,
            rank,
            alpha: rank as f64,
            targets: Targets::Modules(names),
            ..AdapterSettings::default()
        };
        Adapter::from_outer_products(&self.model, &settings, factors).map(Some)
    }

    /// Writes the edits to `edits.safetensors` in a folder. Without edits, writes a file without tensors if later edits
    /// are to be held by an adapter ([`Form::Adapter`]), else no file. Replaces a file of this name, which stays if
    /// none is written.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_edits(&self, folder: &Path) -> Result<()> {
        write_edits(&self.edits, &folder.join(EDITS))
    }

    /// Writes the edits of a snapshot to the safetensors file `path`. Without edits, writes a file without tensors if
    /// the form of the snapshot's edits is [`Form::Adapter`], else no file. Replaces a file of this name, which stays
    /// if none is written.
    ///
    /// # Errors
    /// When there is no such snapshot, or the file cannot be written.
    pub fn save_snapshot_edits(&self, name: &str, path: &Path) -> Result<()> {
        let snapshot = self.snapshots.get(name).ok_or_else(|| self.no_snapshot(name))?;
        write_edits(&snapshot.1, path)
    }

    /// Replaces the edits, and the [`Form`] of later ones, by those of a checkpoint folder. If the folder has no file
    /// of edits, the policy's edits stay; if the policy has none either, the form becomes [`Form::Weights`]. Does not
    /// count as an update.
    ///
    /// # Errors
    /// When the file cannot be read or is not whole safetensors, a tensor in it has a name or shape that this model has
    /// no place for, or a factor lacks one of its two vectors. The policy's edits then stay.
    pub fn restore_edits(&mut self, folder: &Path) -> Result<()> {
        match self.read_edits(&folder.join(EDITS))? {
            Some(edits) => self.edits = edits,
            None if self.edits.is_empty() => self.edits.form = Form::default(),
            None => {}
        }
        Ok(())
    }

    /// Stores a snapshot of the trained values as they are now, with the edits in the file `path` that
    /// [`save_snapshot_edits`](Self::save_snapshot_edits) wrote; with no edits if there is no file. Replaces an earlier
    /// snapshot of this name.
    ///
    /// # Errors
    /// When the edits cannot be read, as in [`restore_edits`](Self::restore_edits). An earlier snapshot then stays.
    pub fn restore_snapshot(&mut self, name: &str, path: &Path) -> Result<()> {
        let edits = self.read_edits(path)?.unwrap_or_default();
        self.keep_snapshot(name, edits)
    }

    /// Reads the edits in a file and copies edited weights to the model's device; `None` if there is no file. The form
    /// is [`Form::Adapter`] if the file holds factors or no tensor at all, else [`Form::Weights`]. Errors: the file
    /// cannot be read or is not whole safetensors, a tensor has a name or shape that this model has no place for, or
    /// [`read_factors`](Self::read_factors) fails.
    fn read_edits(&self, path: &Path) -> Result<Option<Edits>> {
        if !path.is_file() {
            return Ok(None);
        }
        let configuration = &self.model.configuration;
        let mut found = safetensors::locate(&[path.to_owned()])?;
        // A file without tensors says that later edits are to be held by an adapter.
        let form = if found.is_empty() { Form::Adapter } else { Form::default() };
        let mut edits = Edits { form, ..Edits::default() };
        for layer in 0..configuration.layers {
            for site in Site::all(configuration) {
                self.read_factors(path, &mut found, (layer, site), &mut edits)?;
            }
        }
        let weights: BTreeMap<String, Vec<usize>> = families::weight_shapes(configuration).into_iter().collect();
        for (name, location) in found {
            let wanted = weights
                .get(&name)
                .ok_or_else(|| Error::adapter(path, format!("the edits are of another model: here is no `{name}`")))?;
            let tensor = read_shaped(&location, wanted)?;
            let placed = self.place_on_device(&tensor)?;
            edits.changed.insert(name, (tensor, placed));
        }
        Ok(Some(edits))
    }

    /// Moves the factors of one linear map, left and right vectors, from `tensors`, those of a file by name, to the
    /// edits, in the order of their numbers from 0 to the first number that is not there, and sets the form to
    /// [`Form::Adapter`] if there are any. Errors: a factor of another shape, a left vector without its right one or
    /// the reverse, or more factors than one map may have. `path` is the file, for messages.
    fn read_factors(
        &self,
        path: &Path,
        tensors: &mut BTreeMap<String, Location>,
        (layer, site): (usize, Site),
        edits: &mut Edits,
    ) -> Result<()> {
        let (rows, columns) = site.shape(&self.model.configuration);
        for number in 0.. {
            let mut read = |side, length| {
                let location = tensors.remove(&factor_name(layer, site, number, side));
                location.map(|location| read_shaped(&location, &[length])).transpose()
            };
            match (read("left", rows)?, read("right", columns)?) {
                (Some(left), Some(right)) => edits.record_factor((layer, site), (left, right))?,
                (None, None) => break,
                _ => return Err(Error::broken(path, "an edit has one of its two sides alone")),
            }
            edits.form = Form::Adapter;
        }
        Ok(())
    }
}

/// Reads a tensor of a file of edits as it is stored, after a check that its shape is `wanted`, so that a tensor of the
/// wrong size is never read. Errors: another shape.
fn read_shaped(location: &Location, wanted: &[usize]) -> Result<Tensor> {
    let (name, shape) = (&location.name, &location.shape);
    if shape != wanted {
        let what = format!("the edits are of another model: `{name}` is {shape:?}, here {wanted:?}");
        return Err(Error::adapter(&location.path, what));
    }
    location.read()
}

/// The name in `edits.safetensors` of one vector of an edit that an adapter holds. `number` counts the edits of a
/// linear map from 0; `side` is `left` or `right`.
fn factor_name(layer: usize, site: Site, number: usize, side: &str) -> String {
    format!("factor.{layer}.{}.{number:04}.{side}", site.short_name())
}

/// Writes all edited weights, in their own types, and all adapter factors to a safetensors file. Without edits, writes
/// a file without tensors if the form is [`Form::Adapter`], else no file. Replaces a file of this name.
fn write_edits(edits: &Edits, path: &Path) -> Result<()> {
    if edits.is_empty() && edits.form == Form::Weights {
        return Ok(());
    }
    let changed = edits.changed.iter().map(|(name, (tensor, _))| (name.clone(), tensor));
    let mut list: Vec<(String, &Tensor)> = changed.collect();
    for ((layer, site), factors) in &edits.factors {
        for (number, (left, right)) in factors.iter().enumerate() {
            for (side, tensor) in [("left", left), ("right", right)] {
                list.push((factor_name(*layer, *site, number, side), tensor));
            }
        }
    }
    let stored = |(name, tensor): &(String, &Tensor)| {
        let (name, shape) = (name.clone(), tensor.dims().to_vec());
        TensorSpec { name, shape, dtype: tensor.dtype() }
    };
    let stored: Vec<TensorSpec> = list.iter().map(stored).collect();
    files::write_tensors(path, &stored, None, |number| Ok(list[number].1.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::Role;
    use crate::tiny;

    fn edit(policy: &mut Policy) {
        policy.add_outer(Role::Linear(Site::Down), 1, &[1.0; 16], &[1.0; 24], 0.5).unwrap();
    }

    /// The first value of the edited matrix in a snapshot; `None` if the snapshot has not edited it.
    fn first(policy: &Policy, snapshot: &str) -> Option<f32> {
        let edited = policy.snapshots[snapshot].1.get("model.layers.1.mlp.down_proj.weight")?;
        Some(tiny::numbers(&edited)[0])
    }

    #[test]
    fn a_snapshot_comes_back_with_what_was_edited_when_it_was_taken() {
        let (folder, names) = (tempfile::tempdir().unwrap(), ["before", "once", "twice"]);
        let mut taken = tiny::plain(tiny::llama());
        for name in names {
            taken.snapshot(name).unwrap();
            edit(&mut taken);
        }
        for name in names {
            taken.save_snapshot_edits(name, &folder.path().join(name)).unwrap();
        }
        assert!(!folder.path().join("before").exists());
        assert!(taken.save_snapshot_edits("other", &folder.path().join("other")).is_err());

        let mut resumed = tiny::plain(tiny::llama());
        edit(&mut resumed);
        for name in names {
            resumed.restore_snapshot(name, &folder.path().join(name)).unwrap();
            assert_eq!(first(&resumed, name), first(&taken, name), "{name}");
        }
        assert!(first(&taken, "before").is_none() && first(&taken, "once") != first(&taken, "twice"));
    }
}
