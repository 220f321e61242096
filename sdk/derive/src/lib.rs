//! The macros of the `tunebox` SDK: settings, choices, and the manifest that travels in the component.
//!
//! They only write down, as constants, what the source says: names, doc comments, defaults, ranges,
//! and the package table of `Cargo.toml`. What the values mean is checked by whoever reads the manifest.

mod attributes;
mod choice;
mod component;
mod json;
mod settings;
mod shape;

use proc_macro::TokenStream;
use syn::parse::{ParseStream, Parser};

use component::{Declaration, World};

/// Settings of a method: a struct whose fields have a doc comment and `#[setting(default = …)]`.
///
/// Beside the default stand `low`, `high` (inclusive), `above`, `below` (exclusive).
/// A field `label_smoothing` is the setting `label-smoothing`. A field with `#[setting(flatten)]` is a
/// struct of settings itself; its settings stand among the others.
#[proc_macro_derive(Settings, attributes(setting))]
pub fn settings(input: TokenStream) -> TokenStream {
    finish(syn::parse(input).map(|input: syn::DeriveInput| settings::derive(&input)))
}

/// A setting with a few named values: an enum without fields. `LogRatio` is written `log-ratio`.
#[proc_macro_derive(Choice)]
pub fn choice(input: TokenStream) -> TokenStream {
    finish(syn::parse(input).map(|input: syn::DeriveInput| choice::derive(&input)))
}

/// Makes a type the component's method and writes its manifest.
///
/// `method! { Type, shape: "supervised", batch: "micro", update: "host", metrics: ["loss"], paper: "…" }`; batch,
/// update and paper may be left out. The shape is that of the records: `supervised`, `preference`, `unpaired`,
/// `prompts`, `instructions` or `contrast`. With `batch: "window"` a step gets all records of an update at once: for
/// losses that couple records, which micro-batches would change. With `update: "method"` the method updates the
/// parameters itself. Name, version, description and license come from the package table of `Cargo.toml`.
#[proc_macro]
pub fn method(input: TokenStream) -> TokenStream {
    expand(input, World::Method)
}

/// Makes a type the component's verifier and writes its manifest.
///
/// `verifier! { Type, paper: "…" }`; the paper may be left out.
#[proc_macro]
pub fn verifier(input: TokenStream) -> TokenStream {
    expand(input, World::Verifier)
}

/// Makes a type the component's environment and writes its manifest.
///
/// `environment! { Type, paper: "…" }`; the paper may be left out. The crate takes the SDK with its feature
/// `environment`.
#[proc_macro]
pub fn environment(input: TokenStream) -> TokenStream {
    expand(input, World::Environment)
}

/// Parses the input of the macro that declares a component of this world, and generates its code.
fn expand(input: TokenStream, world: World) -> TokenStream {
    let declaration = (|input: ParseStream<'_>| Declaration::parse(input, world)).parse(input);
    finish(declaration.map(|declaration| component::expand(&declaration)))
}

/// Returns the generated code, or code that makes the compiler report the error at its place in the source.
fn finish(code: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    code.unwrap_or_else(|error| error.to_compile_error()).into()
}
