//! Functions: those that ask the host, and those that the host calls.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use wit_parser_of_bindings::{Function, FunctionKind, Param};

use crate::names::{documentation, value};
use crate::shape::Place;
use crate::unsupported;

impl Place<'_> {
    /// A function of the host's: writes its arguments down, asks, reads the answer.
    pub(crate) fn asking(&self, function: &Function, wire: &str) -> syn::Result<TokenStream> {
        if function.kind.is_async() {
            return Err(unsupported("`async` functions"));
        }
        let (docs, asked) = (documentation(&function.docs), format!("{wire}/{}", function.name));
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
        let types = given.iter().map(|parameter| self.lent(&parameter.ty)).collect::<syn::Result<Vec<_>>>()?;
        let result = self.result(function)?;
        Ok(quote! {
            #docs
            #[track_caller]
            pub fn #name(#receiver #(#names: #types),*) -> #result {
                Request::new(#asked)#itself #(.with(&#names))*.send()
            }
        })
    }

    /// A function of the method's, as the trait that it implements has it.
    pub(crate) fn offered(&self, function: &Function) -> syn::Result<TokenStream> {
        let (docs, name, result) = (documentation(&function.docs), value(&function.name), self.result(function)?);
        let names = function.params.iter().map(|parameter| value(&parameter.name));
        let types = function.params.iter().map(|parameter| {
            let owned = self.owned(&parameter.ty)?;
            Ok(if self.is_borrow(&parameter.ty) { quote!(&#owned) } else { owned })
        });
        let types = types.collect::<syn::Result<Vec<_>>>()?;
        Ok(quote!(#docs fn #name(#(#names: #types),*) -> #result;))
    }

    /// The arm that calls such a function: reads its arguments, writes down what it gave.
    pub(crate) fn called(&self, number: usize, function: &Function) -> syn::Result<TokenStream> {
        let number = u8::try_from(number).map_err(|_| unsupported("an export with more than 256 functions"))?;
        let name = value(&function.name);
        let names: Vec<Ident> = function.params.iter().map(|parameter| value(&parameter.name)).collect();
        let types = function.params.iter().map(|parameter| {
            let owned = self.owned(&parameter.ty)?;
            // What is lent for the call is not the method's to give back.
            Ok(if self.is_borrow(&parameter.ty) { quote!(Borrowed<#owned>) } else { owned })
        });
        let types = types.collect::<syn::Result<Vec<_>>>()?;
        let passed = function
            .params
            .iter()
            .zip(&names)
            .map(|(parameter, name)| if self.is_borrow(&parameter.ty) { quote!(&#name) } else { quote!(#name) });
        Ok(quote! {
            #number => {
                #(let #names = <#types as Decode>::decode(arguments)?;)*
                arguments.end()?;
                G::#name(#(#passed),*).encode(result);
            }
        })
    }

    fn result(&self, function: &Function) -> syn::Result<TokenStream> {
        function.result.as_ref().map_or_else(|| Ok(quote!(())), |ty| self.owned(ty))
    }
}
