//! Types: how one is written where it is used, and the definitions of those that have a name.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use wit_parser_of_bindings::{Docs, Handle, InterfaceId, Record, Resolve, Type, TypeDefKind, TypeId, TypeOwner};

use crate::names::{camel, documentation, value};
use crate::unsupported;

/// Where code is written for.
pub(crate) struct Place<'a> {
    /// All that was read.
    pub(crate) resolve: &'a Resolve,
    /// The interface whose module it is.
    pub(crate) interface: InterfaceId,
    /// From that module to the one that holds the imported interfaces.
    pub(crate) imports: &'a TokenStream,
}

/// One case of an enum or variant: its name, text, and what it carries.
type Case<'a> = (Ident, &'a Docs, Option<Type>);

impl<'a> Place<'a> {
    /// The name of the interface in requests to the host, such as `tensor`; empty for an interface without a name.
    pub(crate) fn wire(&self) -> &'a str {
        self.resolve.interfaces[self.interface].name.as_deref().unwrap_or_default()
    }

    /// Returns the Rust type of an owned value of a WIT type, as in results and fields: a named type by its path,
    /// others written out. Errors: `error-context`, or those of [`expression`](Self::expression).
    pub(crate) fn owned_type(&self, ty: &Type) -> syn::Result<TokenStream> {
        Ok(match ty {
            Type::Bool => quote!(bool),
            Type::U8 => quote!(u8),
            Type::U16 => quote!(u16),
            Type::U32 => quote!(u32),
            Type::U64 => quote!(u64),
            Type::S8 => quote!(i8),
            Type::S16 => quote!(i16),
            Type::S32 => quote!(i32),
            Type::S64 => quote!(i64),
            Type::F32 => quote!(f32),
            Type::F64 => quote!(f64),
            Type::Char => quote!(char),
            Type::String => quote!(::std::string::String),
            Type::ErrorContext => return Err(unsupported("`error-context`")),
            Type::Id(id) => {
                let definition = &self.resolve.types[*id];
                match (&definition.name, definition.owner) {
                    (Some(name), TypeOwner::Interface(owner)) => self.path(owner, name),
                    _ => self.expression(&definition.kind)?,
                }
            }
        })
    }

    /// Returns the Rust type of a WIT type as a parameter: strings, lists and handles are borrowed, also inside of
    /// `option`. The items of a list stay owned unless they are handles. Errors: a resource that is given away, or
    /// those of [`owned_type`](Self::owned_type).
    pub(crate) fn parameter_type(&self, ty: &Type) -> syn::Result<TokenStream> {
        let Type::Id(id) = ty else {
            return if *ty == Type::String { Ok(quote!(&str)) } else { self.owned_type(ty) };
        };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Handle(Handle::Borrow(resource)) => {
                let resource = self.owned_type(&Type::Id(*resource))?;
                Ok(quote!(&#resource))
            }
            TypeDefKind::Handle(Handle::Own(_)) => Err(unsupported("a resource that is handed to the host for good")),
            TypeDefKind::Option(item) => {
                let item = self.parameter_type(item)?;
                Ok(quote!(::std::option::Option<#item>))
            }
            TypeDefKind::List(item) => {
                let item = if self.is_borrow(item) { self.parameter_type(item)? } else { self.owned_type(item)? };
                Ok(quote!(&[#item]))
            }
            _ => self.owned_type(ty),
        }
    }

    /// The Rust type of an owned value; `()` for `None`.
    pub(crate) fn owned_type_or_unit(&self, ty: Option<&Type>) -> syn::Result<TokenStream> {
        ty.map_or_else(|| Ok(quote!(())), |ty| self.owned_type(ty))
    }

    /// Whether a type is `borrow<…>`: a resource that stays with its owner.
    pub(crate) fn is_borrow(&self, ty: &Type) -> bool {
        let Type::Id(id) = ty else { return false };
        matches!(self.resolve.types[*id].kind, TypeDefKind::Handle(Handle::Borrow(_)))
    }

    /// Returns the Rust type of a WIT type that has no name, such as `list<u32>`. Errors: anything but a handle,
    /// `option`, `list`, `result`, `tuple` or an alias.
    fn expression(&self, kind: &TypeDefKind) -> syn::Result<TokenStream> {
        Ok(match kind {
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.owned_type(&Type::Id(*id))?,
            TypeDefKind::Option(item) => {
                let item = self.owned_type(item)?;
                quote!(::std::option::Option<#item>)
            }
            TypeDefKind::List(item) => {
                let item = self.owned_type(item)?;
                quote!(::std::vec::Vec<#item>)
            }
            TypeDefKind::Result(result) => {
                let (ok, error) =
                    (self.owned_type_or_unit(result.ok.as_ref())?, self.owned_type_or_unit(result.err.as_ref())?);
                quote!(::std::result::Result<#ok, #error>)
            }
            TypeDefKind::Tuple(tuple) => {
                let types = tuple.types.iter().map(|ty| self.owned_type(ty)).collect::<syn::Result<Vec<_>>>()?;
                quote!((#(#types,)*))
            }
            TypeDefKind::Type(ty) => self.owned_type(ty)?,
            other => return Err(unsupported(&format!("`{}` as a type without a name", other.as_str()))),
        })
    }

    /// The path of the type `name` of the interface `owner`, from the module being generated.
    fn path(&self, owner: InterfaceId, name: &str) -> TokenStream {
        let (imports, name) = (self.imports, camel(name));
        match &self.resolve.interfaces[owner].name {
            Some(interface) if owner != self.interface => {
                let interface = value(interface);
                quote!(#imports::#interface::#name)
            }
            _ => quote!(#name),
        }
    }

    /// Generates the definition of a named type with its `Encode` and `Decode` implementations.
    pub(crate) fn definition(&self, id: TypeId) -> syn::Result<TokenStream> {
        let definition = &self.resolve.types[id];
        let given = definition.name.as_deref().unwrap_or_default();
        let (name, docs) = (camel(given), documentation(&definition.docs));
        // What a record or a variant derives.
        let derived = if self.is_copy(&Type::Id(id)) { quote!(Clone, Copy, Debug) } else { quote!(Clone, Debug) };
        let code = match &definition.kind {
            TypeDefKind::Resource => resource(&name, &format!("{}/[resource-drop]{given}", self.wire())),
            TypeDefKind::Record(record) => self.record(&name, record, &derived)?,
            TypeDefKind::Enum(set) => {
                let cases = set.cases.iter().map(|case| (camel(&case.name), &case.docs, None));
                self.cases(&name, cases, &quote!(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord))?
            }
            TypeDefKind::Variant(set) => {
                self.cases(&name, set.cases.iter().map(|case| (camel(&case.name), &case.docs, case.ty)), &derived)?
            }
            other => {
                let meant = self.expression(other)?;
                quote!(pub type #name = #meant;)
            }
        };
        Ok(quote!(#docs #code))
    }

    /// Generates a struct with the record's fields, which derives `derived`, and the call of the macro `record!`, which
    /// makes it encodable. Errors: a field's type that [`owned_type`](Self::owned_type) rejects.
    fn record(&self, name: &Ident, record: &Record, derived: &TokenStream) -> syn::Result<TokenStream> {
        let fields: Vec<Ident> = record.fields.iter().map(|field| value(&field.name)).collect();
        let docs = record.fields.iter().map(|field| documentation(&field.docs));
        let types = record.fields.iter().map(|field| self.owned_type(&field.ty)).collect::<syn::Result<Vec<_>>>()?;
        Ok(quote! {
            #[derive(#derived)]
            pub struct #name { #(#docs pub #fields: #types,)* }

            record!(#name { #(#fields)* });
        })
    }

    /// Generates an enum `name` of these cases, which derives `derived`, for an enum or a variant of WIT, and the call
    /// of the macro `cases!`, which makes it encodable. A value is encoded as the number of the case in a byte, then
    /// its value if it has one. Errors: more than 256 cases, or a type that [`owned_type`](Self::owned_type) rejects.
    fn cases<'c>(
        &self,
        name: &Ident,
        cases: impl Iterator<Item = Case<'c>>,
        derived: &TokenStream,
    ) -> syn::Result<TokenStream> {
        let (mut listed, mut written) = (Vec::new(), Vec::new());
        for (number, (case, docs, carried)) in cases.enumerate() {
            let number = u8::try_from(number).map_err(|_| unsupported("a choice among more than 256 cases"))?;
            let docs = documentation(docs);
            let carried = carried.map(|carried| self.owned_type(&carried)).transpose()?;
            let value = carried.as_ref().map(|_| quote!((value)));
            let carried = carried.map(|carried| quote!((#carried)));
            listed.push(quote!(#docs #case #carried));
            written.push(quote!(#number #case #value));
        }
        Ok(quote! {
            #[derive(#derived)]
            pub enum #name { #(#listed,)* }

            cases!(#name { #(#written)* });
        })
    }

    /// Whether the generated type of a value implements `Copy`: everything but strings, lists, results, handles,
    /// resources, and what holds one of them.
    fn is_copy(&self, ty: &Type) -> bool {
        let Type::Id(id) = ty else { return !matches!(ty, Type::String | Type::ErrorContext) };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Enum(_) => true,
            TypeDefKind::Type(ty) | TypeDefKind::Option(ty) => self.is_copy(ty),
            TypeDefKind::Record(record) => record.fields.iter().all(|field| self.is_copy(&field.ty)),
            TypeDefKind::Variant(variant) => {
                variant.cases.iter().filter_map(|case| case.ty).all(|ty| self.is_copy(&ty))
            }
            TypeDefKind::Tuple(tuple) => tuple.types.iter().all(|ty| self.is_copy(ty)),
            _ => false,
        }
    }
}

/// Generates `Encode` and `Decode`. `encode` appends to `bytes`; `decode` is an expression that reads `bytes`.
fn codec(name: &Ident, encode: &TokenStream, decode: &TokenStream) -> TokenStream {
    quote! {
        impl Encode for #name {
            fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                #encode
            }
        }

        impl Decode for #name {
            fn decode(bytes: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                ::std::result::Result::Ok(#decode)
            }
        }
    }
}

/// Generates the type of a resource: a handle whose drop sends the request `dropped` to the host.
fn resource(name: &Ident, dropped: &str) -> TokenStream {
    let codec = codec(name, &quote!(self.0.encode(bytes);), &quote!(Self(Decode::decode(bytes)?)));
    quote! {
        #[derive(Debug)]
        pub struct #name(Handle);

        #codec

        impl ::std::ops::Drop for #name {
            fn drop(&mut self) {
                self.0.release(#dropped);
            }
        }
    }
}
