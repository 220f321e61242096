//! The first values of an adapter's factors.
//!
//! PiSSA and OLoRA begin with a part s·B₀·A₀ of the frozen weight W, which the weight then has to lose: PEFT stores W −
//! s·B₀·A₀ in its place. Here W stays, and the module computes s·(B·A − B₀·A₀): nothing is rounded away, the reference
//! is the base model itself, and the saved adapter, of twice the rank, is one for W.

use std::fmt;

use tunebox_compute::decomposition::{truncated_qr, truncated_svd};
use tunebox_compute::precision::{Purpose, bytes};
use tunebox_compute::{DType, Tensor, Weight};

use super::{Adapter, Module};
use crate::Model;
use crate::error::{Error, Result};

/// First values of the factors of a new adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Initialization {
    /// A is random and B is 0 (Hu et al. 2021).
    #[default]
    Random,
    /// The part of the weight with the largest singular values (PiSSA, Meng et al. 2024). The adapter is saved with
    /// twice the rank.
    Pissa,
    /// The first columns and rows of the QR decomposition of the weight (OLoRA, Büyükakyüz 2024). The adapter is saved
    /// with twice the rank.
    Olora,
}

impl Initialization {
    /// Whether no part of the frozen weight is taken.
    #[must_use]
    pub fn is_random(&self) -> bool {
        *self == Self::Random
    }
}

impl fmt::Display for Initialization {
    /// Writes the name that settings files use: `random`, `pissa` or `olora`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, formatter)
    }
}

/// The first values of a module that begins with a part of the frozen weight. The module's output is reduced by their
/// product, so that training begins with the outputs of the base model.
#[derive(Debug, Clone)]
pub(crate) struct InitialFactors {
    /// A₀ `[rank, in]`, `f32`, on the CPU.
    pub(crate) a: Tensor,
    /// B₀ `[out, rank]`, `f32`, on the CPU.
    pub(crate) b: Tensor,
    /// A₀ as passes multiply it, on the model's device.
    pub(crate) reduce: Weight,
    /// −s·B₀ as passes multiply it, on the model's device.
    pub(crate) expand: Weight,
}

impl InitialFactors {
    /// Computes the first values of a module from its frozen weight W, with s the module's scale. PiSSA: A₀ and B₀ are
    /// the right and left singular vectors of the largest singular values σ, each times √(σ/s), so that s·B₀·A₀ is
    /// that part of W. OLoRA: A₀ is R and B₀ is Q of the truncated QR decomposition. Errors: the rank is above the
    /// shorter side of the weight, or the weight cannot be read.
    pub(super) fn compute(model: &Model, module: &Module, kind: Initialization) -> Result<Self> {
        let path = module.site.path(module.layer);
        let weight = model.weights.get(&format!("{path}.weight"))?.to_dtype(DType::F32)?;
        let shorter = weight.dim(0)?.min(weight.dim(1)?);
        if module.rank > shorter {
            let what =
                format!("`{kind}` with rank {} is not possible: `{path}` has rank {shorter} at most", module.rank);
            return Err(Error::AdapterSetting { key: "initialize", what });
        }
        let (a, b) = match kind {
            Initialization::Olora => {
                let (q, r) = truncated_qr(&weight, module.rank)?;
                (r, q)
            }
            _ => {
                let svd = truncated_svd(&weight, module.rank)?;
                let roots = svd.values.iter().map(|value| (f64::from(*value) / module.scale).sqrt() as f32);
                let roots = Tensor::from_iter(roots, weight.device())?;
                (svd.right.broadcast_mul(&roots.unsqueeze(1)?)?, svd.left.broadcast_mul(&roots)?)
            }
        };
        Self::place(model, module.scale, a, b)
    }

    /// Builds the first values from A₀ (`a`) and B₀ (`b`), and copies A₀ and −`scale`·B₀ to the model's device, in
    /// `f32` on the CPU, else in the type of activations.
    pub(super) fn place(model: &Model, scale: f64, a: Tensor, b: Tensor) -> Result<Self> {
        let (device, precision) = (model.weights.device(), model.weights.precision());
        let dtype = if device.is_cpu() { DType::F32 } else { precision.dtype(Purpose::Activation) };
        let reduce = Weight::from(a.clone()).to_device(device, dtype)?;
        let expand = Weight::from((&b * -scale)?).to_device(device, dtype)?;
        Ok(Self { a, b, reduce, expand })
    }
}

