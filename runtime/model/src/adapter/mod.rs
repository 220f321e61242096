//! The trained parameters of a model: low-rank matrices of LoRA, rsLoRA or DoRA, with whole modules beside them, or all
//! weights. An adapter is a list of adapted linear maps and one flat buffer of their values. `decoder` computes with
//! it, `folder` saves and loads it, and `merge` adds it to the weights.

mod create;
pub(crate) mod folder;
mod initial;
mod mlx;
mod pattern;
mod peft;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::HashMap;

use tunebox_compute::parameters::Parameters;
use tunebox_compute::{Device, Tensor};

pub use folder::weights_file;
pub(crate) use initial::InitialFactors;
pub use initial::Initialization;
pub use pattern::check_pattern;
pub use settings::{AdapterKind, AdapterSettings, Targets};

use crate::decoder::site::Site;
use crate::error::Result;

/// The trained parameters of one model: low-rank matrices on some of its linear maps, or all weights.
pub struct Adapter {
    settings: AdapterSettings,
    modules: Vec<Module>,
    /// The index into `modules` by layer and linear map.
    places: HashMap<(usize, Site), usize>,
    parameters: Parameters,
}

/// A linear map with an adapter on it.
#[derive(Debug, Clone)]
pub struct Module {
    /// The index of the block.
    pub layer: usize,
    /// Which linear map of the block.
    pub site: Site,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The numerator of `scale`.
    pub alpha: f64,
    /// The factor of B·A: alpha/rank, or alpha/√rank for rsLoRA.
    pub scale: f64,
    /// The indices of the slots of A, of B and of DoRA's magnitudes in the adapter's parameters.
    pub(crate) a_slot: usize,
    pub(crate) b_slot: usize,
    pub(crate) magnitude_slot: Option<usize>,
    /// DoRA: ‖W‖² of every row of the frozen weight, `[out]`, on the model's device.
    pub(crate) base_squares: Option<Tensor>,
    /// The first values, of a module that begins with a part of the frozen weight.
    pub(crate) initial: Option<InitialFactors>,
}

impl Module {
    /// The rank and alpha that a saved adapter has for this module: those of the module, or, if it begins with a part
    /// of the frozen weight, twice the rank and the alpha with which the scale stays.
    pub(crate) fn saved_rank_and_alpha(&self, kind: AdapterKind) -> (usize, f64) {
        if self.initial.is_some() { kind.double_rank(self.rank, self.alpha) } else { (self.rank, self.alpha) }
    }
}

/// The factors of a module's update s·B·A of its frozen weight, on the CPU in `f32`.
#[derive(Debug, Clone)]
pub(crate) struct ModuleFactors {
    /// A `[rank, in]`.
    pub(crate) a: Tensor,
    /// B `[out, rank]`.
    pub(crate) b: Tensor,
    /// The factor s of B·A.
    pub(crate) scale: f64,
    /// DoRA's magnitudes `[out]`.
    pub(crate) magnitude: Option<Tensor>,
}

impl Adapter {
    /// Builds an adapter from its parts and indexes the modules by layer and site. Computes and allocates no tensor.
    pub(crate) fn assemble(settings: AdapterSettings, modules: Vec<Module>, parameters: Parameters) -> Self {
        let places = modules.iter().enumerate().map(|(number, module)| ((module.layer, module.site), number)).collect();
        Self { settings, modules, places, parameters }
    }

    /// Builds an adapter without modules and parameters: a model with it computes as its base weights alone.
    ///
    /// # Errors
    /// When the device fails.
    pub fn without_modules(device: &Device) -> Result<Self> {
        let parameters = Parameters::new(Vec::new(), device)?;
        Ok(Self::assemble(AdapterSettings::default(), Vec::new(), parameters))
    }

    /// The settings that the adapter was created or loaded with.
    #[must_use]
    pub fn settings(&self) -> &AdapterSettings {
        &self.settings
    }

    /// The adapted linear maps, in the order of their parameters; empty for kind full.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The flat buffer that holds every trained value.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The number of trained values (scalars, not tensors).
    #[must_use]
    pub fn trainable(&self) -> usize {
        self.parameters.len()
    }

    /// Whether the adapter trains the model's weights themselves: kind full, with at least one parameter.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.settings.kind == AdapterKind::Full && self.trainable() > 0
    }

    /// The adapter module on one linear map; `None` if that map has none.
    pub(crate) fn module(&self, layer: usize, site: Site) -> Option<&Module> {
        self.places.get(&(layer, site)).map(|number| &self.modules[*number])
    }

    /// Copies settings, modules and parameters, the latter with gradients of 0. Later updates of this adapter do not
    /// change the copy.
    pub(crate) fn frozen_copy(&self) -> Result<Self> {
        let parameters = self.parameters.detached_copy()?;
        Ok(Self::assemble(self.settings.clone(), self.modules.clone(), parameters))
    }
}
