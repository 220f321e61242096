//! Functions: requests to the host, and those that the host calls.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use wit_parser_of_bindings::{Function, FunctionKind, Param};

use crate::names::{documentation, value};
use crate::shape::Place;
use crate::unsupported;

impl Place<'_> {
    /// Generates a function that the host offers: it encodes its arguments, sends a request, and decodes the answer. A
    /// method of a resource takes `&self`; a constructor is called `new`. Errors: an `async` function, or a type that
    /// [`parameter_type`](Self::parameter_type) or [`owned_type`](Self::owned_type) rejects.
    pub(crate) fn request(&self, function: &Function) -> syn::Result<TokenStream> {
        if function.kind.is_async() {
            return Err(unsupported("`async` functions"));
        }
        let (docs, path) = (documentation(&function.docs), format!("{}/{}", self.wire(), function.name));
        let name = match function.kind {
            FunctionKind::Constructor(_) => value("new"),
            _ => value(function.item_name()),
        };
        // Of a method's parameters the first is the resource itself.
        let of_resource = matches!(function.kind, FunctionKind::Method(_));
        let given: Vec<&Param> = function.params.iter().skip(usize::from(of_resource)).collect();
        let (receiver, itself) =
            if of_resource { (Some(quote!(&self,)), Some(quote!(.with(self)))) } else { (None, None) };
        let names: Vec<Ident> = given.iter().map(|parameter| value(&parameter.name)).collect();
        let types =
            given.iter().map(|parameter| self.parameter_type(&parameter.ty)).collect::<syn::Result<Vec<_>>>()?;
        let result = self.owned_type_or_unit(function.result.as_ref())?;
        Ok(quote! {
            #docs
            #[track_caller]
            pub fn #name(#receiver #(#names: #types),*) -> #result {
                Request::new(#path)#itself #(.with(&#names))*.send()
            }
        })
    }

    /// Generates a function that the method offers: first its signature in the trait `Guest`, second the arm of
    /// `dispatch` for `number`, its index in the interface, which decodes the arguments, calls the function and encodes
    /// its result. Errors: a number above 255, or a type that [`owned_type`](Self::owned_type) rejects.
    pub(crate) fn offer(&self, number: usize, function: &Function) -> syn::Result<(TokenStream, TokenStream)> {
        let number = u8::try_from(number).map_err(|_| unsupported("an export with more than 256 functions"))?;
        let (docs, name) = (documentation(&function.docs), value(&function.name));
        let result = self.owned_type_or_unit(function.result.as_ref())?;
        let (mut names, mut types, mut decoded, mut passed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Param { name, ty, .. } in &function.params {
            let (name, owned) = (value(name), self.owned_type(ty)?);
            // A resource that is lent for the call is not the method's to give back.
            let is_borrow = self.is_borrow(ty);
            types.push(if is_borrow { quote!(&#owned) } else { owned.clone() });
            decoded.push(if is_borrow { quote!(Borrowed<#owned>) } else { owned });
            passed.push(if is_borrow { quote!(&#name) } else { quote!(#name) });
            names.push(name);
        }
        let signature = quote!(#docs fn #name(#(#names: #types),*) -> #result;);
        let arm = quote! {
            #number => {
                #(let #names = <#decoded as Decode>::decode(arguments)?;)*
                arguments.end()?;
                G::#name(#(#passed),*).encode(result);
            }
        };
        Ok((signature, arm))
    }
}
