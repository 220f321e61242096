//! Reads the contract: the WIT files of `wit/` and the table `functions.txt`, which says what each function costs.
//!
//! Build scripts write Rust code from it ([`mod@write`]); tests compare the SDK, the Python stubs and the page of the
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
use wit_parser::{Function as Signature, FunctionKind, Handle, Resolve, Type, TypeDefKind, WorldItem};

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
    /// Reads the folder `folder` of WIT files and the built-in cost table, and checks each against the other. Takes the
    /// interfaces that the world [`WORLD`] imports.
    ///
    /// # Errors
    /// Text that is not WIT, a missing world, a world that imports anything but interfaces, a wrong line in the table,
    /// a function without a row, a row without a function, and a row that contradicts its function's text about the
    /// gradient: `gradient` must stand in the row of a tensor operation that has operands exactly if the text does not
    /// contain `No gradient`.
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

    /// Returns the interfaces that a method may import, in the order of the world.
    pub fn interfaces(&self) -> impl Iterator<Item = Interface<'_>> {
        self.interfaces.iter().map(|id| Interface { contract: self, id: *id })
    }

    /// Returns every function of every interface, by interface in the order of the world, then in the order of its
    /// file.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.interfaces().flat_map(Interface::functions)
    }

    /// Returns the rows of the cost table, sorted by path.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Checks that functions and rows of the table correspond one to one, and that row and text of each tensor
    /// operation with operands agree on the gradient: the row says `gradient`, or the text contains `No gradient`, but
    /// not both.
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

    /// Returns the row of the function with this path, such as `tensor.tensor.exp`. `None` if there is none.
    fn row(&self, path: &str) -> Option<&Row> {
        self.rows.binary_search_by(|row| row.path.as_str().cmp(path)).ok().and_then(|index| self.rows.get(index))
    }
}

impl<'a> Interface<'a> {
    /// Returns the name of the interface, such as `tensor`.
    pub fn name(self) -> &'a str {
        self.contract.resolve.interfaces[self.id].name.as_deref().unwrap_or_default()
    }

    /// Returns the functions of the interface in the order of its file. Leaves out a function without a row.
    pub fn functions(self) -> impl Iterator<Item = Function<'a>> {
        let contract = self.contract;
        contract.resolve.interfaces[self.id].functions.iter().filter_map(move |(key, signature)| {
            let row = contract.row(&names::path(self.name(), key))?;
            Some(Function { contract, interface: self.name(), key, signature, row })
        })
    }
}

impl<'a> Function<'a> {
    /// Returns the name of the function in generated Rust bindings, in snake case without its resource: `logical_and`
    /// for `logical-and`, `exp` for `[method]tensor.exp`. `new` for a constructor.
    pub fn rust_name(&self) -> String {
        match self.signature.kind {
            FunctionKind::Constructor(_) => "new".to_owned(),
            _ => snake(self.signature.item_name()),
        }
    }

    /// Returns the doc text of the function in one line: each run of white space becomes one space. Empty if it has
    /// none.
    pub fn text(&self) -> String {
        self.signature.docs.contents.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the name of the resource whose method, static function or constructor this is. `None` for a function of
    /// the interface itself.
    pub fn resource(&self) -> Option<&'a str> {
        match self.signature.kind {
            FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => {
                self.contract.resolve.types[id].name.as_deref()
            }
            _ => None,
        }
    }

    /// Returns the parameters in order, each as (name in snake case, owned Rust type). For a method the first is the
    /// resource, named `self`. The type is empty if no tensor operation uses it, as for `u64` or an unnamed tuple.
    pub fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        self.signature.params.iter().map(|parameter| (snake(&parameter.name), self.contract.rust_type(&parameter.ty)))
    }

    /// Returns the Rust type of the result; for a WIT `result` that of its success. Empty if the function returns
    /// nothing, or a type that no tensor operation uses, as `u64`.
    pub fn result(&self) -> String {
        self.signature.result.as_ref().map_or_else(String::new, |ty| self.contract.rust_type(ty))
    }
}

impl Contract {
    /// Converts a WIT type to a Rust type, such as `Vec<u32>`. A `result` becomes the type of its success, a handle the
    /// name of its resource, an alias the type that it stands for, and any other named type its name in camel case.
    /// Empty for other integers, `char` and unnamed types, which no tensor operation uses.
    fn rust_type(&self, ty: &Type) -> String {
        let id = match ty {
            Type::Bool => return "bool".to_owned(),
            Type::U32 => return "u32".to_owned(),
            Type::S32 => return "i32".to_owned(),
            Type::F32 => return "f32".to_owned(),
            Type::F64 => return "f64".to_owned(),
            Type::String => return "String".to_owned(),
            Type::Id(id) => id,
            _ => return String::new(),
        };
        let definition = &self.resolve.types[*id];
        match &definition.kind {
            TypeDefKind::Type(ty) => self.rust_type(ty),
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.rust_type(&Type::Id(*id)),
            TypeDefKind::Result(result) => result.ok.as_ref().map_or_else(String::new, |ty| self.rust_type(ty)),
            TypeDefKind::List(ty) => format!("Vec<{}>", self.rust_type(ty)),
            TypeDefKind::Option(ty) => format!("Option<{}>", self.rust_type(ty)),
            _ => definition.name.as_deref().map(camel).unwrap_or_default(),
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
    fn parameters_keep_their_order_and_types() {
        let contract = contract();
        let gather = contract.functions().find(|function| function.row.path == "tensor.tensor.gather").unwrap();
        let parameters: Vec<_> = gather.parameters().map(|(_, ty)| ty).collect();
        assert_eq!(parameters, ["Tensor", "i32", "Tensor"]);
        assert_eq!((gather.resource(), gather.result().as_str()), (Some("tensor"), "Tensor"));
    }
}
