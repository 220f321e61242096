//! `verifier!`: the exports of a component of the second world, and its manifest.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitStr, Path, Token};

use crate::method::package;

/// What stands between the braces of `verifier! { … }`.
pub(crate) struct Declaration {
    verifier: Path,
    paper: Option<String>,
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let verifier: Path = input.parse()?;
        let mut paper = None;
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            if key != "paper" {
                return Err(syn::Error::new(key.span(), "beside its type a verifier declares `paper` only"));
            }
            paper = Some(input.parse::<LitStr>()?.value());
        }
        Ok(Self { verifier, paper })
    }
}

/// The exports, and the manifest as a custom section.
pub(crate) fn expand(declaration: Declaration) -> syn::Result<TokenStream> {
    let Declaration { verifier, paper } = declaration;
    let mut start = package(paper.as_deref());
    start.push_str(",\"world\":\"verifier\",\"shape\":\"completion\",\"metrics\":[],\"interface\":\"");
    let parts = quote! {
        #start, ::tunebox::manifest::INTERFACE, "\",\"settings\":",
        <<#verifier as ::tunebox::Verifier>::Settings as ::tunebox::Settings>::MANIFEST, "}",
    };
    Ok(quote! {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const PARTS: &[&str] = &[#parts];
            const LENGTH: usize = ::tunebox::manifest::length(PARTS);

            #[unsafe(link_section = "tunebox:manifest")]
            pub static MANIFEST: [u8; LENGTH] = ::tunebox::manifest::join(PARTS);

            type Component = ::tunebox::verifier::Exported<#verifier>;
            ::tunebox::bindings::judging::export_verifier!(Component with_types_in ::tunebox::bindings::judging);
        };

        // A verifier asks nothing of a host: there is no twin to serve one.
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = ::tunebox::verifier::check::<#verifier>();
    })
}
