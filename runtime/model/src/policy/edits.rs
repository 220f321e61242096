//! Changes of a policy outside training: edits of single weight matrices, and patches of activations.
//!
//! The reference shows neither of them, bit for bit. A snapshot keeps the edits with which it was taken; patches act
//! on [`View::Policy`](super::View::Policy) alone. The arithmetic is in `edit`.

use tunebox_compute::precision::Purpose;
use tunebox_compute::{DType, Tensor, Weight};

use super::Policy;
use crate::adapter::AdapterKind;
use crate::edit::{self, Edits, Form, Matrix, Role};
use crate::error::{Error, Result};
use crate::families::{HEAD, base_name};
use crate::stream::{Patch, Patches, normalize};

impl Policy {
    /// Activates a patch for all later passes through the policy, after those already active. Copies its vector to the
    /// model's device. Returns the patch's number, for [`unpatch`](Self::unpatch); numbers count from 0.
    ///
    /// # Errors
    /// When a layer is not there, the vector is not as long as the hidden dimension, or the device has no room for it.
    pub fn patch(&mut self, patch: Patch) -> Result<u64> {
        let configuration = &self.model.configuration;
        patch.layers.iter().try_for_each(|layer| configuration.check_layer(*layer))?;
        let (found, width) = (patch.vector.elem_count(), configuration.hidden);
        if found != width {
            let what = format!("the vector has `{found}` numbers, the model's stream is `{width}` wide");
            return Err(Error::Argument(what));
        }
        let vector = patch.vector.to_device(self.model.weights.device())?;
        Ok(self.patches.add(Patch { vector, ..patch }))
    }

    /// Deactivates the patch with this number; does nothing if there is none.
    pub fn unpatch(&mut self, number: u64) {
        self.patches.remove(number);
    }

    /// The number of active patches.
    #[must_use]
    pub fn active_patches(&self) -> usize {
        self.patches.count()
    }

    /// Runs `work` on the policy without its patches, as it is saved. They are active again afterwards.
    pub fn without_patches<R>(&mut self, work: impl FnOnce(&Self) -> R) -> R {
        let patches = std::mem::take(&mut self.patches);
        let done = work(self);
        self.patches = patches;
        done
    }

    /// Deactivates every patch. The numbers of later patches start from 0 again.
    pub fn unpatch_all(&mut self) {
        self.patches = Patches::default();
    }

    /// Sets whether later edits replace weights or are held by an adapter. Does nothing if that is the form already.
    ///
    /// # Errors
    /// When there are edits of the other form already, or the form is [`Form::Adapter`] and weights of
    /// the model are trained themselves.
    pub fn keep_edits_as(&mut self, form: Form) -> Result<()> {
        if form != self.edits.form && !self.edits.is_empty() {
            return Err(Error::Argument("edits are kept one way in a run, and some were made already".into()));
        }
        if form == Form::Adapter && self.adapter.trains_weights() {
            let what = "weights of the model are trained themselves, so an edit cannot be an adapter";
            return Err(Error::Unsupported(what.into()));
        }
        self.edits.form = form;
        Ok(())
    }

