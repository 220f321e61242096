//! The Rust face of the world `verifier`, generated.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "tunebox:method/verifier",
});