impl Adapter {
    /// The bytes of the first values of modules that begin with a part of the frozen weights, where passes run: A₀ and
    /// s·B₀ as passes multiply them, and on the CPU also B₀.
    #[must_use]
    pub fn initial_bytes(&self) -> u64 {
        let is_cpu = self.parameters.device().is_cpu();
        let of_module = |initial: &InitialFactors| {
            let beside = if is_cpu { bytes(&initial.b) } else { 0 };
            (initial.reduce.bytes() + initial.expand.bytes() + beside) as u64
        };
        self.modules.iter().filter_map(|module| module.initial.as_ref()).map(of_module).sum()
    }
}

/// What a saved tensor has beside the values of its slot.
pub(super) struct Appended {
    /// A₀ or −B₀.
    pub(super) tensor: Tensor,
    /// The axis of the rank, along which it is appended.
    pub(super) axis: usize,
}

impl Adapter {
    /// Computes the first values of every module whose settings begin with a part of the frozen weight; does nothing
    /// for other settings.
    pub(super) fn compute_initial_factors(&mut self, model: &Model) -> Result<()> {
        let kind = self.settings.initialize;
        if !kind.is_random() {
            for module in &mut self.modules {
                module.initial = Some(InitialFactors::compute(model, module, kind)?);
            }
        }
        Ok(())
    }

    /// What a saved adapter has after the values of slot `number`, along the axis of the rank: A₀ after A, −B₀ after
    /// B. `None` for the slots of a module without first values, and for DoRA's magnitudes.
    pub(super) fn appended_factor(&self, number: usize) -> Result<Option<Appended>> {
        let initial = |module: &Module| Some((module.a_slot, module.initial.clone()?));
        let find = |module: &&Module| module.a_slot == number || module.b_slot == number;
        Ok(match self.modules.iter().find(find).and_then(initial) {
            Some((slot, initial)) if slot == number => Some(Appended { tensor: initial.a, axis: 0 }),
            Some((_, initial)) => Some(Appended { tensor: initial.b.neg()?, axis: 1 }),
            None => None,
        })
    }

    /// The shape of slot `number` in a saved adapter, with what [`appended_factor`](Self::appended_factor) returns.
    pub(super) fn saved_shape(&self, number: usize) -> Result<Vec<usize>> {
        let mut shape = self.parameters.slots()[number].shape.clone();
        if let Some(Appended { tensor, axis }) = self.appended_factor(number)? {
            shape[axis] += tensor.dim(axis)?;
        }
        Ok(shape)
    }

    /// The values of slot `number` in a saved adapter, `f32`, on the CPU, with what
    /// [`appended_factor`](Self::appended_factor) returns.
    pub(super) fn saved_value(&self, number: usize) -> Result<Tensor> {
        let value = self.parameters.value_on_cpu(number)?;
        match self.appended_factor(number)? {
            Some(Appended { tensor, axis }) => Ok(Tensor::cat(&[&value, &tensor], axis)?),
            None => Ok(value),
        }
    }

    /// Sets slot `number` to the first part of the saved values `saved`, `f32`, and returns the appended part: what is
    /// left along the axis of the rank; `None` for a slot that is saved as it is.
    pub(super) fn set_saved(&self, number: usize, saved: &Tensor) -> Result<Option<Tensor>> {
        let Some(Appended { axis, .. }) = self.appended_factor(number)? else {
            self.parameters.set(number, saved)?;
            return Ok(None);
        };
        let rank = self.parameters.slots()[number].shape[axis];
        self.parameters.set(number, &saved.narrow(axis, 0, rank)?.contiguous()?)?;
        Ok(Some(saved.narrow(axis, rank, saved.dim(axis)? - rank)?.contiguous()?))
    }
}
