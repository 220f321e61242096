//! The contract as editors read it in Python: a stub for each interface.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tunebox_contract::camel;
use tunebox_contract::wit_parser::{
    Docs, Flags, Function, FunctionKind, Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, TypeOwner,
};

use super::contract;
use crate::support::golden::{assert_file, root};

/// What the package gives to arguments that are left out, of the methods of a tensor that it names.
const DEFAULTS: [(&str, &str); 7] = [
    ("axis: int | None", "None"),
    ("axis: int", "-1"),
    ("keep: bool", "False"),
    ("correction: int", "0"),
    ("descending: bool", "False"),
    ("low: float | None", "None"),
    ("high: float | None", "None"),
];

/// How a resource ends with a `with` statement.
const CONTEXT: &str = "    def __enter__(self) -> Self: ...\n\n    def __exit__(self, *error: object) -> None: ...\n";

fn constant(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn text(docs: &Docs) -> &str {
    docs.contents.as_deref().unwrap_or_default().trim()
}

/// One interface, as Python has it.
struct Module<'a> {
    resolve: &'a Resolve,
    id: InterfaceId,
    /// The package's own source, which gives operators and defaults to tensors.
    package: &'a str,
    /// The other interfaces whose types it names.
    uses: BTreeSet<String>,
}

impl Module<'_> {
    fn type_name(&mut self, ty: &Type) -> String {
        match ty {
            Type::Bool => "bool".into(),
            Type::Char | Type::String => "str".into(),
            Type::F32 | Type::F64 => "float".into(),
            Type::Id(id) => self.named(*id),
            _ => "int".into(),
        }
    }

    fn named(&mut self, id: TypeId) -> String {
        let resolve = self.resolve;
        let definition = &resolve.types[id];
        match &definition.kind {
            TypeDefKind::Type(ty) => self.type_name(ty),
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.named(*id),
            TypeDefKind::List(Type::U8) => "bytes".into(),
            TypeDefKind::List(ty) => format!("list[{}]", self.type_name(ty)),
            TypeDefKind::Option(ty) => format!("{} | None", self.type_name(ty)),
            TypeDefKind::Tuple(tuple) if definition.name.is_none() => {
                let types: Vec<String> = tuple.types.iter().map(|ty| self.type_name(ty)).collect();
                format!("tuple[{}]", types.join(", "))
            }
            TypeDefKind::Result(result) => result.ok.as_ref().map_or("None".into(), |ty| self.type_name(ty)),
            _ => {
                let name = camel(definition.name.as_ref().unwrap());
                match definition.owner {
                    TypeOwner::Interface(other) if other != self.id => {
                        let module = resolve.interfaces[other].name.clone().unwrap();
                        self.uses.insert(module.clone());
                        format!("{module}.{name}")
                    }
                    _ => name,
                }
            }
        }
    }

    /// A function with its text, at an indent.
    fn function(&mut self, function: &Function, indent: &str) -> String {
        let name = match function.kind {
            FunctionKind::Constructor(_) => "__init__".to_owned(),
            _ => function.item_name().replace('-', "_"),
        };
        let has_defaults =
            function.name.starts_with("[method]tensor.") && self.package.contains(&format!("\"{name}\""));
        let mut arguments: Vec<String> = if indent.is_empty() { Vec::new() } else { vec!["self".to_owned()] };
        for parameter in function.params.iter().filter(|parameter| parameter.name != "self") {
            let argument = format!("{}: {}", parameter.name.replace('-', "_"), self.type_name(&parameter.ty));
            let default = DEFAULTS.iter().find(|(given, _)| has_defaults && *given == argument);
            arguments.push(default.map_or(argument.clone(), |(_, value)| format!("{argument} = {value}")));
        }
        let result = function.result.as_ref().filter(|_| name != "__init__");
        let fails = result.is_some_and(|ty| self.is_result(ty));
        let result = result.map_or("None".to_owned(), |ty| self.type_name(ty));
        let head = format!("{indent}def {name}({}) -> {result}:", arguments.join(", "));
        let docs = match text(&function.docs) {
            "" => self.flag(function.item_name()),
            docs => docs.to_owned(),
        };
        match docs.as_str() {
            "" => format!("{head} ...\n"),
            docs => format!("{head}\n{}", docstring(docs, &format!("{indent}    "), fails)),
        }
    }

    fn is_result(&self, ty: &Type) -> bool {
        matches!(ty, Type::Id(id) if matches!(self.resolve.types[*id].kind, TypeDefKind::Result(_)))
    }

    /// The functions of two tensors as methods of the first, as the package gives them; empty for another resource.
    fn methods_of_functions(&mut self, id: TypeId) -> String {
        let resolve = self.resolve;
        let is_tensor = |ty: &Type| self.resource_of(ty) == Some(id);
        let functions = resolve.interfaces[self.id].functions.values().filter(|function| {
            let is_free = matches!(function.kind, FunctionKind::Freestanding);
            is_free && function.params.len() == 2 && function.params.iter().all(|parameter| is_tensor(&parameter.ty))
        });
        let mut methods = String::new();
        for function in functions {
            let (name, docs) = (function.name.replace('-', "_"), docstring(text(&function.docs), "        ", true));
            let _ = write!(methods, "\n    def {name}(self, other: Tensor | float) -> Tensor:\n{docs}");
        }
        methods
    }

    /// The resource of a handle; `None` for another type.
    fn resource_of(&self, ty: &Type) -> Option<TypeId> {
        let Type::Id(id) = ty else { return None };
        match self.resolve.types[*id].kind {
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => Some(id),
            _ => None,
        }
    }

    /// The text of the flag of a name: what a method without a text gives is said there.
    fn flag(&self, name: &str) -> String {
        let flags = |id: &TypeId| match &self.resolve.types[*id].kind {
            TypeDefKind::Flags(Flags { flags }) => {
                flags.iter().find(|flag| flag.name == name).map(|flag| text(&flag.docs).to_owned())
            }
            _ => None,
        };
        self.resolve.interfaces[self.id].types.values().find_map(flags).unwrap_or_default()
    }

    /// The cases of an enum or flags as constants, each below its text.
    fn constants<'c>(&self, cases: impl Iterator<Item = (&'c str, &'c Docs, u32)>) -> String {
        let mut lines = String::new();
        for (name, docs, number) in cases {
            text(docs).lines().for_each(|line| lines += &format!("    #: {line}\n"));
            let _ = writeln!(lines, "    {} = {number}", constant(name));
        }
        lines
    }

    /// The class of a type, or the classes of its cases; empty for another name of a type.
    fn class(&mut self, id: TypeId) -> String {
        let resolve = self.resolve;
        let definition = &resolve.types[id];
        let name = camel(definition.name.as_ref().unwrap());
        let documented = |head: String| match text(&definition.docs) {
            "" => head,
            docs => format!("{head}{}", docstring(docs, "    ", false)),
        };
        match &definition.kind {
            TypeDefKind::Resource => {
                let mut class = documented(format!("class {name}:\n"));
                for function in resolve.interfaces[self.id].functions.values().filter(|function| belongs(function, id))
                {
                    class += &format!("\n{}", self.function(function, "    "));
                }
                class + &self.methods_of_functions(id) + &operators(&name, self.package) + "\n" + CONTEXT
            }
            TypeDefKind::Record(record) => {
                let fields = record.fields.iter().map(|field| {
                    let ty = self.type_name(&field.ty);
                    let docs: String = text(&field.docs).lines().map(|line| format!("    #: {line}\n")).collect();
                    format!("{docs}    {}: {ty}\n", field.name.replace('-', "_"))
                });
                let fields: String = fields.collect();
                documented(format!("@dataclass\nclass {name}:\n")) + "\n" + &fields
            }
            TypeDefKind::Enum(cases) => {
                let cases = cases.cases.iter().zip(0..).map(|(case, number)| (case.name.as_str(), &case.docs, number));
                documented(format!("class {name}(Enum):\n")) + "\n" + &self.constants(cases)
            }
            TypeDefKind::Flags(flags) => {
                let cases =
                    flags.flags.iter().zip(0..).map(|(flag, bit)| (flag.name.as_str(), &flag.docs, 1_u32 << bit));
                documented(format!("class {name}(Flag):\n")) + "\n" + &self.constants(cases)
            }
            TypeDefKind::Variant(variant) => {
                let (mut classes, mut names) = (String::new(), Vec::new());
                for case in &variant.cases {
                    let case_name = format!("{name}_{}", camel(&case.name));
                    let _ = write!(classes, "@dataclass\nclass {case_name}:\n");
                    let docs = text(&case.docs);
                    if !docs.is_empty() {
                        classes += &docstring(docs, "    ", false);
                    }
                    if let Some(ty) = &case.ty {
                        let (space, ty) = (if docs.is_empty() { "" } else { "\n" }, self.type_name(ty));
                        let _ = writeln!(classes, "{space}    value: {ty}");
                    }
                    classes += "\n\n";
                    names.push(case_name);
                }
                let union = format!("{name} = {}\n", names.join(" | "));
                classes + &union + &docstring(text(&definition.docs), "", false)
            }
            _ => String::new(),
        }
    }

    /// The whole stub.
    fn stub(&mut self) -> String {
        let interface = &self.resolve.interfaces[self.id];
        let name = interface.name.as_deref().unwrap();
        let classes = interface.types.values().map(|id| self.class(*id)).filter(|class| !class.is_empty());
        let mut parts: Vec<String> = classes.collect();
        let free = interface.functions.values().filter(|function| matches!(function.kind, FunctionKind::Freestanding));
        parts.extend(free.map(|function| self.function(function, "")));
        let body = parts.join("\n\n");
        let mut imports = String::new();
        for (word, import) in [
            ("@dataclass", "from dataclasses import dataclass"),
            ("(Enum)", "from enum import Enum"),
            ("(Flag)", "from enum import Flag"),
            ("-> Self", "from typing import Self"),
        ] {
            if body.contains(word) {
                let _ = writeln!(imports, "{import}");
            }
        }
        if !self.uses.is_empty() {
            let space = if imports.is_empty() { "" } else { "\n" };
            let uses: Vec<&str> = self.uses.iter().map(String::as_str).collect();
            let _ = writeln!(imports, "{space}from . import {}", uses.join(", "));
        }
        let space = if imports.is_empty() { "" } else { "\n" };
        let docs = docstring(text(&interface.docs), "", false);
        format!("{docs}\n# Generated from `wit/{name}.wit` of tunebox.\n{space}{imports}\n\n{body}")
    }
}

