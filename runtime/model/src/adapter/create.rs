//! Creates adapters: allocates their parameters and sets the initial values.
//! A is uniform in ±1/√in and B is 0, so that training starts from the outputs of the base model (Hu et al. 2021).

use tunebox_compute::memory;
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::Purpose;
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor, Weight};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::format;

use super::plan::{ModulePlan, plan_new};
use super::settings::{AdapterKind, AdapterSettings, ModuleKey};
use super::whole::{check_tying, whole_weights};
use super::{Adapter, Module, ModuleFactors};
use crate::Model;
use crate::decoder::linear::squared_norms;
use crate::decoder::site::Site;
use crate::edit::Factors;
use crate::error::Result;
use crate::families;

impl Adapter {
    /// Allocates an adapter for a model with its initial values: A uniform in ±1/√in and B 0, or those that
    /// [`AdapterSettings::initialize`] computes from the frozen weights; DoRA magnitudes the row norms of the frozen
    /// weights; and an `f32` copy of every weight that is trained itself, for [`AdapterKind::Full`] of all.
    ///
    /// # Errors
    /// When [`AdapterSettings::check`] fails, the settings name a module or layer that the model does not have or have
    /// a pattern that selects none, a weight cannot be read, or there is too little memory.
    pub fn create(model: &Model, settings: &AdapterSettings) -> Result<Self> {
        settings.check()?;
        check_tying(&model.configuration, settings)?;
        let mut adapter = if settings.kind == AdapterKind::Full {
            allocate(model, settings, Vec::new(), families::weight_shapes(&model.configuration))?
        } else {
            zeros(model, settings, &plan_new(&model.configuration, settings)?)?
        };
        adapter.compute_initial_factors(model)?;
        adapter.initialize(model)?;
        Ok(adapter)
    }

    /// Resets every parameter to its initial value: weights that are trained themselves to those of the model, as
    /// `f32`; A and B to the module's first values if it has them, or A to uniform values in ±1/√in, drawn from the
    /// seed and the module's path, and B to 0; and DoRA magnitudes to ‖W‖ of every row of the frozen weight. Overwrites
    /// trained values; leaves gradients as they are. Errors: a weight of the model cannot be read.
    pub(crate) fn initialize(&self, model: &Model) -> Result<()> {
        for (number, slot) in self.whole_slots() {
            let weight = model.weights.get(families::base_name(&model.configuration, &slot.name))?;
            self.parameters.set(number, &weight.to_dtype(DType::F32)?)?;
        }
        for module in &self.modules {
            if let Some(initial) = &module.initial {
                self.parameters.set(module.a_slot, &initial.a)?;
                self.parameters.set(module.b_slot, &initial.b)?;
                continue;
            }
            let (_, width) = module.site.shape(&model.configuration);
            let bound = 1.0 / (width as f32).sqrt();
            let name = format!("adapter/{}", module.site.path(module.layer));
            let values: Vec<f32> = Stream::new(self.settings.seed, &name)
                .uniforms(module.rank * width)
                .into_iter()
                .map(|draw| (2.0 * draw - 1.0) * bound)
                .collect();
            let a = Tensor::from_vec(values, (module.rank, width), &Device::Cpu)?;
            self.parameters.set(module.a_slot, &a)?;
            let shape = self.parameters.slots()[module.b_slot].shape.as_slice();
            self.parameters.set(module.b_slot, &Tensor::zeros(shape, DType::F32, &Device::Cpu)?)?;
            if let (Some(slot), Some(squares)) = (module.magnitude_slot, &module.base_squares) {
                self.parameters.set(slot, &squares.to_device(&Device::Cpu)?.sqrt()?)?;
            }
        }
        Ok(())
    }

    /// Builds an adapter that adds given outer products left·rightᵀ to weights, with one module for each linear map in
    /// `products`, in the order of layers and sites. The left vectors of a map become the columns of B, the right
    /// vectors the rows of A; rank = alpha = number of the map's products, which makes the scale 1 for LoRA. Ignores
    /// the rank, alpha and targets of `settings` but keeps them in the adapter.
    pub(crate) fn from_outer_products(model: &Model, settings: &AdapterSettings, products: &Factors) -> Result<Self> {
        let factors = |(place, list): (&ModuleKey, &Vec<_>)| {
            let (lefts, rights): (Vec<&Tensor>, Vec<&Tensor>) = list.iter().map(|(left, right)| (left, right)).unzip();
            let (a, b) = (Tensor::stack(&rights, 0)?, Tensor::stack(&lefts, 1)?);
            Ok((*place, ModuleFactors { a, b, scale: 1.0, magnitude: None }))
        };
        Self::from_factors(model, settings, &products.iter().map(factors).collect::<Result<Vec<_>>>()?)
    }
}

impl ModuleFactors {
    /// The factors of a module as a saved adapter holds them: f32, on the CPU, with DoRA's magnitudes. The scale is not
    /// multiplied in. If the module began with a part of its weight (PiSSA, OLoRA), its first factors are appended,
    /// negated in B, so that the rank is twice the module's.
    pub(crate) fn of(adapter: &Adapter, module: &Module) -> Result<Self> {
        let value = |slot| adapter.saved_value(slot);
        let magnitude = module.magnitude_slot.map(value).transpose()?;
        Ok(Self { a: value(module.a_slot)?, b: value(module.b_slot)?, scale: module.scale, magnitude })
    }
}