    /// Whether any weight was edited outside the trained parameters. False for edits of weights that are trained
    /// themselves, which change the trained parameters.
    #[must_use]
    pub fn is_edited(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Whether the form of all edits, past and later, is [`Form::Adapter`].
    #[must_use]
    pub fn edits_are_an_adapter(&self) -> bool {
        self.edits.form == Form::Adapter
    }

    /// The shape of a matrix, `(rows, columns)` = `(out, in)`. `layer` is ignored for the embedding and the head.
    ///
    /// # Errors
    /// When the layer is not there.
    pub fn matrix_shape(&self, role: Role, layer: usize) -> Result<(usize, usize)> {
        let matrix = self.matrix(role, layer)?;
        Ok((matrix.rows, matrix.columns))
    }

    /// The stored matrix of a role; a head that the adapter separates from the embedding is a weight of its own.
    /// Errors: the layer is not there.
    fn matrix(&self, role: Role, layer: usize) -> Result<Matrix> {
        let matrix = Matrix::of(&self.model.configuration, role, layer)?;
        let is_separate = role == Role::Head && self.adapter.separates_head();
        Ok(if is_separate { Matrix { name: HEAD.into(), ..matrix } } else { matrix })
    }

    /// The edits so far.
    pub(crate) fn edits(&self) -> &Edits {
        &self.edits
    }

    /// Reads `count` rows of a matrix from row `first` on, with edits and training applied but not low-rank factors:
    /// `[count, in]`, `f32`, on the CPU. If the model is quantized while it is read, unedited rows
    /// are rounded so.
    ///
    /// # Errors
    /// When the layer or a row is not there, or `count` is 0.
    pub fn read_rows(&self, role: Role, layer: usize, first: usize, count: usize) -> Result<Tensor> {
        let matrix = self.matrix(role, layer)?;
        if count == 0 || first.checked_add(count).is_none_or(|end| end > matrix.rows) {
            return Err(Error::Argument(format!("the matrix has rows 0 to {}", matrix.rows.saturating_sub(1))));
        }
        Ok(self.stored_weight(&matrix.name)?.rows(matrix.first + first, count)?)
    }

    /// Edits a matrix: W ← W + `scale` · left·rightᵀ, with `left` `[out]` and `right` `[in]`. Counts as an update.
    ///
    /// # Errors
    /// When the layer is not there, `left` does not have as many values as the matrix has rows, `right` not as many as
    /// it has columns, or the matrix cannot be edited: a DoRA module is on it, the model is quantized while it is read
    /// and the edit would not be held by an adapter alone, or, if edits are held by an adapter ([`Form::Adapter`]), it
    /// is the embedding or the output head or has the maximum number of edits.
    pub fn add_outer(&mut self, role: Role, layer: usize, left: &[f32], right: &[f32], scale: f32) -> Result<()> {
        let matrix = self.editable_matrix(role, layer)?;
        let (Matrix { rows, columns, .. }, out, input) = (&matrix, left.len(), right.len());
        if (out, input) != (*rows, *columns) {
            let what = format!("the matrix is [{rows}, {columns}], the vectors have `{out}` and `{input}` numbers");
            return Err(Error::Argument(what));
        }
        let left: Vec<f32> = left.iter().map(|value| value * scale).collect();
        self.add_product(&matrix, &left, right)
    }

    /// Removes a direction from the outputs of a matrix: W ← W − `strength` · r·rᵀ·W, with r `[out]` the direction
    /// scaled to length 1. For the embedding, whose rows are its outputs: W ← W − `strength` · (W·r)·rᵀ, with r
    /// `[hidden]`. With `keep_norms`, each row is then scaled to its old norm. If edits are held as weights
    /// ([`Form::Weights`]) and the matrix has a bias b, also b ← b − `strength` · r·rᵀ·b. Counts as one update, or as
    /// two if a bias was changed.
    ///
    /// # Errors
    /// When the layer is not there, the length of the direction is 0 or not finite, it has another number of values
    /// than the matrix has outputs, or the matrix cannot be edited, as in [`add_outer`](Self::add_outer). If edits are
    /// held by an adapter ([`Form::Adapter`]), also with `keep_norms`.
    pub fn project_out(
        &mut self,
        role: Role,
        layer: usize,
        direction: &[f32],
        strength: f32,
        keep_norms: bool,
    ) -> Result<()> {
        let matrix = self.editable_matrix(role, layer)?;
        let width = if role == Role::Embedding { matrix.columns } else { matrix.rows };
        if direction.len() != width {
            let found = direction.len();
            return Err(Error::Argument(format!("the direction has `{found}` numbers, the matrix writes `{width}`")));
        }
        let weight = self.weight(&matrix.name)?;
        let direction = Tensor::from_vec(normalize(direction)?, (1, width), weight.device())?;
        if self.edits.form == Form::Adapter {
            return self.project_out_as_adapter(&matrix, &weight, &direction, strength, keep_norms);
        }
        let strength = f64::from(strength);
        let of_rows = role == Role::Embedding;
        let changed = edit::project_out(&weight, &matrix, &direction, strength, keep_norms, of_rows)?;
        self.replace_weight(&matrix.name, changed)?;
        if let Some(bias) = matrix.bias.clone() {
            let values = self.weight(&bias)?.unsqueeze(1)?;
            let column = Matrix { columns: 1, ..matrix };
            let changed = edit::project_out(&values, &column, &direction, strength, false, false)?;
            self.replace_weight(&bias, changed.squeeze(1)?)?;
        }
        Ok(())
    }

    /// Adds −`strength` · r·(rᵀ·W) to a matrix as an edit of rank one that an adapter holds: `weight` is the stored
    /// weight with the matrix's rows, `direction` is r, `[1, out]`, of length 1. Leaves the bias as it is. Errors:
    /// `keep_norms`, which such an adapter cannot hold.
    fn project_out_as_adapter(
        &mut self,
        matrix: &Matrix,
        weight: &Tensor,
        direction: &Tensor,
        strength: f32,
        keep_norms: bool,
    ) -> Result<()> {
        if keep_norms {
            return Err(Error::Unsupported(
                "`keep-norms` gives every row its own factor, which an adapter of rank one cannot hold".into(),
            ));
        }
        let right = edit::component_along(weight, matrix, direction)?.flatten_all()?.to_vec1::<f32>()?;
        let left = direction.flatten_all()?.to_vec1::<f32>()?;
        let left: Vec<f32> = left.iter().map(|value| -strength * value).collect();
        self.add_product(matrix, &left, &right)
    }

    /// Adds left·rightᵀ to a matrix, with `left` `[out]` and `right` `[in]`, and counts an update. Replaces the stored
    /// weight by one of the same type; or, if edits are held by an adapter, records the two vectors as a factor, `left`
    /// padded with zeros to all rows of the stored weight, and replaces the weight by an `f32` one, with which passes
    /// run. Errors: the maximum number of factors of this map.
    fn add_product(&mut self, matrix: &Matrix, left: &[f32], right: &[f32]) -> Result<()> {
        let weight = self.weight(&matrix.name)?;
        let device = weight.device();
        let column = Tensor::from_slice(left, (left.len(), 1), device)?;
        let row = Tensor::from_slice(right, (1, right.len()), device)?;
        let Some(place) = matrix.place.filter(|_| self.edits.form == Form::Adapter) else {
            let changed = edit::add_outer(&weight, matrix, &column, &row, weight.dtype())?;
            return self.replace_weight(&matrix.name, changed);
        };
        let changed = edit::add_outer(&weight, matrix, &column, &row, DType::F32)?;
        let mut padded = vec![0.0; weight.dim(0)?];
        padded[matrix.first..matrix.first + left.len()].copy_from_slice(left);
        let factor = (Tensor::from_slice(&padded, padded.len(), device)?, row.squeeze(0)?);
        self.edits.record_factor(place, factor)?;
        self.replace_weight(&matrix.name, changed)
    }

    /// Finds the matrix of a role and checks that it can be edited. Errors: no such layer; a model that is quantized
    /// while it is read, unless edits are held by an adapter and nothing is trained, since the edit could only be
    /// written as a whole model with rounded matrices; the embedding or the output head while edits are held by an
    /// adapter; or a matrix with a DoRA module, which holds the norms of its rows.
    fn editable_matrix(&self, role: Role, layer: usize) -> Result<Matrix> {
        let whole = self.edits.form == Form::Weights || self.adapter.trainable() > 0;
        let base = self.model.weights.precision().base();
        if whole && !base.is_stored() {
            return Err(Error::Unsupported(format!(
                "such an edit is written as a whole model, all of which would be rounded to `{base}`: keep edits as an \
                 adapter and train none beside them, or leave `model.precision` out"
            )));
        }
        let matrix = self.matrix(role, layer)?;
        if self.edits.form == Form::Adapter && matrix.place.is_none() {
            return Err(Error::Unsupported("an adapter sits on the linear maps of blocks, not on this matrix".into()));
        }
        let lengths = self.adapter.settings().kind == AdapterKind::Dora;
        if lengths && matrix.place.is_some_and(|(layer, site)| self.adapter.module(layer, site).is_some()) {
            return Err(Error::Unsupported(
                "a DoRA adapter holds the lengths of the rows that the edit would change; use `lora`".into(),
            ));
        }
        Ok(matrix)
    }

    /// The weight of this name as a CPU tensor, in `f32` if it is stored quantized, with edits and training applied
    /// but not low-rank factors.
    fn weight(&self, name: &str) -> Result<Tensor> {
        Ok(self.stored_weight(name)?.to_tensor()?)
    }

    /// A weight on the CPU in its stored format, with edits and training applied but not low-rank factors.
    fn stored_weight(&self, name: &str) -> Result<Weight> {
        if let Some(slot) = self.adapter.parameters().index(name) {
            return Ok(self.adapter.parameters().value_on_cpu(slot)?.into());
        }
        let base = || self.model.weights.on_host(base_name(&self.model.configuration, name));
        self.edits.get(name).map_or_else(base, |edited| Ok(edited.into()))
    }

    /// Copies an edited weight to the model's accelerator, unquantized: a vector in `f32`, a matrix in the type of
    /// plain matrices there. On the CPU, returns the weight as it is.
    pub(super) fn place_on_device(&self, weight: &Tensor) -> Result<Weight> {
        let purpose = if weight.rank() == 1 { Purpose::Vector } else { Purpose::Vocabulary };
        let (device, dtype) = (self.model.weights.device(), self.precision().dtype(purpose));
        Ok(Weight::from(weight.clone()).to_device(device, dtype)?)
    }

    /// Replaces a weight, in the trained parameters if it is trained itself, else among the edits, and counts an
    /// update.
    fn replace_weight(&mut self, name: &str, weight: Tensor) -> Result<()> {
        let parameters = self.adapter.parameters();
        match parameters.index(name) {
            Some(slot) => parameters.set(slot, &weight)?,
            None => {
                let placed = self.place_on_device(&weight)?;
                self.edits.changed.insert(name.to_owned(), (weight, placed));
            }
        }
        self.note_update();
        Ok(())
    }
}
