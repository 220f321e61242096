//! `method!`, `verifier!` and `environment!`: a component's exports and its manifest.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, LitStr, Path, Token, bracketed};

use crate::{json, shape};

/// Keys of the manifest that come from `Cargo.toml`, with the variables in which cargo hands them to the compiler.
const PACKAGE_KEYS: [(&str, &str); 4] = [
    ("name", "CARGO_PKG_NAME"),
    ("version", "CARGO_PKG_VERSION"),
    ("description", "CARGO_PKG_DESCRIPTION"),
    ("license", "CARGO_PKG_LICENSE"),
];

/// The world of the contract that a component belongs to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum World {
    Method,
    Verifier,
    Environment,
}

/// What stands between the braces of `method! { … }`, `verifier! { … }` or `environment! { … }`.
pub(crate) struct Declaration {
    implementor: Path,
    world: World,
    shape: Option<String>,
    batch: Option<String>,
    update: Option<String>,
    metrics: Option<Vec<String>>,
    paper: Option<String>,
}

impl Declaration {
    /// Parses a type and the `key: value` pairs after it, separated by commas; of a key that is given twice, the last
    /// value counts. Of the worlds only a method has other keys than `paper`. Errors: an unknown key, a value that
    /// the key does not allow, a method without `shape` or `metrics`.
    pub(crate) fn parse(input: ParseStream<'_>, world: World) -> syn::Result<Self> {
        let implementor: Path = input.parse()?;
        let mut declaration =
            Self { implementor, world, shape: None, batch: None, update: None, metrics: None, paper: None };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                declaration.parse_pair(input)?;
            }
        }
        let missing = [("shape", declaration.shape.is_none()), ("metrics", declaration.metrics.is_none())];
        match missing.into_iter().find(|(_, is_missing)| world == World::Method && *is_missing) {
            Some((key, _)) => {
                Err(syn::Error::new_spanned(&declaration.implementor, format!("the method needs `{key}: …`")))
            }
            None => Ok(declaration),
        }
    }

    /// Parses one `key: value` and stores the value: `paper`, and for a method `shape`, `batch` and `metrics`. Errors:
    /// another key, a value of another type, or one that [`shape::read`] or [`parse_batch`] rejects.
    fn parse_pair(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let key: Ident = input.parse()?;
        input.parse::<Token![:]>()?;
        let is_method = self.world == World::Method;
        match key.to_string().as_str() {
            "paper" => self.paper = Some(input.parse::<LitStr>()?.value()),
            "shape" if is_method => self.shape = Some(shape::read(&input.parse()?)?),
            "batch" if is_method => self.batch = Some(parse_batch(&input.parse()?)?),
            "update" if is_method => self.update = Some(parse_update(&input.parse()?)?),
            "metrics" if is_method => self.metrics = Some(parse_texts(input)?),
            _ if is_method => {
                return Err(syn::Error::new(
                    key.span(),
                    "a method declares `shape`, `batch`, `update`, `metrics` and `paper`",
                ));
            }
            _ if self.world == World::Verifier => {
                return Err(syn::Error::new(key.span(), "beside its type a verifier declares `paper` only"));
            }
            _ => return Err(syn::Error::new(key.span(), "beside its type an environment declares `paper` only")),
        }
        Ok(())
    }

    /// Returns the start of the manifest as JSON text, up to the opening quote of the value of `interface`: what
    /// cargo's variables and the declaration state. Leaves out a license that is empty and what the declaration does
    /// not have; a verifier gets the shape `completion`, an environment the shape `turns`, and both no metrics.
    fn manifest_head(&self) -> String {
        let [name, version, description, license] =
            PACKAGE_KEYS.map(|(name, key)| (name, Some(std::env::var(key).unwrap_or_default())));
        let license = (license.0, license.1.filter(|license| !license.is_empty()));
        let (world, shape) = match self.world {
            World::Method => (None, self.shape.clone().unwrap_or_default()),
            World::Verifier => (Some("verifier".to_owned()), "completion".to_owned()),
            World::Environment => (Some("environment".to_owned()), "turns".to_owned()),
        };
        let texts = [
            name,
            version,
            description,
            ("paper", self.paper.clone()),
            license,
            ("world", world),
            ("shape", Some(shape)),
            ("batch", self.batch.clone()),
            ("update", self.update.clone()),
        ];
        let given = texts.into_iter().filter_map(|(key, text)| Some(format!("\"{key}\":{}", json::string(&text?))));
        let metrics = json::strings(self.metrics.iter().flatten().map(String::as_str));
        format!("{{{},\"metrics\":{metrics},\"interface\":\"", given.collect::<Vec<_>>().join(","))
    }
}

