//! Edits of single weight matrices outside training: how they are computed and recorded.
//!
//! Edits are computed on the CPU in `f32`, whatever the device and the dtype of the model. The weights of the base
//! never change, so a view of the base never sees an edit. `policy` knows which edits belong to which policy.

use std::collections::BTreeMap;

use tunebox_compute::{DType, Tensor, Weight};

use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};
use crate::families::{EMBEDDING, HEAD, base_name};

/// How many rows of a matrix are converted to `f32` at a time.
const BLOCK: usize = 4_096;

/// The most edits of one matrix that are recorded as outer products, for an adapter.
const MOST_FACTORS: usize = 256;

/// What a matrix does in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The embedding, `[vocabulary, hidden]`.
    Embedding,
    /// A linear map of a block. The parts of a fused matrix are edited by their own sites.
    Linear(Site),
    /// The output head, `[vocabulary, hidden]`; the embedding matrix if the two are tied.
    Head,
}

/// How edits are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// As edited weights, which replace the original ones.
    #[default]
    Weights,
    /// As outer products, which are saved as an adapter beside the original weights, with one rank for each edit.
    Adapter,
}

/// A matrix of the model as rows of a stored weight: all of its rows, unless the checkpoint fuses several matrices.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// The name of the stored weight.
    pub(crate) name: String,
    /// The name of the stored bias of a linear map; `None` if the map has none.
    pub(crate) bias: Option<String>,
    /// The layer and the stored linear map; `None` for the embedding and the head.
    pub(crate) place: Option<(usize, Site)>,
    /// The first row in the stored weight.
    pub(crate) first: usize,
    /// The number of rows: the output dimension of a linear map.
    pub rows: usize,
    /// The number of columns: the input dimension of a linear map.
    pub columns: usize,
}

impl Matrix {
    /// Finds the matrix of a role: the names of the stored weight and its bias, and the rows of the weight that belong
    /// to the role. A tied head is the embedding. `layer` is ignored for the embedding and the head, which have no
    /// bias.
    ///
    /// # Errors
    /// When the model has no such layer, or the matrix is in its experts.
    pub fn of(configuration: &Configuration, role: Role, layer: usize) -> Result<Self> {
        let (vocabulary, columns) = (configuration.vocabulary, configuration.hidden);
        let whole =
            |name: &str| Self { name: name.into(), bias: None, place: None, first: 0, rows: vocabulary, columns };
        let site = match role {
            Role::Embedding => return Ok(whole(EMBEDDING)),
            Role::Head => return Ok(whole(base_name(configuration, HEAD))),
            Role::Linear(site) => site,
        };
        configuration.check_layer(layer)?;
        if configuration.experts.is_some() && !Site::all(configuration).contains(&site) {
            let name = site.short_name();
            let what =
                format!("`{name}` of this model is in every one of its experts, whose matrices cannot be edited");
            return Err(Error::Unsupported(what));
        }
        let rows = site.shape(configuration).0;
        let (stored, first) = Self::locate_in_stored_map(configuration, site);
        let path = stored.path(layer);
        let bias = stored.has_bias(configuration).then(|| format!("{path}.bias"));
        let (name, columns) = (format!("{path}.weight"), stored.shape(configuration).1);
        Ok(Self { name, bias, place: Some((layer, stored)), first, rows, columns })
    }

    /// Returns the stored linear map that holds the rows of `site`, and the index of the site's first row in it. For a
    /// site that is stored alone, returns `site` and 0.
    fn locate_in_stored_map(configuration: &Configuration, site: Site) -> (Site, usize) {
        let rows = |site: Site| site.shape(configuration).0;
        match (site, configuration.fused_query_key_value, configuration.fused_gate_up) {
            (Site::Query, true, _) => (Site::QueryKeyValue, 0),
            (Site::Key, true, _) => (Site::QueryKeyValue, rows(Site::Query)),
            (Site::Value, true, _) => (Site::QueryKeyValue, rows(Site::Query) + rows(Site::Key)),
            (Site::Gate, _, true) => (Site::GateUp, 0),
            (Site::Up, _, true) => (Site::GateUp, rows(Site::Gate)),
            _ => (site, 0),
        }
    }
}

/// The vectors of one outer product left·rightᵀ that an edit adds to a weight: left `[out]` and right `[in]`, on the
/// CPU.
pub(crate) type Factor = (Tensor, Tensor);

/// Outer products by layer and linear map, in the order of the edits.
pub(crate) type Factors = BTreeMap<(usize, Site), Vec<Factor>>;

/// All edits of one policy. A copy shares the tensors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits {
    pub(crate) form: Form,
    /// Every edited weight by its name: on the CPU, and on the model's device.
    pub(crate) changed: BTreeMap<String, (Tensor, Weight)>,
    /// The outer products of the edits, by layer and linear map; empty for [`Form::Weights`].
    pub(crate) factors: Factors,
}

impl Edits {
    /// The edited weight of this name, on the CPU; `None` if it was not edited.
    pub(crate) fn get(&self, name: &str) -> Option<Tensor> {
        self.changed.get(name).map(|(weight, _)| weight.clone())
    }