/// A text as a docstring; functions that can fail say so.
fn docstring(text: &str, indent: &str, fails: bool) -> String {
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    let joined = text.join(&format!("\n{indent}")).replace(&format!("\n{indent}\n"), "\n\n");
    let raises = if fails { format!("\n\n{indent}Raises `tunebox.Refused`.") } else { String::new() };
    let end = if fails || text.len() > 1 { format!("\n{indent}") } else { String::new() };
    format!("{indent}\"\"\"{joined}{raises}{end}\"\"\"\n")
}

fn belongs(function: &Function, resource: TypeId) -> bool {
    match function.kind {
        FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => id == resource,
        _ => false,
    }
}

/// The operators that the package gives to a tensor, by its own table.
fn operators(class: &str, package: &str) -> String {
    if class != "Tensor" {
        return String::new();
    }
    let (_, table) = package.split_once("_OPERATORS = {\n").unwrap();
    let (table, _) = table.split_once("\n}\n").unwrap();
    let names: Vec<&str> = table.lines().map(|line| line.split('"').nth(1).unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    let mut lines = String::new();
    for name in names.into_iter().filter(|name| !["__bool__", "__repr__"].contains(name)) {
        let argument = match name {
            "__neg__" | "__abs__" => "",
            "__pow__" => ", exponent: float",
            "__matmul__" => ", other: Tensor",
            _ => ", other: Tensor | float",
        };
        let _ = write!(lines, "\n    def {name}(self{argument}) -> Tensor: ...\n");
    }
    lines
}

#[test]
fn what_editors_read_in_python_is_the_contract() {
    let contract = contract();
    let package = std::fs::read_to_string(root().join("sdk/python/tunebox/tensor.py")).unwrap();
    let folder = "sdk/python/stubs/wit_world/imports";
    let mut stubs = BTreeSet::from(["__init__.pyi".to_owned()]);
    for interface in contract.interfaces() {
        let mut module =
            Module { resolve: &contract.resolve, id: interface.id, package: &package, uses: BTreeSet::new() };
        assert_file(&format!("{folder}/{}.pyi", interface.name()), &module.stub());
        stubs.insert(format!("{}.pyi", interface.name()));
    }
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let found: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, stubs);
}

