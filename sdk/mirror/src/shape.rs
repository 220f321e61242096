//! Types: how one is written where it is used, and what one that has a name is.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use wit_parser_of_bindings::{Docs, Handle, InterfaceId, Record, Resolve, Type, TypeDefKind, TypeId, TypeOwner};

use crate::flags::flags;
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

impl Place<'_> {
    /// A type as its owner holds it.
    pub(crate) fn owned(&self, ty: &Type) -> syn::Result<TokenStream> {
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

    /// A type as a function takes it: texts, lists and handles are lent.
    pub(crate) fn lent(&self, ty: &Type) -> syn::Result<TokenStream> {
        let Type::Id(id) = ty else {
            return if *ty == Type::String { Ok(quote!(&str)) } else { self.owned(ty) };
        };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Handle(Handle::Borrow(resource)) => {
                let resource = self.owned(&Type::Id(*resource))?;
                Ok(quote!(&#resource))
            }
            TypeDefKind::Handle(Handle::Own(_)) => Err(unsupported("a resource that is handed to the host for good")),
            TypeDefKind::Option(item) => {
                let item = self.lent(item)?;
                Ok(quote!(::std::option::Option<#item>))
            }
            TypeDefKind::List(item) => {
                let item = if self.is_borrow(item) { self.lent(item)? } else { self.owned(item)? };
                Ok(quote!(&[#item]))
            }
            _ => self.owned(ty),
        }
    }

    /// Whether it is a resource that stays with its owner.
    pub(crate) fn is_borrow(&self, ty: &Type) -> bool {
        let Type::Id(id) = ty else { return false };
        matches!(self.resolve.types[*id].kind, TypeDefKind::Handle(Handle::Borrow(_)))
    }

    /// A type that has no name.
    fn expression(&self, kind: &TypeDefKind) -> syn::Result<TokenStream> {
        let optional = |ty: &Option<Type>| ty.as_ref().map_or_else(|| Ok(quote!(())), |ty| self.owned(ty));
        Ok(match kind {
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.owned(&Type::Id(*id))?,
            TypeDefKind::Option(item) => {
                let item = self.owned(item)?;
                quote!(::std::option::Option<#item>)
            }
            TypeDefKind::List(item) => {
                let item = self.owned(item)?;
                quote!(::std::vec::Vec<#item>)
            }
            TypeDefKind::Result(result) => {
                let (ok, error) = (optional(&result.ok)?, optional(&result.err)?);
                quote!(::std::result::Result<#ok, #error>)
            }
            TypeDefKind::Tuple(tuple) => {
                let types = tuple.types.iter().map(|ty| self.owned(ty)).collect::<syn::Result<Vec<_>>>()?;
                quote!((#(#types,)*))
            }
            TypeDefKind::Type(ty) => self.owned(ty)?,
            other => return Err(unsupported(&format!("`{}` as a type without a name", other.as_str()))),
        })
    }

    /// A named type, seen from here.
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

    /// A type that has a name, with how it is written and read. `wire` names the interface to the host.
    pub(crate) fn definition(&self, id: TypeId, wire: &str) -> syn::Result<TokenStream> {
        let definition = &self.resolve.types[id];
        let given = definition.name.as_deref().unwrap_or_default();
        let (name, docs) = (camel(given), documentation(&definition.docs));
        let code = match &definition.kind {
            TypeDefKind::Resource => resource(&name, &format!("{wire}/[resource-drop]{given}")),
            TypeDefKind::Record(record) => self.record(&name, record, self.copies(&Type::Id(id)))?,
            TypeDefKind::Enum(cases) => {
                let cases: Vec<Case<'_>> =
                    cases.cases.iter().map(|case| (camel(&case.name), &case.docs, None)).collect();
                self.cases(&name, &cases, &quote!(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord))?
            }
            TypeDefKind::Variant(cases) => {
                let derived = derived(self.copies(&Type::Id(id)));
                let cases: Vec<Case<'_>> =
                    cases.cases.iter().map(|case| (camel(&case.name), &case.docs, case.ty)).collect();
                self.cases(&name, &cases, &derived)?
            }
            TypeDefKind::Flags(set) => flags(&name, set)?,
            other => {
                let meant = self.expression(other)?;
                quote!(pub type #name = #meant;)
            }
        };
        Ok(quote!(#docs #code))
    }

    fn record(&self, name: &Ident, record: &Record, copies: bool) -> syn::Result<TokenStream> {
        let fields: Vec<Ident> = record.fields.iter().map(|field| value(&field.name)).collect();
        let docs = record.fields.iter().map(|field| documentation(&field.docs));
        let types = record.fields.iter().map(|field| self.owned(&field.ty)).collect::<syn::Result<Vec<_>>>()?;
        let derived = derived(copies);
        Ok(quote! {
            #[derive(#derived)]
            pub struct #name { #(#docs pub #fields: #types,)* }

            impl Encode for #name {
                fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                    #(self.#fields.encode(bytes);)*
                }
            }

            impl Decode for #name {
                fn decode(bytes: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                    ::std::result::Result::Ok(Self { #(#fields: Decode::decode(bytes)?,)* })
                }
            }
        })
    }

    /// An enum or a variant: the number of the case, then what it carries.
    fn cases(&self, name: &Ident, cases: &[Case<'_>], derived: &TokenStream) -> syn::Result<TokenStream> {
        let (mut listed, mut written, mut read) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (case, docs, carried)) in cases.iter().enumerate() {
            let number = u8::try_from(number).map_err(|_| unsupported("a choice among more than 256 cases"))?;
            let docs = documentation(docs);
            if let Some(carried) = carried {
                let carried = self.owned(carried)?;
                listed.push(quote!(#docs #case(#carried)));
                written.push(quote!(Self::#case(value) => { bytes.push(#number); value.encode(bytes); }));
                read.push(quote!(#number => Self::#case(Decode::decode(bytes)?)));
            } else {
                listed.push(quote!(#docs #case));
                written.push(quote!(Self::#case => bytes.push(#number)));
                read.push(quote!(#number => Self::#case));
            }
        }
        Ok(quote! {
            #[derive(#derived)]
            pub enum #name { #(#listed,)* }

            impl Encode for #name {
                fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                    match self { #(#written,)* }
                }
            }

            impl Decode for #name {
                fn decode(bytes: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                    ::std::result::Result::Ok(match u8::decode(bytes)? {
                        #(#read,)*
                        _ => return ::std::result::Result::Err(Malformed("a case that the contract does not have".into())),
                    })
                }
            }
        })
    }

    /// Whether a value is copied rather than moved.
    fn copies(&self, ty: &Type) -> bool {
        let Type::Id(id) = ty else { return !matches!(ty, Type::String | Type::ErrorContext) };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Enum(_) | TypeDefKind::Flags(_) => true,
            TypeDefKind::Type(ty) | TypeDefKind::Option(ty) => self.copies(ty),
            TypeDefKind::Record(record) => record.fields.iter().all(|field| self.copies(&field.ty)),
            TypeDefKind::Variant(variant) => variant.cases.iter().filter_map(|case| case.ty).all(|ty| self.copies(&ty)),
            TypeDefKind::Tuple(tuple) => tuple.types.iter().all(|ty| self.copies(ty)),
            _ => false,
        }
    }
}

/// What a record or a variant derives.
fn derived(copies: bool) -> TokenStream {
    if copies { quote!(Clone, Copy, Debug) } else { quote!(Clone, Debug) }
}

/// A resource: a handle that the host is told of when it is no longer needed.
fn resource(name: &Ident, dropped: &str) -> TokenStream {
    quote! {
        #[derive(Debug)]
        pub struct #name(Handle);

        impl Encode for #name {
            fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                self.0.encode(bytes);
            }
        }

        impl Decode for #name {
            fn decode(bytes: &mut Reader<'_>) -> ::std::result::Result<Self, Malformed> {
                ::std::result::Result::Ok(Self(Decode::decode(bytes)?))
            }
        }

        impl ::std::ops::Drop for #name {
            fn drop(&mut self) {
                self.0.release(#dropped);
            }
        }
    }
}