    /// The edited weight of this name, on the model's device; `None` if it was not edited.
    pub(crate) fn get_on_device(&self, name: &str) -> Option<Weight> {
        self.changed.get(name).map(|(_, placed)| placed.clone())
    }

    /// Whether no weight was edited.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Appends the outer product of an edit to those of the linear map `place`, a layer and its map. Errors: the map
    /// has [`MOST_FACTORS`] already.
    pub(crate) fn record_factor(&mut self, place: (usize, Site), factor: Factor) -> Result<()> {
        let list = self.factors.entry(place).or_default();
        if list.len() >= MOST_FACTORS {
            return Err(Error::Argument(format!("an adapter holds at most {MOST_FACTORS} edits of one matrix")));
        }
        list.push(factor);
        Ok(())
    }
}

/// Returns a copy of the stored `weight` in which left·right is added to the rows of `matrix`: `left` is `[rows, 1]`,
/// `right` `[1, in]`, both `f32`. Sums in `f32` and stores the copy as `dtype`.
pub(crate) fn add_outer(
    weight: &Tensor,
    matrix: &Matrix,
    left: &Tensor,
    right: &Tensor,
    dtype: DType,
) -> Result<Tensor> {
    change_rows(weight, matrix, dtype, |at, block| {
        let left = left.narrow(0, at, block.dim(0)?)?;
        Ok((block + left.matmul(right)?)?)
    })
}

/// Computes rᵀ·W, `[1, in]`, in `f32`, where r is `direction`, `[1, rows]`, and W the rows of `weight` that belong to
/// `matrix`.
pub(crate) fn component_along(weight: &Tensor, matrix: &Matrix, direction: &Tensor) -> Result<Tensor> {
    let mut total = Tensor::zeros((1, matrix.columns), DType::F32, weight.device())?;
    for at in (0..matrix.rows).step_by(BLOCK) {
        let rows = BLOCK.min(matrix.rows - at);
        let block = weight.narrow(0, matrix.first + at, rows)?.to_dtype(DType::F32)?;
        total = (total + direction.narrow(1, at, rows)?.contiguous()?.matmul(&block)?)?;
    }
    Ok(total)
}

/// Returns a copy of `weight` in which the component along `direction` is reduced by the share `strength`. `direction`
/// r is a vector of length 1. It is removed from the columns of `matrix`, W − strength · r·rᵀ·W, with r `[1, rows]`;
/// or, with `of_rows`, from its rows, W − strength · (W·r)·rᵀ, with r `[1, columns]`. `keep_norms` then rescales each
/// row to its old Euclidean norm. Computes in `f32`; the copy has the type of `weight`.
pub(crate) fn project_out(
    weight: &Tensor,
    matrix: &Matrix,
    direction: &Tensor,
    strength: f64,
    keep_norms: bool,
    of_rows: bool,
) -> Result<Tensor> {
    let column = direction.t()?.contiguous()?;
    let right = if of_rows { direction.clone() } else { component_along(weight, matrix, direction)? };
    let right = (right * strength)?;
    change_rows(weight, matrix, weight.dtype(), |at, block| {
        let left = if of_rows { block.matmul(&column)? } else { column.narrow(0, at, block.dim(0)?)? };
        let changed = (block - left.matmul(&right)?)?;
        if keep_norms { restore_row_norms(&changed, block) } else { Ok(changed) }
    })
}

/// Scales each row of `changed` `[rows, in]` to the Euclidean norm of that row in `before` `[rows, in]`. A row of zeros
/// stays zero.
fn restore_row_norms(changed: &Tensor, before: &Tensor) -> Result<Tensor> {
    let squares = |rows: &Tensor| rows.sqr()?.sum_keepdim(1);
    let (now, then) = (squares(changed)?, squares(before)?);
    let factor = (then / now.maximum(f32::MIN_POSITIVE)?)?.sqrt()?;
    Ok(changed.broadcast_mul(&factor)?)
}

/// Copies a stored weight as `dtype`, with the rows of `matrix` replaced by what `change` returns for them. Calls
/// `change` for blocks of at most [`BLOCK`] rows, in `f32` and in order, with the index within the matrix of the
/// block's first row, and the block. Other rows of the weight are only converted.
fn change_rows(
    weight: &Tensor,
    matrix: &Matrix,
    dtype: DType,
    change: impl Fn(usize, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let changed = Tensor::zeros(weight.dims(), dtype, weight.device())?;
    for others in [0..matrix.first, matrix.first + matrix.rows..weight.dim(0)?] {
        if !others.is_empty() {
            let rows = weight.narrow(0, others.start, others.len())?.to_dtype(dtype)?;
            changed.slice_set(&rows.contiguous()?, 0, others.start)?;
        }
    }
    for at in (0..matrix.rows).step_by(BLOCK) {
        let first = matrix.first + at;
        let block = weight.narrow(0, first, BLOCK.min(matrix.rows - at))?.to_dtype(DType::F32)?;
        changed.slice_set(&change(at, &block.contiguous()?)?.to_dtype(dtype)?, 0, first)?;
    }
    Ok(changed)
}
