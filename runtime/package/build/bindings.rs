//! The guest's bindings written out, as the macro of `wit-bindgen` in `sdk/rust/src/bindings.rs` makes them; and the contract
//! as data for the SDK in Python.
//!
//! The macro stands on a parser, a validator and an encoder of WebAssembly: more to compile than all the rest of a
//! method. In this repository it is compiled once; an author would compile it for every method that they begin.

use std::io;
use std::path::Path;

use tunebox_contract::write;
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::Opts;

/// The text in the SDK's `Cargo.toml` that asks for the macro of `wit-bindgen`.
const MACRO: &str = ", features = [\"macros\"]";

/// Generates the text that replaces `sdk/rust/src/bindings.rs` outside of this repository: the bindings of the world
/// `method`, those of the world `verifier` in a module `judging`, and those of the world `environment` in a module
/// `responding`. `contract` is the folder of the WIT files.
pub(crate) fn module(contract: &Path) -> io::Result<String> {
    let method = world(contract, "method", "export_component", "::tunebox::bindings")?;
    let verifier = world(contract, "verifier", "export_verifier", "::tunebox::bindings::judging")?;
    let environment = world(contract, "environment", "export_environment", "::tunebox::bindings::responding")?;
    Ok(format!(
        "//! The contract in Rust, as `wit-bindgen` writes it down.\n\n#![allow(warnings, clippy::all)]\n\n{method}\n\
         pub use wit_bindgen::rt as runtime;\n\n/// The second world.\npub mod judging {{\n{verifier}\n}}\n\n\
         /// The third world.\n#[cfg(feature = \"environment\")]\npub mod responding {{\n{environment}\n}}\n"
    ))
}

/// Generates the contract as data for the Python SDK. `contract` is the folder of the WIT files.
pub(crate) fn python(contract: &Path) -> io::Result<String> {
    let read = tunebox_contract::Contract::read(contract).and_then(|contract| write::python(&contract));
    read.map_err(|error| io::Error::other(error.to_string()))
}

/// Removes the feature `macros` of `wit-bindgen` from the text of the SDK's `Cargo.toml`. Errors: the text does not ask
/// for that feature.
pub(crate) fn manifest(text: &str) -> io::Result<String> {
    let plain = text.replace(MACRO, "");
    if plain == text { Err(io::Error::other("the SDK's manifest asks for no macro of wit-bindgen")) } else { Ok(plain) }
}

/// Generates the Rust bindings of the world `name`, with the options that the SDK gives to the macro of `wit-bindgen`.
/// `contract` is the folder of the WIT files, `export` the name of the generated export macro, and `place` the path of the
/// Rust module that this macro refers to. Errors: WIT that cannot be parsed, no such world, or no generated text.
fn world(contract: &Path, name: &str, export: &str, place: &str) -> io::Result<String> {
    let generated = || {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_path(contract)?;
        let world = resolve.select_world(&[package], Some(name))?;
        let options = Opts {
            format: true,
            generate_all: true,
            pub_export_macro: true,
            export_macro_name: Some(export.to_owned()),
            default_bindings_module: Some(place.to_owned()),
            runtime_path: Some("::tunebox::bindings::runtime".to_owned()),
            ..Opts::default()
        };
        let mut files = Files::default();
        options.build().generate(&mut resolve, world, &mut files).map(|()| files)
    };
    let files = generated().map_err(|error| io::Error::other(format!("{error:#}")))?;
    let text = files.iter().next().and_then(|(_, bytes)| std::str::from_utf8(bytes).ok());
    text.map(str::to_owned).ok_or_else(|| io::Error::other("wit-bindgen wrote no bindings"))
}
