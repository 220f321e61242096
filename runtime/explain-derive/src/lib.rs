//! The derive macro of `tunebox_foundation::explain::Explain`, which puts cause, hint and exit code beside each variant.

mod arguments;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, parse_macro_input};

use arguments::Arguments;

/// Implements `Explain` for an enum or struct that implements `std::error::Error` (as by `thiserror`).
///
/// Arguments of `#[explain(...)]`, on the type (for every variant) or on a variant (which then counts):
///
/// - `category = "model"`: the subject in `error[model]`; needed on the type.
/// - `location = …`, `why = …`, `kept = …`, `hint = …`, `output = …`: a string literal, formatted with the fields of the
///   variant as in `#[error("…")]`; or an expression of type `String` or `Option<String>` over its fields, which are
///   references named as they are declared (`_0`, `_1` in a tuple variant).
/// - `snippet = …`, `trace = …`: an expression of type `Option<Snippet>` or `Option<Trace>`.
/// - `exit = Sandbox`: a variant of `Exit`, or an expression of that type; `Usage` without it.
/// - `source`: every answer that is not given here comes from the variant's field `source`, or from its first field in a
///   tuple variant. That field implements `Explain`.
///
/// An argument without `=` other than `source`, an unknown name and a missing category are errors at compile time.
#[proc_macro_derive(Explain, attributes(explain))]
pub fn derive_explain(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Generates the `impl Explain` block with `explanation` and `exit`, which match on the variants; a struct is one variant
/// with the arguments of the type. Fails for a wrong argument, for a union, and where a variant has neither `category`
/// (its own or of the type) nor `source`.
fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let shared = Arguments::parse(&input.attrs)?;
    let (mut explanations, mut exits) = (Vec::new(), Vec::new());
    let mut add = |path: &TokenStream, fields: &Fields, arguments: &Arguments| {
        if !arguments.has_category() && !arguments.source {
            return Err(Error::new(input.ident.span(), "`#[explain(category = \"…\")]` is missing"));
        }
        let (pattern, source) = (pattern(fields), source(fields));
        let (explanation, exit) = (arguments.explanation(&source), arguments.exit(&source));
        explanations.push(quote!(#path #pattern => #explanation,));
        exits.push(quote!(#path #pattern => #exit,));
        Ok(())
    };
    match &input.data {
        Data::Enum(data) => {
            for variant in &data.variants {
                let name = &variant.ident;
                add(&quote!(Self::#name), &variant.fields, &Arguments::parse(&variant.attrs)?.or(&shared))?;
            }
        }
        Data::Struct(data) => add(&quote!(Self), &data.fields, &shared)?,
        Data::Union(_) => return Err(Error::new(input.span(), "an error is an enum or a struct")),
    }
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    let explain = quote!(::tunebox_foundation::explain);
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #generics #explain::Explain for #name #types #bounds {
            fn explanation(&self) -> #explain::Explanation {
                match self { #(#explanations)* }
            }

            fn exit(&self) -> #explain::Exit {
                match self { #(#exits)* }
            }
        }
    })
}

/// Generates the part of a pattern after the variant's name, which binds every field: named fields by name, tuple fields as
/// `_0`, `_1`, … Empty for a variant without fields.
fn pattern(fields: &Fields) -> TokenStream {
    match fields {
        Fields::Named(fields) => {
            let names = fields.named.iter().map(|field| &field.ident);
            quote!({ #(#names),* })
        }
        Fields::Unnamed(fields) => {
            let names = (0..fields.unnamed.len()).map(|index| format_ident!("_{index}"));
            quote!((#(#names),*))
        }
        Fields::Unit => quote!(),
    }
}

/// Generates the name to which [`pattern`] binds the inner error: `source` for named fields, else `_0`. Does not check
/// that the variant has this field.
fn source(fields: &Fields) -> TokenStream {
    if let Fields::Named(_) = fields { quote!(source) } else { quote!(_0) }
}
