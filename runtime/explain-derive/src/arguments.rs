//! The arguments of `#[explain(...)]`.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Token};

/// The answers that are text.
pub(crate) const TEXTS: [&str; 5] = ["location", "output", "why", "kept", "hint"];

/// The other answers.
const OTHERS: [&str; 4] = ["category", "snippet", "trace", "exit"];

/// What stands in the `#[explain(...)]` attributes of a type or a variant.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    answers: BTreeMap<String, TokenStream>,
    /// Whether answers that are not given come from the error inside this one.
    pub(crate) source: bool,
}

impl Arguments {
    /// Reads all `#[explain(...)]` among the attributes. Fails at the first unknown or repeated argument.
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("explain")) {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.require_ident()?.to_string();
                if name == "source" {
                    found.source = true;
                    return Ok(());
                }
                if !TEXTS.contains(&name.as_str()) && !OTHERS.contains(&name.as_str()) {
                    return Err(meta.error(format!(
                        "unknown argument; known: source, {}, {}",
                        OTHERS.join(", "),
                        TEXTS.join(", ")
                    )));
                }
                meta.input.parse::<Token![=]>()?;
                let value = answer(&name, meta.input.parse()?);
                match found.answers.insert(name, value) {
                    None => Ok(()),
                    Some(_) => Err(meta.error("this argument is given twice")),
                }
            })?;
        }
        Ok(found)
    }

    /// These arguments, and those of the whole type where these give no answer. A variant with a source takes nothing from
    /// the type: its source answers.
    pub(crate) fn or(mut self, shared: &Self) -> Self {
        if !self.source {
            for (name, value) in &shared.answers {
                self.answers.entry(name.clone()).or_insert_with(|| value.clone());
            }
            self.source = shared.source;
        }
        self
    }

    /// The expression of an answer, where it is given.
    pub(crate) fn get(&self, name: &str) -> Option<&TokenStream> {
        self.answers.get(name)
    }
}

/// The expression of an answer: `format!` for literal text, a variant of `Exit` for a bare name, and anything else as it is.
fn answer(name: &str, value: Expr) -> TokenStream {
    match (name, value) {
        ("category", value) => value.into_token_stream(),
        ("exit", Expr::Path(path)) => quote!(::tunebox_foundation::explain::Exit::#path),
        (_, Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => {
            let text = LitStr::new(&name_positions(&text.value()), text.span());
            quote!(::std::format!(#text))
        }
        (_, value) => value.into_token_stream(),
    }
}

/// Replaces `{0}` and `{0:…}` by `{_0}` and `{_0:…}`: format strings capture names only.
fn name_positions(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let (before, after) = rest.split_at(start + 1);
        named += before;
        rest = after;
        if let Some(after) = rest.strip_prefix('{') {
            named.push('{');
            rest = after;
        } else if rest.starts_with(|first: char| first.is_ascii_digit()) {
            named.push('_');
        }
    }
    named + rest
}
