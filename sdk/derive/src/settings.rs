//! `#[derive(Settings)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Field, Fields, LitStr};

use crate::attributes::{Setting, documentation, kebab};
use crate::json;

/// Generates the implementation of `tunebox::Settings`. On an error adds an empty one: without it the compiler would
/// report every use of the type as well.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    implementation(input).unwrap_or_else(|error| {
        let (error, identifier) = (error.to_compile_error(), &input.ident);
        let (generics, arguments, condition) = input.generics.split_for_impl();
        quote! {
            #error

            impl #generics ::tunebox::Settings for #identifier #arguments #condition {
                const MANIFEST: &'static str = "[]";

                fn read(_: &[::tunebox::settings::Setting]) -> ::tunebox::Result<Self> {
                    ::core::unreachable!()
                }
            }
        }
    })
}

/// Generates the implementation of `tunebox::Settings` for a struct: its manifest, a JSON list with an entry for each
/// field, in which the entries of a `flatten` field stand among the others; `read`, which takes each field's value by
/// its name; and the checks of text defaults. Errors: no struct, fields without names, or those of [`Setting::read`]
/// and [`entry`].
fn implementation(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(&input.ident, "settings are a struct with named fields"));
    };
    let fields: Vec<&Field> = match &data.fields {
        Fields::Named(named) => named.named.iter().collect(),
        Fields::Unit => Vec::new(),
        Fields::Unnamed(unnamed) => return Err(syn::Error::new_spanned(unnamed, "settings need names")),
    };

    let (mut parts, mut checks, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for field in fields {
        let setting = Setting::read(&field.attrs)?;
        let (identifier, kind) = (&field.ident, &field.ty);
        let separator = if parts.is_empty() { None } else { Some(quote!(",",)) };
        if setting.flatten {
            parts.push(quote!(#separator ::tunebox::manifest::inner(<#kind as ::tunebox::Settings>::MANIFEST)));
            reads.push(quote!(#identifier: <#kind as ::tunebox::Settings>::read(values)?));
        } else {
            let name = identifier.as_ref().map(kebab).unwrap_or_default();
            let entry = entry(field, &name, &setting)?;
            parts.push(quote!(#separator #entry));
            checks.extend(setting.default.iter().flat_map(|default| &default.texts).map(|text| check(kind, text)));
            reads.push(quote!(#identifier: ::tunebox::settings::field(values, #name)?));
        }
    }

    let (identifier, (generics, arguments, condition)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        impl #generics ::tunebox::Settings for #identifier #arguments #condition {
            const MANIFEST: &'static str = {
                const PARTS: &[&str] = &["[", #(#parts,)* "]"];
                const JOINED: [u8; ::tunebox::manifest::length(PARTS)] = ::tunebox::manifest::join(PARTS);
                ::tunebox::manifest::text(&JOINED)
            };

            fn read(values: &[::tunebox::settings::Setting]) -> ::tunebox::Result<Self> {
                Ok(Self { #(#reads,)* })
            }
        }

        #(#checks)*
    })
}

/// Generates the parts that join to the JSON object of one setting called `name`: doc, kind, default, bounds and
/// choices. Kind, choices and the bounds that are not given come from the field's type. Errors: a field without a doc
/// comment.
fn entry(field: &Field, name: &str, setting: &Setting) -> syn::Result<TokenStream> {
    let (kind, doc) = (&field.ty, documentation(&field.attrs));
    if doc.is_empty() {
        let problem = "a setting needs a doc comment: it is all that people will see of it";
        return Err(syn::Error::new_spanned(field, problem));
    }
    let start = format!("{{\"name\":{},\"doc\":{},\"kind\":\"", json::string(name), json::string(&doc));
    let mut rest = String::from("\"");
    let entries = [
        ("default", setting.default.as_ref().map(|default| &default.json)),
        ("above", setting.above.as_ref()),
        ("below", setting.below.as_ref()),
        ("min-items", setting.min_items.as_ref()),
        ("max-items", setting.max_items.as_ref()),
    ];
    for (key, value) in entries {
        rest.extend(value.map(|value| format!(",\"{key}\":{value}")));
    }
    let low = bound("low", setting.low.as_ref(), &quote!(LOW), kind);
    let high = bound("high", setting.high.as_ref(), &quote!(HIGH), kind);
    Ok(quote! {
        #start, <#kind as ::tunebox::settings::SettingType>::KIND, #rest, #low, #high,
        ",\"choices\":", <#kind as ::tunebox::settings::SettingType>::CHOICES, "}"
    })
}

/// Generates a compile-time check that a text of the default is one of the choices.
fn check(kind: &syn::Type, text: &LitStr) -> TokenStream {
    quote! {
        const _: () = assert!(
            ::tunebox::settings::may_default_to::<#kind>(#text),
            "the default is none of the choices"
        );
    }
}

/// Generates the JSON entry of `low` or `high`, which `key` names: `given`, the attribute's value, else the bound that
/// the type `kind` has as `constant` (`LOW` or `HIGH`), else nothing.
fn bound(key: &str, given: Option<&String>, constant: &TokenStream, kind: &syn::Type) -> TokenStream {
    let key = format!(",\"{key}\":");
    match given {
        Some(value) => {
            let text = format!("{key}{value}");
            quote!(#text)
        }
        None => quote! {
            ::tunebox::manifest::key_of(#key, <#kind as ::tunebox::settings::SettingType>::#constant),
            <#kind as ::tunebox::settings::SettingType>::#constant
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_one_error_and_the_type_has_settings_all_the_same() {
        let mistakes = [
            ("struct Calm { #[setting(defalt = 1.0)] beta: f32 }", "a setting knows `default`"),
            ("struct Calm { #[setting(default = 1.0)] beta: f32 }", "a setting needs a doc comment"),
            ("struct Calm(f32);", "settings need names"),
            ("enum Calm {}", "settings are a struct"),
            (
                "struct Calm { /** How. */ #[setting(default = 0.0, above = 0.0)] beta: f32 }",
                "the default is 0.0, it must be above 0.0",
            ),
        ];
        for (source, told) in mistakes {
            let code = derive(&syn::parse_str::<DeriveInput>(source).unwrap()).to_string();
            assert_eq!(code.matches("compile_error").count(), 1, "{code}");
            assert!(code.contains(told), "{told}: {code}");
            assert!(code.contains("impl :: tunebox :: Settings for Calm"), "{code}");
        }
    }

    #[test]
    fn a_default_lies_in_the_range_beside_it() {
        let fits = |attribute: syn::Attribute| Setting::read(&[attribute]).is_ok();
        assert!(fits(syn::parse_quote!(#[setting(default = 0.0, low = 0, below = 1)])));
        assert!(fits(syn::parse_quote!(#[setting(high = 2, default = 2)])));
        assert!(!fits(syn::parse_quote!(#[setting(low = 0, default = -1)])));
        assert!(!fits(syn::parse_quote!(#[setting(default = 3, high = 2)])));
        assert!(!fits(syn::parse_quote!(#[setting(default = 1, below = 1)])));
        assert!(fits(syn::parse_quote!(#[setting(default = [0, 1], low = 0, max_items = 4)])));
        assert!(!fits(syn::parse_quote!(#[setting(default = [0, -1], low = 0)])));
    }
}
