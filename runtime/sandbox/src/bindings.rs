//! The Rust bindings of the world `method` of `wit/`, generated.
//!
//! Every resource is bound to one Rust type of [`crate::entries`], so a handle of the wrong kind
//! cannot reach a function.

use crate::{entries, refusal};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "tunebox:method/method",
    imports: { default: trappable },
    with: {
        "tunebox:method/tensor.tensor": entries::TensorEntry,
        "tunebox:method/tensor.scope": entries::ScopeEntry,
        "tunebox:method/data.rows": entries::RowsEntry,
        "tunebox:method/data.batch": entries::BatchEntry,
        "tunebox:method/model.view": entries::ViewEntry,
        "tunebox:method/model.taps": entries::TapsEntry,
        "tunebox:method/model.scores": entries::ScoresEntry,
        "tunebox:method/optimizer.parameter": entries::ParameterEntry,
        "tunebox:method/optimizer.perturbation": entries::PerturbationEntry,
        "tunebox:method/sample.sampler": entries::SamplerEntry,
        "tunebox:method/sample.completions": entries::CompletionsEntry,
        "tunebox:method/patch.patch": entries::PatchEntry,
    },
    trappable_error_type: {
        "tunebox:method/types.error" => refusal::Refusal,
    },
});

pub(crate) use exports::tunebox::method::training;
pub(crate) use tunebox::method::{
    data, hidden, learn, model, optimizer, patch, reward, run, sample, teacher, tensor, text, types, weights,
};
