//! One interface as one module.

use proc_macro2::TokenStream;
use quote::quote;
use wit_parser_of_bindings::{Function, FunctionKind, InterfaceId, Resolve, TypeDefKind, TypeId};

use crate::names::{camel, documentation, value};
use crate::shape::Place;

/// An interface that the host offers.
pub(crate) fn imported(resolve: &Resolve, id: InterfaceId) -> syn::Result<TokenStream> {
    let interface = &resolve.interfaces[id];
    let wire = interface.name.as_deref().unwrap_or_default();
    let place = Place { resolve, interface: id, imports: &quote!(super) };
    let types = definitions(&place, wire)?;
    let functions = |of: Option<TypeId>| {
        let wanted = interface.functions.values().filter(move |function| resource(function) == of);
        wanted.map(|function| place.asking(function, wire)).collect::<syn::Result<Vec<_>>>()
    };
    let resources = interface.types.iter().filter(|(_, id)| matches!(resolve.types[**id].kind, TypeDefKind::Resource));
    let methods = resources.map(|(name, id)| {
        let (name, methods) = (camel(name), functions(Some(*id))?);
        Ok(quote!(impl #name { #(#methods)* }))
    });
    let (methods, free) = (methods.collect::<syn::Result<Vec<_>>>()?, functions(None)?);
    Ok(within(resolve, id, &quote!(#(#types)* #(#methods)* #(#free)*)))
}

/// An interface that the method offers: a trait, and how a call of the host reaches it.
pub(crate) fn exported(resolve: &Resolve, id: InterfaceId, imports: &TokenStream) -> syn::Result<TokenStream> {
    let interface = &resolve.interfaces[id];
    let place = Place { resolve, interface: id, imports };
    let types = definitions(&place, interface.name.as_deref().unwrap_or_default())?;
    let offered = interface.functions.values().map(|function| place.offered(function));
    let offered = offered.collect::<syn::Result<Vec<_>>>()?;
    let called = interface.functions.values().enumerate().map(|(number, function)| place.called(number, function));
    let called = called.collect::<syn::Result<Vec<_>>>()?;
    Ok(within(
        resolve,
        id,
        &quote! {
            #(#types)*

            /// What the host calls.
            pub trait Guest { #(#offered)* }

            /// Runs a call of the host: the number of the function in the interface, its arguments, the buffer for its result.
            pub fn dispatch<G: Guest>(
                function: u8,
                arguments: &mut Reader<'_>,
                result: &mut ::std::vec::Vec<u8>,
            ) -> ::std::result::Result<(), Malformed> {
                match function {
                    #(#called)*
                    _ => return ::std::result::Result::Err(Malformed("a call of a function that the contract does not have".into())),
                }
                ::std::result::Result::Ok(())
            }
        },
    ))
}

/// The types that an interface names.
fn definitions(place: &Place<'_>, wire: &str) -> syn::Result<Vec<TokenStream>> {
    place.resolve.interfaces[place.interface].types.values().map(|id| place.definition(*id, wire)).collect()
}

/// The resource that a function belongs to.
fn resource(function: &Function) -> Option<TypeId> {
    match function.kind {
        FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => Some(id),
        _ => None,
    }
}

/// The module, with what the code in it calls.
fn within(resolve: &Resolve, id: InterfaceId, code: &TokenStream) -> TokenStream {
    let interface = &resolve.interfaces[id];
    let (name, docs) = (value(interface.name.as_deref().unwrap_or_default()), documentation(&interface.docs));
    quote! {
        #docs
        #[allow(clippy::all, missing_docs, reason = "made from the contract, whose words and order it keeps")]
        pub mod #name {
            #[allow(unused_imports, reason = "not every interface has handles and requests")]
            use crate::native::{Decode, Encode, Handle, Borrowed, Malformed, Reader, Request};

            #code
        }
    }
}
