//! What a method keeps beside the trained parameters of the run: named state of parameters, extra parameters of its
//! own, and the values from before a perturbation.
//!
//! It belongs to the run, which saves it in checkpoints. All tensors are `f32` on the CPU and never change in place, so
//! a copy of the structure shares them.

use std::collections::BTreeMap;

use candle_core::{CpuStorage, DType, Storage, Var};
use tunebox_compute::Tensor;
use tunebox_model::error::Error;

/// The name of all parameters that the run trains as one vector.
pub(crate) const ALL_PARAMETERS: &str = "*";

/// An extra parameter of a method's own.
#[derive(Clone, Debug)]
pub struct Extra {
    value: Tensor,
    /// The gradient that has accumulated; `None` for zeros.
    gradient: Option<Tensor>,
    /// The value as a leaf of the graph of a loss; `None` until the method reads this value.
    leaf: Option<Tensor>,
}

impl Extra {
    /// Returns the bytes that an extra parameter of this value may take: the value, its gradient and its leaf.
    pub(crate) fn bytes(value: &Tensor) -> u64 {
        3 * count_bytes(value)
    }

    /// Returns the value, which is no leaf of a graph.
    #[must_use]
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// Returns the gradient that has accumulated, in the shape of the value; zeros if there is none.
    pub(crate) fn gradient(&self) -> Result<Tensor, Error> {
        Ok(self.gradient.clone().map_or_else(|| self.value.zeros_like(), Ok)?)
    }

    /// Returns the value as a leaf of the graph of a loss, created at the first read. Returns the same tensor until the
    /// value changes, since a loss may be built from several reads.
    pub(crate) fn leaf(&mut self) -> Result<Tensor, Error> {
        let leaf = match &self.leaf {
            Some(leaf) => leaf.clone(),
            None => Var::from_tensor(&self.value)?.into_inner(),
        };
        self.leaf = Some(leaf.clone());
        Ok(leaf)
    }
}

/// The state, extra parameters and perturbation of a method.
#[derive(Clone, Debug, Default)]
pub struct MethodParameters {
    /// Named state: by the name of the parameter, then that of the state.
    state: BTreeMap<String, BTreeMap<String, Tensor>>,
    extras: BTreeMap<String, Extra>,
    /// The values of all parameters that the run trains from before the perturbation that is active.
    pub(crate) unperturbed: Option<Tensor>,
}

impl MethodParameters {
    /// Returns the bytes of all tensors: state, extra parameters with a gradient and a leaf each, which not every one
    /// has yet ([`Extra::bytes`]), and the values before a perturbation.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.values().flat_map(BTreeMap::values).chain(&self.unperturbed);
        let extras = self.extras.values().map(|extra| Extra::bytes(&extra.value));
        state.map(count_bytes).chain(extras).sum()
    }

    /// Returns the bytes of the tensors that a checkpoint saves: state, and values of extra parameters.
    pub(crate) fn saved_bytes(&self) -> u64 {
        let state = self.state.values().flat_map(BTreeMap::values);
        state.chain(self.extras.values().map(|extra| &extra.value)).map(count_bytes).sum()
    }

    /// Returns the state `name` of a parameter; `None` if it was not set.
    pub(crate) fn state(&self, parameter: &str, name: &str) -> Option<&Tensor> {
        self.state.get(parameter)?.get(name)
    }

    /// Returns how many states a parameter has under other names than `name`.
    pub(crate) fn other_states(&self, parameter: &str, name: &str) -> usize {
        let states = self.state.get(parameter).into_iter().flatten();
        states.filter(|(other, _)| other.as_str() != name).count()
    }

    /// Stores a copy of `value`, `f32` on the CPU, without its graph as the state `name` of a parameter, in place of an
    /// earlier one. The copy shares the memory of `value` unless that is a part of a larger storage.
    pub(crate) fn set_state(&mut self, parameter: &str, name: &str, value: &Tensor) -> Result<(), Error> {
        let value = detach_compact(value)?;
        self.state.entry(parameter.to_owned()).or_default().insert(name.to_owned(), value);
        Ok(())
    }

    /// Returns the extra parameters with their names, in alphabetical order.
    pub fn extras(&self) -> impl Iterator<Item = (&String, &Extra)> {
        self.extras.iter()
    }

    /// Returns the number of extra parameters.
    pub(crate) fn extra_count(&self) -> usize {
        self.extras.len()
    }

    /// Returns the extra parameter of this name; `None` if there is none.
    pub(crate) fn extra(&self, name: &str) -> Option<&Extra> {
        self.extras.get(name)
    }

    /// Returns the extra parameter of this name, to read it as a leaf; `None` if there is none.
    pub(crate) fn extra_mut(&mut self, name: &str) -> Option<&mut Extra> {
        self.extras.get_mut(name)
    }

    /// Sets the value of an extra parameter, creating the parameter if there is none of this name. Keeps its gradient.
    /// A leaf that was read before is forgotten: a loss on it adds no gradient to the parameter. `value` is `f32` on
    /// the CPU.
    pub(crate) fn set_extra(&mut self, name: &str, value: &Tensor) -> Result<(), Error> {
        let gradient = self.extras.remove(name).and_then(|extra| extra.gradient);
        self.extras.insert(name.to_owned(), Extra { value: detach_compact(value)?, gradient, leaf: None });
        Ok(())
    }

    /// Returns the names and leaves of the extra parameters that a loss may depend on: those that were read since their
    /// value changed.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.extras.iter().filter_map(|(name, extra)| Some((name, extra.leaf.as_ref()?)))
    }

    /// Adds to the gradient of the extra parameter `name`. Does nothing if there is none of this name.
    pub(crate) fn add_gradient(&mut self, name: &str, gradient: &Tensor) -> Result<(), Error> {
        let Some(extra) = self.extras.get_mut(name) else { return Ok(()) };
        let sum = match &extra.gradient {
            Some(before) => (before + gradient)?,
            None => gradient.detach(),
        };
        extra.gradient = Some(sum);
        Ok(())
    }

    /// Whether an extra parameter has a gradient.
    #[must_use]
    pub fn has_gradient(&self) -> bool {
        self.extras.values().any(|extra| extra.gradient.is_some())
    }

    /// Sets the gradients of all extra parameters to zero.
    pub fn clear_gradients(&mut self) {
        self.extras.values_mut().for_each(|extra| extra.gradient = None);
    }

    /// Returns every tensor that a checkpoint saves, with its name in the file: states as `state/PARAMETER/NAME`,
    /// values of extra parameters as `extra/NAME`. Leaves out gradients and the values before a perturbation.
    #[must_use]
    pub fn saved(&self) -> BTreeMap<String, Tensor> {
        let state = self.state.iter().flat_map(|(parameter, states)| {
            states.iter().map(move |(name, tensor)| (format!("state/{parameter}/{name}"), tensor.clone()))
        });
        let extras = self.extras.iter().map(|(name, extra)| (format!("extra/{name}"), extra.value.clone()));
        state.chain(extras).collect()
    }

    /// Creates the state and extra parameters from what [`saved`](Self::saved) returned, without gradients and
    /// perturbation. `None` if a name has another form than those of `saved`.
    #[must_use]
    pub fn restored(tensors: impl IntoIterator<Item = (String, Tensor)>) -> Option<Self> {
        let mut parameters = Self::default();
        for (key, value) in tensors {
            match key.split('/').collect::<Vec<_>>()[..] {
                ["state", parameter, name] => {
                    parameters.state.entry(parameter.to_owned()).or_default().insert(name.to_owned(), value);
                }
                ["extra", name] => {
                    parameters.extras.insert(name.to_owned(), Extra { value, gradient: None, leaf: None });
                }
                _ => return None,
            }
        }
        Some(parameters)
    }
}

