//! `#[derive(Choice)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields};

use crate::json;

/// Generates the implementation of `tunebox::Choice`. On an error adds an empty one, so that no further errors follow.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    implementation(input).unwrap_or_else(|error| {
        let (error, identifier) = (error.to_compile_error(), &input.ident);
        quote! {
            #error

            impl ::tunebox::Choice for #identifier {
                const NAMES: &'static [&'static str] = &[];
                const VALUES: &'static [Self] = &[];
                const MANIFEST: &'static str = "[]";
            }
        }
    })
}

/// Generates the implementation of `tunebox::Choice` for an enum: the names of its variants by [`kebab`], their values,
/// both in the order of the source, and the names as a JSON list. Errors: no enum, or a variant with fields.
fn implementation(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new_spanned(&input.ident, "a choice is an enum"));
    };
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new_spanned(variant, "a choice has names only, no fields"));
        }
    }

    let names: Vec<String> = data.variants.iter().map(|variant| kebab(&variant.ident.to_string())).collect();
    let manifest = json::strings(names.iter().map(String::as_str));
    let (identifier, variants) = (&input.ident, data.variants.iter().map(|variant| &variant.ident));
    Ok(quote! {
        impl ::tunebox::Choice for #identifier {
            const NAMES: &'static [&'static str] = &[#(#names),*];
            const VALUES: &'static [Self] = &[#(Self::#variants),*];
            const MANIFEST: &'static str = #manifest;
        }
    })
}

/// Converts the name of a variant to that of a choice: lower case, with a hyphen before each capital but the first
/// letter. `LogRatio` becomes `log-ratio`, `SGD` becomes `s-g-d`.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for (index, character) in variant.chars().enumerate() {
        if character.is_uppercase() && index > 0 {
            name.push('-');
        }
        name.extend(character.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_enum_with_fields_is_one_error_and_a_choice_all_the_same() {
        let code = super::derive(&syn::parse_quote!(
            enum Way {
                Long(u32),
            }
        ))
        .to_string();
        assert!(code.contains("a choice has names only, no fields"), "{code}");
        assert!(code.contains("impl :: tunebox :: Choice for Way"), "{code}");
    }

    #[test]
    fn words_of_a_variant_are_joined_by_hyphens() {
        assert_eq!(super::kebab("LogRatio"), "log-ratio");
    }
}
