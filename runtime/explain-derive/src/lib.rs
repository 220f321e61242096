//! The derive macro of `tunebox_foundation::explain::Explain`, which puts cause, hint and exit code beside each variant.

mod arguments;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Member, parse_macro_input};

use arguments::{Arguments, TEXTS};

/// Implements `Explain` for an enum or struct that implements `std::error::Error` (as by `thiserror`).
///
/// Arguments of `#[explain(...)]`, on the type (for every variant) or on a variant (which then counts):
///
/// - `category = "model"`: the subject in `error[model]`; needed on the type.
/// - `location = …`, `why = …`, `kept = …`, `hint = …`, `output = …`: a string literal, formatted with the fields of the
///   variant as in `#[error("…")]`; or an expression of type `String` or `Option<String>` over its fields, which are
///   references named as they are declared (`_0`, `_1` in a tuple variant).
/// - `snippet = …`, `trace = …`: an expression of type `Option<Snippet>` or `Option<Trace>`.
/// - `exit = Sandbox`: a variant of `Exit`; `Usage` without it. Or an expression in parentheses.
/// - `source`: every answer that is not given here comes from the variant's field `source`, or from its first field in a
///   tuple variant. That field implements `Explain`.
///
/// An argument without `=` other than `source`, an unknown name and a missing category are errors at compile time.
#[proc_macro_derive(Explain, attributes(explain))]
pub fn derive_explain(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// One variant of the enum, or the struct itself.
struct Variant<'a> {
    /// `Self::Name`, or `Self`.
    path: TokenStream,
    fields: &'a Fields,
    arguments: Arguments,
}

fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let shared = Arguments::parse(&input.attrs)?;
    let of_variant = |variant: &'_ syn::Variant| Arguments::parse(&variant.attrs).map(|own| own.or(&shared));
    let variants: Vec<Variant<'_>> = match &input.data {
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let name = &variant.ident;
                Ok(Variant { path: quote!(Self::#name), fields: &variant.fields, arguments: of_variant(variant)? })
            })
            .collect::<syn::Result<_>>()?,
        Data::Struct(data) => vec![Variant { path: quote!(Self), fields: &data.fields, arguments: shared }],
        Data::Union(_) => return Err(Error::new(input.span(), "an error is an enum or a struct")),
    };
    if variants.iter().any(|variant| variant.arguments.get("category").is_none() && !variant.arguments.source) {
        return Err(Error::new(input.ident.span(), "`#[explain(category = \"…\")]` is missing"));
    }
    Ok(implementation(input, &variants))
}

/// The whole `impl` block.
fn implementation(input: &DeriveInput, variants: &[Variant<'_>]) -> TokenStream {
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    let explain = quote!(::tunebox_foundation::explain);
    let text = |value: &TokenStream| quote!(::core::option::Option::<::std::string::String>::from(#value));
    let mut methods = vec![
        method("category", &quote!(&'static str), variants, &quote!("internal"), &|value| value.clone()),
        method("snippet", &quote!(Option<#explain::Snippet>), variants, &quote!(None), &|value| value.clone()),
        method("trace", &quote!(Option<#explain::Trace>), variants, &quote!(None), &|value| value.clone()),
        method("exit", &quote!(#explain::Exit), variants, &quote!(#explain::Exit::Usage), &|value| value.clone()),
    ];
    for name in TEXTS {
        methods.push(method(name, &quote!(Option<::std::string::String>), variants, &quote!(None), &text));
    }
    quote! {
        #[automatically_derived]
        impl #generics #explain::Explain for #name #types #bounds {
            #(#methods)*
        }
    }
}

/// One method of the trait: a `match` with an arm for each variant that answers it.
fn method(
    name: &str,
    result: &TokenStream,
    variants: &[Variant<'_>],
    otherwise: &TokenStream,
    convert: &dyn Fn(&TokenStream) -> TokenStream,
) -> TokenStream {
    let name = format_ident!("{name}");
    let arms: Vec<TokenStream> = variants.iter().filter_map(|variant| arm(&name, variant, convert)).collect();
    let rest = if arms.len() < variants.len() || variants.is_empty() { quote!(_ => #otherwise,) } else { quote!() };
    quote! {
        #[allow(unused_variables)]
        fn #name(&self) -> #result {
            match self { #(#arms)* #rest }
        }
    }
}

/// The arm of a variant, or nothing where it has no answer to this method.
fn arm(name: &Ident, variant: &Variant<'_>, convert: &dyn Fn(&TokenStream) -> TokenStream) -> Option<TokenStream> {
    let path = &variant.path;
    if let Some(value) = variant.arguments.get(&name.to_string()) {
        let pattern = pattern(variant.fields);
        let value = convert(value);
        return Some(quote!(#path #pattern => #value,));
    }
    if !variant.arguments.source {
        return None;
    }
    let member = match variant.fields {
        Fields::Named(_) => Member::Named(format_ident!("source")),
        _ => Member::Unnamed(0.into()),
    };
    Some(quote!(#path { #member: source, .. } => ::tunebox_foundation::explain::Explain::#name(source),))
}

/// A pattern that binds every field of a variant by reference.
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
