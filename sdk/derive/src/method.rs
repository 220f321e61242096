//! `method!`: the component's exports and its manifest.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, LitStr, Path, Token, bracketed};

use crate::{json, shape};

/// What stands between the braces of `method! { … }`.
pub(crate) struct Declaration {
    method: Path,
    shape: String,
    batch: Option<String>,
    metrics: Vec<String>,
    paper: Option<String>,
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let method: Path = input.parse()?;
        let (mut shape, mut batch, mut metrics, mut paper) = (None, None, None, None);
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            match key.to_string().as_str() {
                "shape" => shape = Some(shape::read(&input.parse()?)?),
                "batch" => batch = Some(cadence(&input.parse()?)?),
                "paper" => paper = Some(input.parse::<LitStr>()?.value()),
                "metrics" => metrics = Some(texts(input)?),
                _ => {
                    return Err(syn::Error::new(
                        key.span(),
                        "a method declares `shape`, `batch`, `metrics` and `paper`",
                    ));
                }
            }
        }
        let missing = |what| syn::Error::new_spanned(&method, format!("the method needs `{what}: …`"));
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let metrics = metrics.ok_or_else(|| missing("metrics"))?;
        Ok(Self { method, shape, batch, metrics, paper })
    }
}

/// How many records a step gets.
fn cadence(word: &LitStr) -> syn::Result<String> {
    match word.value().as_str() {
        "micro" | "window" => Ok(word.value()),
        _ => Err(syn::Error::new(word.span(), "a batch is \"micro\" or \"window\"")),
    }
}

/// A list of string literals in brackets.
fn texts(input: ParseStream<'_>) -> syn::Result<Vec<String>> {
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.iter().map(LitStr::value).collect())
}

/// The exports, and the manifest as a custom section.
pub(crate) fn expand(declaration: Declaration) -> syn::Result<TokenStream> {
    let start = head(&declaration);
    let method = &declaration.method;
    let parts = quote! {
        #start, ::tunebox::manifest::INTERFACE, "\",\"settings\":",
        <<#method as ::tunebox::Method>::Settings as ::tunebox::Settings>::MANIFEST, "}",
    };
    let twin = twin(method, &parts);
    Ok(quote! {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const PARTS: &[&str] = &[#parts];
            const LENGTH: usize = ::tunebox::manifest::length(PARTS);

            #[unsafe(link_section = "tunebox:manifest")]
            pub static MANIFEST: [u8; LENGTH] = ::tunebox::manifest::join(PARTS);

            type Component = ::tunebox::method::Exported<#method>;
            ::tunebox::bindings::export_component!(Component with_types_in ::tunebox::bindings);
        };

        #twin
    })
}

/// Outside a component: the manifest, a check that the type is a method, and the test that serves a host.
fn twin(method: &Path, manifest: &TokenStream) -> TokenStream {
    quote! {
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const PARTS: &[&str] = &[#manifest];
            const JOINED: [u8; ::tunebox::manifest::length(PARTS)] = ::tunebox::manifest::join(PARTS);

            impl ::tunebox::native::Declared for #method {
                const MANIFEST: &'static str = ::tunebox::manifest::text(&JOINED);
            }

            ::tunebox::method::check::<#method>();
        };

        // Passes at once, unless a host asks for the twin.
        #[cfg(all(test, not(target_arch = "wasm32")))]
        #[test]
        fn tunebox_twin() {
            ::tunebox::native::serve_method::<#method>();
        }
    }
}

/// The manifest up to the interface's version.
fn head(declaration: &Declaration) -> String {
    let mut json = package(declaration.paper.as_deref());
    json.push_str(&format!(",\"shape\":{}", json::string(&declaration.shape)));
    json.extend(declaration.batch.as_ref().map(|batch| format!(",\"batch\":{}", json::string(batch))));
    json.push_str(&format!(
        ",\"metrics\":{},\"interface\":\"",
        json::strings(declaration.metrics.iter().map(String::as_str)),
    ));
    json
}

/// What the package table of `Cargo.toml` gives to a manifest, from its opening brace on.
pub(crate) fn package(paper: Option<&str>) -> String {
    let package = |key: &str| std::env::var(key).unwrap_or_default();
    let mut json = format!(
        "{{\"name\":{},\"version\":{},\"description\":{}",
        json::string(&package("CARGO_PKG_NAME")),
        json::string(&package("CARGO_PKG_VERSION")),
        json::string(&package("CARGO_PKG_DESCRIPTION")),
    );
    json.extend(paper.map(|paper| format!(",\"paper\":{}", json::string(paper))));
    let licence = package("CARGO_PKG_LICENSE");
    if !licence.is_empty() {
        json.push_str(&format!(",\"licence\":{}", json::string(&licence)));
    }
    json
}
