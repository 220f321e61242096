//! The contract as Rust code for a method that is no component: the paths and signatures that `wit-bindgen` writes
//! for WebAssembly, with a request to the host over a connection where the component has an import.
//!
//! Everything is made from `wit/`: no function is named here. What a request is, and how a value is written, is in
//! `tunebox::native`. A crate of its own, because a component needs none of it.

mod function;
mod names;
mod shape;

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream};
use quote::quote;
use wit_parser_of_bindings::{Function, FunctionKind, InterfaceId, Resolve, TypeDefKind, TypeId, WorldItem, WorldKey};

use crate::names::{camel, documentation, value};
use crate::shape::Place;

/// The folder of the contract, seen from that of the crate that calls the macro.
const CONTRACT: &str = "wit";

/// The world whose imports and exports are written.
const WORLD: &str = "method";

/// `mirror!()` generates modules for the interfaces that a method imports and exports.
#[proc_macro]
pub fn mirror(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand().unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Generates the modules of all interfaces of the world `method` in the folder `wit` of the crate that calls the macro,
/// and recompiles the crate when a file of that folder changes. Errors: no such folder or world, text that is not WIT,
/// a type that is not supported.
fn expand() -> syn::Result<TokenStream> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let mut resolve = Resolve::default();
    let (package, sources) = resolve.push_dir(root.join(CONTRACT)).map_err(|error| problem(format!("{error:#}")))?;
    let world = resolve.select_world(&[package], Some(WORLD)).map_err(|error| problem(format!("{error:#}")))?;
    let (world, name) = (&resolve.worlds[world], &resolve.packages[package].name);
    let (namespace, name) = (value(&name.namespace), value(&name.name));

    let (here, above) = (quote!(super), quote!(super::super::super::super::#namespace::#name));
    let imported =
        interfaces(&world.imports, |id| import(&Place { resolve: &resolve, interface: id, imports: &here }))?;
    let exported =
        interfaces(&world.exports, |id| export(&Place { resolve: &resolve, interface: id, imports: &above }))?;
    let watched = sources.paths().map(watch);
    Ok(quote! {
        pub mod #namespace { pub mod #name { #(#imported)* } }
        /// What the host calls.
        pub mod exports { pub mod #namespace { pub mod #name { #(#exported)* } } }
        #(#watched)*
    })
}

/// Generates code by `write` for each item of a world. Errors: an item that is not an interface.
fn interfaces<'a>(
    items: impl IntoIterator<Item = (&'a WorldKey, &'a WorldItem)>,
    write: impl Fn(InterfaceId) -> syn::Result<TokenStream>,
) -> syn::Result<Vec<TokenStream>> {
    let interface = |(_, item): (_, &WorldItem)| match item {
        WorldItem::Interface { id, .. } => write(*id),
        _ => Err(unsupported("a function or type that stands in a world instead of an interface")),
    };
    items.into_iter().map(interface).collect()
}

/// Generates the module of an interface that the host offers, with its resources and functions.
fn import(place: &Place<'_>) -> syn::Result<TokenStream> {
    let interface = &place.resolve.interfaces[place.interface];
    let functions = |of: Option<TypeId>| {
        let wanted = interface.functions.values().filter(move |function| resource(function) == of);
        wanted.map(|function| place.request(function)).collect::<syn::Result<Vec<_>>>()
    };
    let is_resource = |id: TypeId| matches!(place.resolve.types[id].kind, TypeDefKind::Resource);
    let resources = interface.types.iter().filter(|(_, id)| is_resource(**id));
    let methods = resources.map(|(name, id)| {
        let (name, methods) = (camel(name), functions(Some(*id))?);
        Ok(quote!(impl #name { #(#methods)* }))
    });
    let (methods, free) = (methods.collect::<syn::Result<Vec<_>>>()?, functions(None)?);
    module(place, &quote!(#(#methods)* #(#free)*))
}

/// Generates the module of an interface that the method offers: the trait `Guest`, and `dispatch`, which calls it.
fn export(place: &Place<'_>) -> syn::Result<TokenStream> {
    let functions = place.resolve.interfaces[place.interface].functions.values().enumerate();
    let offers = functions.map(|(number, function)| place.offer(number, function));
    let (signatures, arms): (Vec<_>, Vec<_>) = offers.collect::<syn::Result<Vec<_>>>()?.into_iter().unzip();
    let code = quote! {
        /// What the host calls.
        pub trait Guest { #(#signatures)* }

        /// Runs a call of the host: the number of the function in the interface, its arguments, the buffer for its
        /// result.
        pub fn dispatch<G: Guest>(
            function: u8,
            arguments: &mut Reader<'_>,
            result: &mut ::std::vec::Vec<u8>,
        ) -> ::std::result::Result<(), Malformed> {
            match function {
                #(#arms)*
                _ => return ::std::result::Result::Err(Malformed("a call of a function that the contract does not have".into())),
            }
            ::std::result::Result::Ok(())
        }
    };
    module(place, &code)
}

/// The resource that a function is a method, static function or constructor of; `None` for a free function.
fn resource(function: &Function) -> Option<TypeId> {
    match function.kind {
        FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => Some(id),
        _ => None,
    }
}

/// Generates the module of an interface: its type definitions, then `code`.
fn module(place: &Place<'_>, code: &TokenStream) -> syn::Result<TokenStream> {
    let interface = &place.resolve.interfaces[place.interface];
    let (name, docs) = (value(place.wire()), documentation(&interface.docs));
    let types = interface.types.values().map(|id| place.definition(*id)).collect::<syn::Result<Vec<_>>>()?;
    Ok(quote! {
        #docs
        #[allow(clippy::all, missing_docs, reason = "made from the contract, whose words and order it keeps")]
        pub mod #name {
            #[allow(unused_imports, reason = "not every interface has handles and requests")]
            use crate::native::{Decode, Encode, Handle, Borrowed, Malformed, Reader, Request, cases, record};

            #(#types)*
            #code
        }
    })
}

/// Generates an unused `include_bytes!` of a file, so that a change of the file recompiles the crate.
fn watch(path: &Path) -> TokenStream {
    let path = path.to_string_lossy();
    quote!(
        const _: &[u8] = include_bytes!(#path);
    )
}

/// The compile error for a feature of WIT that this crate does not generate.
fn unsupported(what: &str) -> syn::Error {
    problem(format!("the mirror of the contract does not know {what}; teach it in sdk/mirror"))
}

/// Makes a compile error with this text at the call of the macro.
fn problem(text: String) -> syn::Error {
    syn::Error::new(Span::call_site(), text)
}
