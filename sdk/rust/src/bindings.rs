//! The contract as `wit-bindgen` writes it down, without a line of our own.
//!
//! Interfaces that have no module of their own in this crate yet can be called here. Outside
//! WebAssembly every import is a stub that panics: a method compiles natively, but has no host.

wit_bindgen::generate!({
    path: "wit",
    world: "method",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "::tunebox::bindings",
    runtime_path: "::tunebox::bindings::runtime",
});

pub use wit_bindgen::rt as runtime;

/// The second world.
pub mod judging {
    wit_bindgen::generate!({
        path: "wit",
        world: "verifier",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_verifier",
        default_bindings_module: "::tunebox::bindings::judging",
        runtime_path: "::tunebox::bindings::runtime",
    });
}

/// The third world.
#[cfg(feature = "environment")]
pub mod responding {
    wit_bindgen::generate!({
        path: "wit",
        world: "environment",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_environment",
        default_bindings_module: "::tunebox::bindings::responding",
        runtime_path: "::tunebox::bindings::runtime",
    });
}