impl Adapter {
    /// Builds an adapter of kind LoRA from the factors of its modules, in their order; the rank of a module is that of
    /// its factors. Ignores the rank, alpha and targets of `settings` but keeps them in the adapter. Errors: also a
    /// factor of another shape than the module's.
    pub(crate) fn from_factors(
        model: &Model,
        settings: &AdapterSettings,
        factors: &[(ModuleKey, ModuleFactors)],
    ) -> Result<Self> {
        let plan = |(place, factors): &(ModuleKey, ModuleFactors)| {
            let rank = factors.a.dims2()?.0;
            Ok(ModulePlan { place: *place, rank, alpha: factors.scale * rank as f64 })
        };
        let plans: Vec<ModulePlan> = factors.iter().map(plan).collect::<Result<_>>()?;
        let adapter = zeros(model, settings, &plans)?;
        for (module, (_, factors)) in adapter.modules.iter().zip(factors) {
            adapter.parameters.set(module.a_slot, &factors.a)?;
            adapter.parameters.set(module.b_slot, &factors.b)?;
        }
        Ok(adapter)
    }
}

/// Returns the name and shape of every slot: A `[rank, in]`, B `[out, rank]` and, for DoRA, the magnitude `[out]` of
/// each planned module, in the order of the plans; then of the weights that the settings train whole. Names are PEFT's
/// tensor names without the prefix, such as `model.layers.0.self_attn.q_proj.lora_A.weight`. Errors: as for
/// [`whole_weights`].
pub(super) fn slots(
    model: &Model,
    settings: &AdapterSettings,
    plans: &[ModulePlan],
) -> Result<Vec<(String, Vec<usize>)>> {
    let of_plan = |plan: &ModulePlan| {
        let (layer, site) = plan.place;
        let (rows, columns) = site.shape(&model.configuration);
        let slot = |suffix: &str, shape: &[usize]| (format!("{}.{suffix}", site.path(layer)), shape.to_vec());
        let factors = [slot("lora_A.weight", &[plan.rank, columns]), slot("lora_B.weight", &[rows, plan.rank])];
        let magnitude = (settings.kind == AdapterKind::Dora).then(|| slot("lora_magnitude_vector", &[rows]));
        factors.into_iter().chain(magnitude)
    };
    Ok(plans.iter().flat_map(of_plan).chain(whole_weights(&model.configuration, settings)?).collect())
}

/// Allocates an adapter with the planned modules, in the order of the plans, and the weights that the settings train
/// whole; every A, B, DoRA magnitude and weight is 0. For DoRA, also reads each frozen weight and computes ‖W‖² of its
/// rows. Errors: too little memory, or a frozen weight cannot be read.
pub(crate) fn zeros(model: &Model, settings: &AdapterSettings, plans: &[ModulePlan]) -> Result<Adapter> {
    let is_dora = settings.kind == AdapterKind::Dora;
    let each = if is_dora { 3 } else { 2 };
    let module = |(number, plan): (usize, &ModulePlan)| {
        let (layer, site) = plan.place;
        Ok(Module {
            layer,
            site,
            rank: plan.rank,
            alpha: plan.alpha,
            scale: settings.kind.scale(plan.alpha, plan.rank),
            a_slot: each * number,
            b_slot: each * number + 1,
            magnitude_slot: is_dora.then_some(each * number + 2),
            base_squares: if is_dora { Some(base_squares(model, layer, site)?) } else { None },
            initial: None,
        })
    };
    let modules = plans.iter().enumerate().map(module).collect::<Result<_>>()?;
    allocate(model, settings, modules, slots(model, settings, plans)?)
}

/// Computes ‖W‖² of every row of a module's frozen weight: `[out]`, `f32`, on the model's device.
fn base_squares(model: &Model, layer: usize, site: Site) -> Result<Tensor> {
    let weight = model.weights.get(&format!("{}.weight", site.path(layer)))?;
    Ok(Weight::from(squared_norms(&weight)?).to_device(model.weights.device(), DType::F32)?.vector()?)
}

/// Allocates an adapter with one `f32` slot, filled with 0, for each name and shape in `slots`; on an accelerator also
/// with a copy of the values in the type of activations, unless that is `f32`. Errors: on the CPU, the values and their
/// gradients, 8 bytes for each value, need more memory than this process can allocate; or the device has too little.
fn allocate(
    model: &Model,
    settings: &AdapterSettings,
    modules: Vec<Module>,
    slots: Vec<(String, Vec<usize>)>,
) -> Result<Adapter> {
    let device = model.weights.device();
    let numbers = slots.iter().flat_map(|(_, shape)| shape.iter().copied().reduce(usize::saturating_mul));
    // A value and its gradient.
    let wanted = numbers.fold(0_u64, |sum, count| sum.saturating_add((count as u64).saturating_mul(8)));
    if let Some(free) = memory::allocatable().filter(|free| device.is_cpu() && wanted > *free) {
        let (wanted, free) = (format::bytes(wanted), format::bytes(free));
        let what = format!("what is trained, with its gradient, takes {wanted}; {free} of memory can be had");
        let whole = if settings.modules_to_save.is_empty() { "" } else { ", or fewer `modules-to-save`" };
        let hint = format!("a smaller rank than {}, or fewer target modules{whole}", settings.rank);
        return Err(Explanation::new("model", what).with_hint(hint).into());
    }
    let activations = model.weights.precision().dtype(Purpose::Activation);
    let parameters = Parameters::new(slots, device)?.with_operand_copy(activations)?;
    Ok(Adapter::assemble(settings.clone(), modules, parameters))
}
