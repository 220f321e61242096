//! The arguments of `#[explain(...)]`.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, Token};

/// The arguments with a value: the fields of `Explanation`, and the exit code.
const NAMES: [&str; 9] = ["category", "snippet", "trace", "exit", "location", "output", "why", "kept", "hint"];

/// What stands in the `#[explain(...)]` attributes of a type or a variant: expressions by their names.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    answers: BTreeMap<Ident, TokenStream>,
    /// Whether answers that are not given come from the error inside this one.
    pub(crate) source: bool,
}

impl Arguments {
    /// Parses all `#[explain(...)]` among the attributes of a type or variant, and ignores other attributes. Fails at
    /// the first argument whose name is unknown, which has no value, or which comes twice; `source` has no value and
    /// may repeat.
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("explain")) {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.require_ident()?.clone();
                if name == "source" {
                    found.source = true;
                    return Ok(());
                }
                if !NAMES.iter().any(|known| name == known) {
                    return Err(meta.error(format!("unknown argument; known: source, {}", NAMES.join(", "))));
                }
                meta.input.parse::<Token![=]>()?;
                let value = convert_value(&name, meta.input.parse()?);
                match found.answers.insert(name, value) {
                    None => Ok(()),
                    Some(_) => Err(meta.error("this argument is given twice")),
                }
            })?;
        }
        Ok(found)
    }

    /// Adds the arguments of the whole type, `shared`, that this variant does not give itself, `source` among them.
    /// Changes nothing if the variant has `source`, since then its inner error gives the others.
    pub(crate) fn or(mut self, shared: &Self) -> Self {
        if !self.source {
            for (name, value) in &shared.answers {
                self.answers.entry(name.clone()).or_insert_with(|| value.clone());
            }
            self.source = shared.source;
        }
        self
    }

    /// Whether `category` is given.
    pub(crate) fn has_category(&self) -> bool {
        self.answers.keys().any(|name| name == "category")
    }

    /// Generates the expression of the `Explanation`. Its `what` is the error's `Display` text, and the given arguments
    /// are its fields (`exit` is none). Other fields come from the explanation of `source` (the expression of the inner
    /// error) if `#[explain(source)]` is set; else they are empty.
    pub(crate) fn explanation(&self, source: &TokenStream) -> TokenStream {
        let explain = quote!(::tunebox_foundation::explain);
        let fields = self.answers.iter().filter(|(name, _)| *name != "exit").map(|(name, value)| quote!(#name: #value));
        let rest = if self.source { quote!(Explain::explanation(#source)) } else { quote!(Explanation::default()) };
        quote!(#explain::Explanation { what: ::std::string::ToString::to_string(self), #(#fields,)* ..#explain::#rest })
    }

    /// Generates the expression of the exit code: the given one, else that of `source` (the expression of the inner
    /// error) if `#[explain(source)]` is set, else `Exit::Usage`.
    pub(crate) fn exit(&self, source: &TokenStream) -> TokenStream {
        match self.answers.iter().find(|(name, _)| *name == "exit") {
            Some((_, value)) => value.clone(),
            None if self.source => quote!(::tunebox_foundation::explain::Explain::exit(#source)),
            None => quote!(::tunebox_foundation::explain::Exit::Usage),
        }
    }
}

/// Converts the value of the argument `name` to an expression of the field's type. A string literal becomes `format!`,
/// except for `category`. A path given for `exit` becomes a variant of `Exit`. All values but those of `exit`,
/// `snippet` and `trace` are wrapped in `Into::into`, which makes a `String` an `Option<String>`.
fn convert_value(name: &Ident, value: Expr) -> TokenStream {
    let value = match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if name != "category" => {
            quote!(::std::format!(#text))
        }
        Expr::Path(path) if name == "exit" => quote!(::tunebox_foundation::explain::Exit::#path),
        value => value.into_token_stream(),
    };
    match name.to_string().as_str() {
        "exit" | "snippet" | "trace" => value,
        _ => quote!(::core::convert::Into::into(#value)),
    }
}
