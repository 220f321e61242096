//! Reads the contract: the WIT files of `wit/` and the table `functions.txt`, which says what each function costs.
//!
//! Build scripts write Rust code from it ([`write`]); tests compare the SDK, the Python stubs and the page of the
//! contract with it. A function of the contract has its signature and text in `wit/` and its row in the table, and
//! nothing else repeats them.

mod names;
mod table;
pub mod write;

use std::error::Error;
use std::path::Path;

pub use names::{camel, snake};
pub use table::{Cost, Row};
pub use wit_parser;
use wit_parser::{Function as Signature, FunctionKind, Handle, Param, Resolve, Type, TypeDefKind, TypeId, WorldItem};

/// The result of reading the contract or of writing code from it.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The world whose imports the host offers to methods.
pub const WORLD: &str = "method";

/// The interfaces that a method may import, in the order of the world.
pub struct Contract {
    /// The parsed packages, worlds, interfaces and types.
    pub resolve: Resolve,
    rows: Vec<Row>,
    interfaces: Vec<wit_parser::InterfaceId>,
}

/// An interface of the contract.
#[derive(Clone, Copy)]
pub struct Interface<'a> {
    contract: &'a Contract,
    /// Its identity in [`Contract::resolve`].
    pub id: wit_parser::InterfaceId,
}

/// A function of the contract with its row of the table.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    contract: &'a Contract,
    /// The interface that holds it.
    pub interface: &'a str,
    /// Its name as a component imports it, such as `[method]tensor.exp`.
    pub key: &'a str,
    /// Kind, parameters, result and text.
    pub signature: &'a Signature,
    /// What it costs.
    pub row: &'a Row,
}

impl Contract {
    /// Reads a folder of WIT files and the table.
    ///
    /// # Errors
    /// Text that is not WIT, a world that has more than interfaces, a function without a row, a row without a function,
    /// and a row that contradicts its function's text about the gradient.
    pub fn read(folder: &Path) -> Outcome<Self> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(folder)?;
        let world = resolve.select_world(&[package], Some(WORLD))?;
        let interface = |item: &WorldItem| match item {
            WorldItem::Interface { id, .. } => Ok(*id),
            _ => Err("a world imports interfaces only"),
        };
        let interfaces = resolve.worlds[world].imports.values().map(interface).collect::<Result<_, _>>()?;
        let contract = Self { resolve, rows: table::rows()?, interfaces };
        contract.check_rows()?;
        Ok(contract)
    }

    /// The interfaces that a method may import.
    pub fn interfaces(&self) -> impl Iterator<Item = Interface<'_>> {
        self.interfaces.iter().map(|id| Interface { contract: self, id: *id })
    }

    /// Every function of these interfaces that has a row.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.interfaces().flat_map(Interface::functions)
    }

    /// The rows of the table in alphabetical order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn check_rows(&self) -> Outcome<()> {
        let mut named = 0;
        for interface in self.interfaces() {
            for (key, signature) in &self.resolve.interfaces[interface.id].functions {
                let path = names::path(interface.name(), key);
                let row = self.row(&path).ok_or_else(|| format!("`{path}` has no row in `functions.txt`"))?;
                let text = signature.docs.contents.as_deref().unwrap_or_default();
                if row.cost.is_differentiable_kind() && row.gradient == text.contains("No gradient") {
                    return Err(format!("the row of `{path}` and its text differ about the gradient").into());
                }
                named += 1;
            }
        }
        if named == self.rows.len() {
            Ok(())
        } else {
            Err("`functions.txt` has a row that the contract has not".into())
        }
    }

    fn row(&self, path: &str) -> Option<&Row> {
        self.rows.binary_search_by(|row| row.path.as_str().cmp(path)).ok().and_then(|index| self.rows.get(index))
    }
}

impl<'a> Interface<'a> {
    /// Its name, such as `tensor`.
    pub fn name(self) -> &'a str {
        self.contract.resolve.interfaces[self.id].name.as_deref().unwrap_or_default()
    }

    /// Its functions in the order of the file.
    pub fn functions(self) -> impl Iterator<Item = Function<'a>> {
        let contract = self.contract;
        contract.resolve.interfaces[self.id].functions.iter().filter_map(move |(key, signature)| {
            let row = contract.row(&names::path(self.name(), key))?;
            Some(Function { contract, interface: self.name(), key, signature, row })
        })
    }
}

impl<'a> Function<'a> {
    /// The name of the Rust function in the generated bindings: `new` for a constructor.
    pub fn rust_name(&self) -> String {
        match self.signature.kind {
            FunctionKind::Constructor(_) => "new".to_owned(),
            _ => snake(self.signature.item_name()),
        }
    }

