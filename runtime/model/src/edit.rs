//! Edits of single weight matrices outside training: their arithmetic, and the record of them.
//!
//! Sums are in `f32` whatever a weight is stored in; the result is stored like the weight. The base stays as it
//! was opened, so a view of the base never sees an edit. Edits are made on the CPU, whatever device computes. Which policy
//! an edit belongs to is `policy`'s business.

use std::collections::BTreeMap;

use tunebox_compute::{DType, Tensor, Weight};

use crate::configuration::Configuration;
use crate::decoder::site::Site;
use crate::error::{Error, Result};

/// Rows of a matrix that are widened to `f32` at a time.
const BLOCK: usize = 4_096;

/// Edits of one matrix that an adapter holds beside it.
const MOST_FACTORS: usize = 256;

/// What a matrix does in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Tokens to the stream, `[vocabulary, hidden]`.
    Embedding,
    /// A linear map of a block. The parts of a joined matrix are edited by their own sites.
    Linear(Site),
    /// The stream to logits; the embedding's matrix again where the two are one.
    Head,
}

/// How an edit is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// The weight itself is another.
    #[default]
    Weights,
    /// The weight stays, an adapter beside it holds the difference: one rank an edit.
    Adapter,
}

/// Where a matrix lies: rows of a stored weight, all of them unless the checkpoint joins several matrices.
#[derive(Debug, Clone)]
pub struct Matrix {
    pub(crate) name: String,
    pub(crate) bias: Option<String>,
    pub(crate) place: Option<(usize, Site)>,
    /// The first row in the stored weight.
    pub(crate) first: usize,
    /// Width of what comes out.
    pub rows: usize,
    /// Width of what goes in.
    pub columns: usize,
}

impl Matrix {
    /// Finds the matrix of a role: the stored weight's name and the rows that belong to it. `layer` is ignored for the
    /// embedding and the head.
    ///
    /// # Errors
    /// When the model has no such layer.
    pub fn of(configuration: &Configuration, role: Role, layer: usize) -> Result<Self> {
        let (vocabulary, columns) = (configuration.vocabulary, configuration.hidden);
        let whole =
            |name: &str| Self { name: name.into(), bias: None, place: None, first: 0, rows: vocabulary, columns };
        let site = match role {
            Role::Embedding => return Ok(whole("model.embed_tokens.weight")),
            Role::Head if configuration.tied => return Ok(whole("model.embed_tokens.weight")),
            Role::Head => return Ok(whole("lm_head.weight")),
            Role::Linear(site) => site,
        };
        configuration.check_layer(layer)?;
        let rows = site.shape(configuration).0;
        let (stored, first) = Self::part(configuration, site);
        let path = stored.path(layer);
        let bias = stored.has_bias(configuration).then(|| format!("{path}.bias"));
        let (name, columns) = (format!("{path}.weight"), stored.shape(configuration).1);
        Ok(Self { name, bias, place: Some((layer, stored)), first, rows, columns })
    }

    /// The stored linear map that holds a site, which differs only for fused projections, and the site's first row
    /// there.
    fn part(configuration: &Configuration, site: Site) -> (Site, usize) {
        let rows = |site: Site| site.shape(configuration).0;
        match site {
            _ if !configuration.fused_projections => (site, 0),
            Site::Query => (Site::QueryKeyValue, 0),
            Site::Key => (Site::QueryKeyValue, rows(Site::Query)),
            Site::Value => (Site::QueryKeyValue, rows(Site::Query) + rows(Site::Key)),
            Site::Gate => (Site::GateUp, 0),
            Site::Up => (Site::GateUp, rows(Site::Gate)),
            whole => (whole, 0),
        }
    }
}

/// Left and right of one outer product beside a weight, `[out]` and `[in]`, on the CPU.
pub(crate) type Factor = (Tensor, Tensor);

/// Factors by layer and site.
pub(crate) type Factors = BTreeMap<(usize, Site), Vec<Factor>>;

/// All edits of one policy. A copy shares the tensors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits {
    pub(crate) form: Form,
    /// Every edited weight by its name: on the CPU, and on the device that computes.
    pub(crate) changed: BTreeMap<String, (Tensor, Weight)>,
    /// What an adapter has to hold, by layer and site; empty when weights themselves were changed.
    pub(crate) factors: Factors,
}

impl Edits {
    /// The edited weight of this name, on the CPU; `None` if it was not edited.
    pub(crate) fn get(&self, name: &str) -> Option<Tensor> {
        self.changed.get(name).map(|(weight, _)| weight.clone())
    }

    /// The edited weight of this name, on the device that computes; `None` if it was not edited.
    pub(crate) fn on_device(&self, name: &str) -> Option<Weight> {
        self.changed.get(name).map(|(_, placed)| placed.clone())
    }

    /// Whether no weight was edited.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Appends the outer product of an edit to those of its linear map. Errors: more than [`MOST_FACTORS`] for one map.
    pub(crate) fn record_factor(&mut self, place: (usize, Site), factor: Factor) -> Result<()> {
        let list = self.factors.entry(place).or_default();
        if list.len() >= MOST_FACTORS {
            return Err(Error::Argument(format!("an adapter holds at most {MOST_FACTORS} edits of one matrix")));
        }
        list.push(factor);
        Ok(())
    }
}

/// Returns a copy of `weight` in which left·rightᵀ is added to the rows of `matrix`: `left` is `[rows, 1]`, `right`
/// `[1, in]`, both `f32`. The copy is stored as `dtype`.
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

/// rᵀ·W over the rows of `matrix`: `[1, in]`, `f32`, for `direction` r, `[1, rows]`.
pub(crate) fn component_along(weight: &Tensor, matrix: &Matrix, direction: &Tensor) -> Result<Tensor> {
    let mut total = Tensor::zeros((1, matrix.columns), DType::F32, weight.device())?;
    for at in (0..matrix.rows).step_by(BLOCK) {
        let rows = BLOCK.min(matrix.rows - at);
        let block = weight.narrow(0, matrix.first + at, rows)?.to_dtype(DType::F32)?;
        total = (total + direction.narrow(1, at, rows)?.contiguous()?.matmul(&block)?)?;
    }
    Ok(total)
}

/// Returns a copy of `weight` in which the component along `direction` r, `[1, width]` of length 1, is reduced in the
/// columns of `matrix`, W − strength · r·rᵀ·W, or, with `of_rows`, in its rows, W − strength · (W·r)·rᵀ. `keep_norms`
/// then rescales each row to its old length.
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

/// Scales each row of `changed` to the length of the same row of `before`; rows of length 0 stay 0.
fn restore_row_norms(changed: &Tensor, before: &Tensor) -> Result<Tensor> {
    let squares = |rows: &Tensor| rows.sqr()?.sum_keepdim(1);
    let (now, then) = (squares(changed)?, squares(before)?);
    let factor = (then / now.maximum(f32::MIN_POSITIVE)?)?.sqrt()?;
    Ok(changed.broadcast_mul(&factor)?)
}

/// Copies a weight as `dtype` with the rows of `matrix` replaced by `change`, block by block in `f32`. `change` gets
/// the index within the matrix of a block's first row, and the block.
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