/// Returns the value of `batch`. Errors: neither `micro` nor `window`.
fn parse_batch(word: &LitStr) -> syn::Result<String> {
    match word.value().as_str() {
        "micro" | "window" => Ok(word.value()),
        _ => Err(syn::Error::new(word.span(), "a batch is \"micro\" or \"window\"")),
    }
}

/// Returns the value of `update`. Errors: neither `host` nor `method`.
fn parse_update(word: &LitStr) -> syn::Result<String> {
    match word.value().as_str() {
        "host" | "method" => Ok(word.value()),
        _ => Err(syn::Error::new(word.span(), "an update is made by the \"host\" or the \"method\"")),
    }
}

/// Parses a list of string literals in brackets.
fn parse_texts(input: ParseStream<'_>) -> syn::Result<Vec<String>> {
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.iter().map(LitStr::value).collect())
}

/// Generates the component's exports and the manifest as a custom section, for WebAssembly only; for a native build of
/// a method its twin, and of a verifier or environment a check of its type.
pub(crate) fn expand(declaration: &Declaration) -> TokenStream {
    let (implementor, head) = (&declaration.implementor, declaration.manifest_head());
    let (interface, module, export) = match declaration.world {
        World::Method => {
            let export = quote!(::tunebox::bindings::export_component!(Component with_types_in ::tunebox::bindings););
            (quote!(::tunebox::Method), quote!(::tunebox::method), export)
        }
        World::Verifier => {
            let export = quote!(::tunebox::bindings::judging::export_verifier!(Component with_types_in ::tunebox::bindings::judging););
            (quote!(::tunebox::Verifier), quote!(::tunebox::verifier), export)
        }
        World::Environment => {
            let export = quote!(::tunebox::bindings::responding::export_environment!(Component with_types_in ::tunebox::bindings::responding););
            (quote!(::tunebox::Environment), quote!(::tunebox::environment), export)
        }
    };
    let parts = quote! {
        #head, ::tunebox::manifest::INTERFACE, "\",\"settings\":",
        <<#implementor as #interface>::Settings as ::tunebox::Settings>::MANIFEST, "}",
    };
    let native = match declaration.world {
        World::Method => twin(implementor, &parts),
        World::Verifier | World::Environment => check(implementor, &module),
    };
    let keys = PACKAGE_KEYS.map(|(_, key)| key);
    quote! {
        // The compiler notes that the crate depends on these, so that cargo compiles it again when one changes.
        const _: &[::core::option::Option<&str>] = &[#(::core::option_env!(#keys)),*];

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const PARTS: &[&str] = &[#parts];
            const LENGTH: usize = ::tunebox::manifest::length(PARTS);

            #[unsafe(link_section = "tunebox:manifest")]
            pub static MANIFEST: [u8; LENGTH] = ::tunebox::manifest::join(PARTS);

            type Component = #module::Exported<#implementor>;
            #export
        };

        #native
    }
}

/// Generates the native build of a method: the manifest, a check that the type is a method, and the test of the twin.
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

/// Generates the native build of a verifier or environment, a check of the type by `module` only: it calls no host, so
/// it has no twin. `module` is the SDK's module with the function `check`.
fn check(implementor: &Path, module: &TokenStream) -> TokenStream {
    quote! {
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = #module::check::<#implementor>();
    }
}