#[test]
fn every_interface_of_the_contract_is_a_module_of_the_package_with_all_its_functions() {
    let text = |name: &str| std::fs::read_to_string(root().join("sdk/python/tunebox").join(name)).unwrap();
    let package = text("__init__.py");
    let (_, plain) = package.split_once("_PLAIN = (").unwrap();
    let (plain, _) = plain.split_once(')').unwrap();
    let contract = contract();
    for interface in contract.interfaces() {
        let name = interface.name();
        if plain.contains(&format!("\"{name}\"")) {
            continue;
        }
        // A module of its own, which lists what it gives.
        let module = text(&format!("{name}.py"));
        let (_, given) = module.split_once("__all__ = [").unwrap();
        let (given, _) = given.split_once(']').unwrap();
        let interface = &contract.resolve.interfaces[interface.id];
        let functions = interface.functions.values();
        let functions = functions.filter(|function| matches!(function.kind, FunctionKind::Freestanding));
        let functions = functions.map(|function| function.name.replace('-', "_"));
        let is_own = |id: &TypeId| !matches!(contract.resolve.types[*id].kind, TypeDefKind::Type(_));
        let types = interface.types.iter().filter(|(_, id)| is_own(id)).map(|(ty, _)| camel(ty));
        for name in functions.chain(types) {
            assert!(given.contains(&format!("\"{name}\"")), "`{name}` is not in {given}");
        }
    }
}
