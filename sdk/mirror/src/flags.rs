//! Flags: a type of its own with one bit for each, as `wit-bindgen` writes it.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use wit_parser_of_bindings::{Flags, FlagsRepr};

use crate::names::{constant, documentation};
use crate::unsupported;

/// Flags as bits, the first being the lowest.
pub(crate) fn flags(name: &Ident, flags: &Flags) -> syn::Result<TokenStream> {
    let bits = match flags.repr() {
        FlagsRepr::U8 => quote!(u8),
        FlagsRepr::U16 => quote!(u16),
        FlagsRepr::U32(0 | 1) => quote!(u32),
        FlagsRepr::U32(_) => return Err(unsupported("more than 32 flags")),
    };
    let names = flags.flags.iter().map(|flag| constant(&flag.name));
    let docs = flags.flags.iter().map(|flag| documentation(&flag.docs));
    let places = 0..flags.flags.len() as u32;
    let (joined, written) = (joined(name), written(name, &bits));
    Ok(quote! {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct #name { bits: #bits }

        impl #name {
            #(#docs pub const #names: Self = Self { bits: 1 << #places };)*

            /// None of them.
            pub fn empty() -> Self {
                Self { bits: 0 }
            }

            /// As bits, whatever they mean.
            pub fn from_bits_retain(bits: #bits) -> Self {
                Self { bits }
            }

            /// As bits.
            pub fn bits(&self) -> #bits {
                self.bits
            }
        }

        #joined
        #written
    })
}

/// The operators that make one set of two.
fn joined(name: &Ident) -> TokenStream {
    let operators = [("BitOr", "bitor"), ("BitAnd", "bitand"), ("BitXor", "bitxor")].map(|(operator, method)| {
        let (operator, method) = (format_ident!("{operator}"), format_ident!("{method}"));
        quote! {
            impl ::std::ops::#operator for #name {
                type Output = Self;

                fn #method(self, other: Self) -> Self {
                    Self { bits: ::std::ops::#operator::#method(self.bits, other.bits) }
                }
            }
        }
    });
    quote!(#(#operators)*)
}

/// How flags cross the connection: as 32 bits, however few there are.
fn written(name: &Ident, bits: &TokenStream) -> TokenStream {
    quote! {
        impl Encode for #name {
            fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                u32::from(self.bits).encode(bytes);
            }
        }

        impl Decode for #name {
            fn decode(bytes: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                let bits = <#bits>::try_from(u32::decode(bytes)?);
                let bits = bits.map_err(|_| Malformed("a flag that the contract does not have".into()))?;
                ::std::result::Result::Ok(Self { bits })
            }
        }
    }
}
