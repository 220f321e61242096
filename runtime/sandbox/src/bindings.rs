//! The Rust face of `wit/`, generated: no hand-written lines beyond the list of what is offered.
//!
//! Every resource is bound to one Rust type of [`crate::entries`], so a handle of the wrong kind
//! cannot reach a function. Interfaces that this host does not keep yet are absent here, and
//! `admission` refuses them by name before the linker would.

use crate::{entries, refusal};

wasmtime::component::bindgen!({
    path: "../../wit",
    inline: "
        package tunebox:host;

        world offered {
            import tunebox:method/types@0.1.0;
            import tunebox:method/run@0.1.0;
            import tunebox:method/tensor@0.1.0;
            import tunebox:method/data@0.1.0;
            import tunebox:method/model@0.1.0;
            import tunebox:method/learn@0.1.0;
            import tunebox:method/sample@0.1.0;
            import tunebox:method/reward@0.1.0;
            import tunebox:method/hidden@0.1.0;
            import tunebox:method/patch@0.1.0;
            import tunebox:method/weights@0.1.0;
            import tunebox:method/text@0.1.0;

            export tunebox:method/training@0.1.0;
        }
    ",
    world: "tunebox:host/offered",
    imports: { default: trappable },
    with: {
        "tunebox:method/tensor.tensor": entries::TensorEntry,
        "tunebox:method/tensor.scope": entries::ScopeEntry,
        "tunebox:method/data.rows": entries::RowsEntry,
        "tunebox:method/data.batch": entries::BatchEntry,
        "tunebox:method/model.view": entries::ViewEntry,
        "tunebox:method/model.scores": entries::ScoresEntry,
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
    data, hidden, learn, model, patch, reward, run, sample, tensor, text, types, weights,
};
