//! New tensors.

use super::{Dtype, Tensor};
use crate::bindings::tunebox::method::tensor;

macro_rules! creations {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        $(
            $(#[$doc])+
            #[track_caller]
            pub fn $name($($argument: $kind),*) -> Tensor {
                Tensor::from_answer(tensor::$name($($argument),*))
            }
        )+
    };
}

creations! {
    /// All elements 0.
    zeros(shape: &[u32], dtype: Dtype);
    /// All elements 1.
    ones(shape: &[u32], dtype: Dtype);
    /// All elements `value`, as `f32`.
    full(shape: &[u32], value: f32);
    /// `start`, `start` + `step`, … , `count` numbers, as `f32`.
    sequence(start: f32, step: f32, count: u32);
    /// The numbers of a list, as `f32`.
    from_list(values: &[f32], shape: &[u32]);
    /// Indices of a list, as `u32`.
    from_indices(values: &[u32], shape: &[u32]);
    /// Independent standard normal numbers, as `f32`, from the run's seed and the name of a random sequence.
    random_normal(sequence: &str, shape: &[u32]);
    /// Independent numbers in [0, 1), likewise.
    random_uniform(sequence: &str, shape: &[u32]);
    /// A random order of 0 … `count` − 1, `u32`, likewise.
    random_permutation(sequence: &str, count: u32);
}
