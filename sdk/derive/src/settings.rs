//! `#[derive(Settings)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Field, Fields};

use crate::attributes::{Setting, documentation, kebab};
use crate::json;

/// The implementation of `tunebox::Settings`.
pub(crate) fn derive(input: DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(&input.ident, "settings are a struct with named fields"));
    };
    let fields: Vec<&Field> = match &data.fields {
        Fields::Named(named) => named.named.iter().collect(),
        Fields::Unit => Vec::new(),
        Fields::Unnamed(unnamed) => return Err(syn::Error::new_spanned(unnamed, "settings need names")),
    };

    let entries = fields.iter().map(|field| entry(field)).collect::<syn::Result<Vec<_>>>()?;
    let separated = entries.iter().enumerate().map(|(index, (parts, _))| match index {
        0 => quote!(#parts),
        _ => quote!(",", #parts),
    });
    let checks = entries.iter().map(|(_, check)| check);
    let reads = fields.iter().map(|field| read(field)).collect::<syn::Result<Vec<_>>>()?;

    let (identifier, (generics, arguments, condition)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        impl #generics ::tunebox::Settings for #identifier #arguments #condition {
            const MANIFEST: &'static str = {
                const PARTS: &[&str] = &["[", #(#separated,)* "]"];
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

/// How a field gets its value.
fn read(field: &Field) -> syn::Result<TokenStream> {
    let (identifier, name, kind) = (&field.ident, field.ident.as_ref().map(kebab), &field.ty);
    if Setting::read(&field.attrs)?.flatten {
        return Ok(quote!(#identifier: <#kind as ::tunebox::Settings>::read(values)?));
    }
    Ok(quote!(#identifier: ::tunebox::settings::field(values, #name)?))
}

/// One setting as parts of JSON text, and what can be checked of its default while compiling.
fn entry(field: &Field) -> syn::Result<(TokenStream, TokenStream)> {
    let (kind, setting) = (&field.ty, Setting::read(&field.attrs)?);
    if setting.flatten {
        let parts = quote!(::tunebox::manifest::inner(<#kind as ::tunebox::Settings>::MANIFEST));
        return Ok((parts, TokenStream::new()));
    }
    let doc = documentation(&field.attrs);
    if doc.is_empty() {
        return Err(syn::Error::new_spanned(
            field,
            "a setting needs a doc comment: it is all that people will see of it",
        ));
    }

    let name = field.ident.as_ref().map(kebab).unwrap_or_default();
    let start = format!("{{\"name\":{},\"doc\":{},\"kind\":\"", json::string(&name), json::string(&doc));
    let mut rest = String::from("\"");
    let default = setting.default.as_ref().map(|(json, _)| json);
    for (key, value) in [("default", default), ("above", setting.above.as_ref()), ("below", setting.below.as_ref())] {
        rest.extend(value.map(|value| format!(",\"{key}\":{value}")));
    }
    let low = bound("low", setting.low, quote!(LOW), kind);
    let high = bound("high", setting.high, quote!(HIGH), kind);

    let parts = quote! {
        #start, <#kind as ::tunebox::settings::SettingType>::KIND, #rest, #low, #high,
        ",\"choices\":", <#kind as ::tunebox::settings::SettingType>::CHOICES, "}"
    };
    let check = match setting.default {
        Some((_, Some(text))) => quote! {
            const _: () = assert!(
                ::tunebox::settings::may_default_to::<#kind>(#text),
                "the default is none of the choices"
            );
        },
        _ => TokenStream::new(),
    };
    Ok((parts, check))
}

/// A bound from the attribute, otherwise the type's own.
fn bound(key: &str, given: Option<String>, constant: TokenStream, kind: &syn::Type) -> TokenStream {
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
