//! The contract as Rust code for a method that is no component: the paths and signatures that `wit-bindgen` writes
//! for WebAssembly, with a request to the host over a connection where the component has an import.
//!
//! Everything is made from `wit/`: no function is named here. What a request is, and how a value is written, is in
//! `tunebox::native`. A crate of its own, because a component needs none of it.

mod flags;
mod function;
mod interface;
mod names;
mod shape;

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Token};
use wit_parser_of_bindings::{InterfaceId, PackageName, Resolve, WorldItem, WorldKey};

use crate::names::value;

/// `mirror!("../../wit", "method")`: the interfaces of a world, what it imports and what it exports.
/// The folder is seen from that of the crate.
#[proc_macro]
pub fn mirror(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let code = syn::parse(input).and_then(|wanted| expand(&wanted));
    code.unwrap_or_else(|error| error.to_compile_error()).into()
}

/// What stands between the brackets.
struct Wanted {
    folder: LitStr,
    world: LitStr,
}

impl Parse for Wanted {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let folder = input.parse()?;
        input.parse::<Token![,]>()?;
        Ok(Self { folder, world: input.parse()? })
    }
}

/// The whole world. Errors: no such folder or world, text that is not WIT, a type that no interface has used so far.
fn expand(wanted: &Wanted) -> syn::Result<TokenStream> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let mut resolve = Resolve::default();
    let problem = |at: &LitStr, error: String| syn::Error::new(at.span(), error);
    let (package, sources) = resolve
        .push_dir(root.join(wanted.folder.value()))
        .map_err(|error| problem(&wanted.folder, format!("{error:#}")))?;
    let world = resolve
        .select_world(&[package], Some(&wanted.world.value()))
        .map_err(|error| problem(&wanted.world, format!("{error:#}")))?;
    let (world, name) = (&resolve.worlds[world], &resolve.packages[package].name);

    let imported = interfaces(&world.imports)?;
    let imported: Vec<_> =
        imported.into_iter().map(|id| interface::imported(&resolve, id)).collect::<syn::Result<_>>()?;
    let exported = interfaces(&world.exports)?;
    let path = path_to_imports(name);
    let exported: Vec<_> =
        exported.into_iter().map(|id| interface::exported(&resolve, id, &path)).collect::<syn::Result<_>>()?;
    let (imported, exported) = (inside(name, &imported), inside(name, &exported));
    let watched = sources.paths().map(watched);
    Ok(quote! {
        #imported
        /// What the host calls.
        pub mod exports { #exported }
        #(#watched)*
    })
}

/// The interfaces among the items of a world; it has no others.
fn interfaces<'a>(items: impl IntoIterator<Item = (&'a WorldKey, &'a WorldItem)>) -> syn::Result<Vec<InterfaceId>> {
    let interface = |(_, item): (_, &WorldItem)| match item {
        WorldItem::Interface { id, .. } => Ok(*id),
        _ => Err(unsupported("a function or type that stands in a world instead of an interface")),
    };
    items.into_iter().map(interface).collect()
}

/// Modules inside those of the package's name, as in `tunebox::method::tensor`.
fn inside(name: &PackageName, modules: &[TokenStream]) -> TokenStream {
    if modules.is_empty() {
        return TokenStream::new();
    }
    let (namespace, name) = (value(&name.namespace), value(&name.name));
    quote!(pub mod #namespace { pub mod #name { #(#modules)* } })
}

/// From the module of an exported interface to those of the imported ones.
fn path_to_imports(name: &PackageName) -> TokenStream {
    let (namespace, name) = (value(&name.namespace), value(&name.name));
    quote!(super::super::super::super::#namespace::#name)
}

/// Makes the compiler read a file, so that it notices when it changes.
fn watched(path: &Path) -> TokenStream {
    let path = path.to_string_lossy();
    quote!(
        const _: &[u8] = include_bytes!(#path);
    )
}

/// Something of WIT that the contract has not used so far.
fn unsupported(what: &str) -> syn::Error {
    syn::Error::new(
        Span::call_site(),
        format!("the mirror of the contract does not know {what}; teach it in sdk/mirror"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(world: &str) -> String {
        let literal = |text| LitStr::new(text, Span::call_site());
        expand(&Wanted { folder: literal("../../wit"), world: literal(world) }).unwrap().to_string()
    }

    #[test]
    fn every_function_of_the_contract_is_asked_for_or_called() {
        let (code, mut seen) = (mirrored("method"), 0);
        let mut resolve = Resolve::default();
        resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")).unwrap();
        for (_, interface) in &resolve.interfaces {
            let name = interface.name.as_deref().unwrap();
            // A verifier asks nothing, so it has no twin.
            let functions = interface.functions.keys().filter(|_| name != "verify");
            for function in functions {
                let wanted = match name {
                    "training" => format!("G :: {}", names::value(function)),
                    _ => format!("{:?}", format!("{name}/{function}")),
                };
                assert!(code.contains(&wanted), "{name}: {wanted}");
                seen += 1;
            }
        }
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn a_world_that_is_not_there_is_an_error_at_its_name() {
        let literal = |text| LitStr::new(text, Span::call_site());
        let error = expand(&Wanted { folder: literal("../../wit"), world: literal("kitchen") }).unwrap_err();
        assert!(error.to_string().contains("kitchen"), "{error}");
    }
}
