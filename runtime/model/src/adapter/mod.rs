//! What is trained on a model: the thin matrices of LoRA, rsLoRA or DoRA, or all weights.
//! An adapter is a list of places and one flat buffer; the products are `decoder`'s, files are
//! `folder`'s, and working an adapter into the weights is `merge`'s.

mod create;
pub(crate) mod folder;
mod peft;
mod settings;
pub(crate) mod targets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use tunebox_compute::parameters::Parameters;
use tunebox_compute::{Device, Tensor};

pub use settings::{AdapterKind, AdapterSettings, Targets};

use crate::decoder::site::Site;
use crate::error::Result;

/// What is trained on one model.
pub struct Adapter {
    settings: AdapterSettings,
    modules: Vec<Module>,
    places: HashMap<(usize, Site), usize>,
    parameters: Parameters,
}

/// A linear map with an adapter on it.
#[derive(Debug, Clone)]
pub struct Module {
    /// The block.
    pub layer: usize,
    /// The place in the block.
    pub site: Site,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The numerator of the scale.
    pub alpha: f64,
    /// The factor of B·A: alpha/rank, or alpha/√rank for rsLoRA.
    pub scale: f64,
    /// Slots of A, B and DoRA's lengths in the parameters.
    pub(crate) slots: Slots,
    /// DoRA: ‖W‖² of every row of the frozen weight, `[out]`, where the model computes.
    pub(crate) base_squares: Option<Tensor>,
}

/// Slots of one module in the parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) magnitude: Option<usize>,
}

impl Adapter {
    pub(crate) fn assemble(settings: AdapterSettings, modules: Vec<Module>, parameters: Parameters) -> Self {
        let places = modules.iter().enumerate().map(|(number, module)| ((module.layer, module.site), number)).collect();
        Self { settings, modules, places, parameters }
    }

    /// An adapter without parameters: the base as it is.
    ///
    /// # Errors
    /// When the device fails.
    pub fn untrained(device: &Device) -> Result<Self> {
        let parameters = Parameters::new(Vec::new(), device)?;
        Ok(Self::assemble(AdapterSettings::default(), Vec::new(), parameters))
    }

    /// What it was made from.
    #[must_use]
    pub fn settings(&self) -> &AdapterSettings {
        &self.settings
    }

    /// The linear maps that it sits on, by layer and place; empty when all weights are trained.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The flat buffer of everything that is trained.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// How many numbers are trained.
    #[must_use]
    pub fn trainable(&self) -> usize {
        self.parameters.len()
    }

    /// Whether the weights themselves are trained.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.settings.kind == AdapterKind::Full && self.trainable() > 0
    }

    /// The adapter on one linear map, if it has one.
    pub(crate) fn module(&self, layer: usize, site: Site) -> Option<&Module> {
        self.places.get(&(layer, site)).map(|number| &self.modules[*number])
    }

    /// A copy of the adapter with its own parameters, which no optimizer updates.
    pub(crate) fn frozen_copy(&self) -> Result<Self> {
        let parameters = self.parameters.detached_copy()?;
        Ok(Self::assemble(self.settings.clone(), self.modules.clone(), parameters))
    }
}