    /// Its text, without the line breaks of the file.
    pub fn text(&self) -> String {
        self.signature.docs.contents.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The name of the resource that it belongs to, if it belongs to one.
    pub fn resource(&self) -> Option<&'a str> {
        match self.signature.kind {
            FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => {
                self.contract.resolve.types[id].name.as_deref()
            }
            _ => None,
        }
    }

    /// The parameters with their types as the generators tell them apart; of a method, the first is the resource.
    pub fn parameters(&self) -> impl Iterator<Item = (String, Kind)> {
        let kind = |parameter: &Param| (snake(&parameter.name), self.contract.kind(&parameter.ty));
        self.signature.params.iter().map(kind)
    }

    /// What it returns, apart from an error.
    pub fn result(&self) -> Kind {
        self.signature.result.as_ref().map_or(Kind::Other, |ty| self.contract.kind(ty))
    }
}

/// A type as the generators tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tensor, lent or given out.
    Tensor,
    /// A list of tensors.
    Tensors,
    /// The type of a tensor's elements.
    ElementType,
    /// `list<u32>`.
    Integers,
    /// `list<f32>`.
    Numbers,
    /// `string`.
    Text,
    /// `option<s32>`: an axis, or all of them.
    OptionalAxis,
    /// `option<f64>`.
    OptionalNumber,
    /// `bool`.
    Truth,
    /// `u32`.
    Unsigned,
    /// `s32`.
    Signed,
    /// `f32`.
    Single,
    /// `f64`.
    Double,
    /// Any other type.
    Other,
}

impl Kind {
    /// The type in Rust, as an owner holds it; tensors have no type here.
    pub fn rust(self) -> &'static str {
        match self {
            Self::Tensor | Self::Tensors | Self::Other => "",
            Self::ElementType => "Dtype",
            Self::Integers => "Vec<u32>",
            Self::Numbers => "Vec<f32>",
            Self::Text => "String",
            Self::OptionalAxis => "Option<i32>",
            Self::OptionalNumber => "Option<f64>",
            Self::Truth => "bool",
            Self::Unsigned => "u32",
            Self::Signed => "i32",
            Self::Single => "f32",
            Self::Double => "f64",
        }
    }
}

impl Contract {
    fn kind(&self, ty: &Type) -> Kind {
        match ty {
            Type::Bool => Kind::Truth,
            Type::U32 => Kind::Unsigned,
            Type::S32 => Kind::Signed,
            Type::F32 => Kind::Single,
            Type::F64 => Kind::Double,
            Type::String => Kind::Text,
            Type::Id(id) => self.defined(*id),
            _ => Kind::Other,
        }
    }

    fn defined(&self, id: TypeId) -> Kind {
        let definition = &self.resolve.types[id];
        match &definition.kind {
            TypeDefKind::Type(ty) => self.kind(ty),
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.defined(*id),
            TypeDefKind::Resource if definition.name.as_deref() == Some("tensor") => Kind::Tensor,
            TypeDefKind::Enum(_) if definition.name.as_deref() == Some("dtype") => Kind::ElementType,
            TypeDefKind::Result(result) => result.ok.as_ref().map_or(Kind::Other, |ty| self.kind(ty)),
            TypeDefKind::List(ty) => match self.kind(ty) {
                Kind::Tensor => Kind::Tensors,
                Kind::Unsigned => Kind::Integers,
                Kind::Single => Kind::Numbers,
                _ => Kind::Other,
            },
            TypeDefKind::Option(ty) => match self.kind(ty) {
                Kind::Signed => Kind::OptionalAxis,
                Kind::Double => Kind::OptionalNumber,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract() -> Contract {
        Contract::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))).unwrap()
    }

    #[test]
    fn every_function_has_a_row_and_the_rows_are_in_order() {
        let contract = contract();
        assert!(contract.rows().is_sorted_by(|one, next| one.path < next.path));
        assert!(contract.functions().count() > 150);
    }

    #[test]
    fn parameters_keep_their_order_and_kinds() {
        let contract = contract();
        let gather = contract.functions().find(|function| function.row.path == "tensor.tensor.gather").unwrap();
        let parameters: Vec<_> = gather.parameters().map(|(_, kind)| kind).collect();
        assert_eq!(parameters, [Kind::Tensor, Kind::Signed, Kind::Tensor]);
        assert_eq!((gather.resource(), gather.result()), (Some("tensor"), Kind::Tensor));
    }
}