/// Returns the bytes of a tensor's numbers, which are `f32`.
pub(crate) fn count_bytes(tensor: &Tensor) -> u64 {
    4 * tensor.elem_count() as u64
}

/// Detaches a tensor from its graph, as contiguous `f32`. Copies it if it is a part of a larger storage, which it would
/// keep alive.
fn detach_compact(tensor: &Tensor) -> Result<Tensor, Error> {
    let tensor = tensor.detach().to_dtype(DType::F32)?.contiguous()?;
    let is_whole = {
        let (storage, layout) = tensor.storage_and_layout();
        matches!(&*storage, Storage::Cpu(CpuStorage::F32(numbers)) if numbers.len() == layout.shape().elem_count())
    };
    if is_whole { Ok(tensor) } else { Ok(tensor.force_contiguous()?) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunebox_compute::Device;

    fn tensor(numbers: &[f32]) -> Tensor {
        Tensor::new(numbers, &Device::Cpu).unwrap()
    }

    #[test]
    fn what_is_saved_is_restored() {
        let mut own = MethodParameters::default();
        own.set_state("model.layers.0.q_proj.lora_A.weight", "first", &tensor(&[1., 2.])).unwrap();
        own.set_state(ALL_PARAMETERS, "step", &tensor(&[3.])).unwrap();
        own.set_extra("value-head", &tensor(&[4., 5., 6.])).unwrap();
        own.add_gradient("value-head", &tensor(&[1., 1., 1.])).unwrap();
        assert_eq!((own.bytes(), own.saved_bytes()), (4 * (2 + 1 + 3 * 3), 4 * (2 + 1 + 3)));
        let restored = MethodParameters::restored(own.saved()).unwrap();
        assert_eq!(restored.state(ALL_PARAMETERS, "step").unwrap().to_vec1::<f32>().unwrap(), [3.]);
        let head = restored.extra("value-head").unwrap();
        assert_eq!(head.value().to_vec1::<f32>().unwrap(), [4., 5., 6.]);
        assert_eq!(head.gradient().unwrap().to_vec1::<f32>().unwrap(), [0.; 3]);
        assert!(MethodParameters::restored([("other".to_owned(), tensor(&[1.]))]).is_none());
    }

    #[test]
    fn state_does_not_keep_a_larger_tensor_alive() {
        let mut own = MethodParameters::default();
        let large = Tensor::zeros(1 << 16, DType::F32, &Device::Cpu).unwrap();
        own.set_state(ALL_PARAMETERS, "small", &large.narrow(0, 5, 2).unwrap()).unwrap();
        let state = own.state(ALL_PARAMETERS, "small").unwrap();
        let (storage, _) = state.storage_and_layout();
        assert!(matches!(&*storage, Storage::Cpu(CpuStorage::F32(numbers)) if numbers.len() == 2));
    }

    #[test]
    fn a_leaf_changes_with_the_value() {
        let mut own = MethodParameters::default();
        own.set_extra("head", &tensor(&[1.])).unwrap();
        let first = own.extra_mut("head").unwrap().leaf().unwrap();
        assert_eq!(own.extra_mut("head").unwrap().leaf().unwrap().id(), first.id());
        own.set_extra("head", &tensor(&[2.])).unwrap();
        assert_eq!(own.leaves().count(), 0);
        assert_ne!(own.extra_mut("head").unwrap().leaf().unwrap().id(), first.id());
    }
}
