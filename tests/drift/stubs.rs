//! The contract and what editors read of it in Python.

use std::collections::BTreeSet;

use wit_parser::{Function, Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, TypeOwner, WorldItem};

use crate::support::golden::root;

/// What the package gives to arguments that are left out, of methods of a tensor that it names.
const DEFAULTS: [(&str, &str); 7] = [
    ("axis: int | None", "None"),
    ("axis: int", "-1"),
    ("keep: bool", "False"),
    ("correction: int", "0"),
    ("descending: bool", "False"),
    ("low: float | None", "None"),
    ("high: float | None", "None"),
];

/// `error-code` as `ErrorCode`.
fn class(name: &str) -> String {
    name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A text without what line ends and indents make of it.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One interface, as Python has it.
struct Module<'a> {
    resolve: &'a Resolve,
    id: InterfaceId,
    /// The package's own source, which gives operators and defaults to tensors.
    package: &'a str,
}

impl Module<'_> {
    fn type_name(&self, ty: &Type) -> String {
        match ty {
            Type::Bool => "bool".into(),
            Type::Char | Type::String => "str".into(),
            Type::F32 | Type::F64 => "float".into(),
            Type::Id(id) => self.named(*id),
            _ => "int".into(),
        }
    }

    fn named(&self, id: TypeId) -> String {
        let definition = &self.resolve.types[id];
        match &definition.kind {
            TypeDefKind::Type(ty) => self.type_name(ty),
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.named(*id),
            TypeDefKind::List(Type::U8) => "bytes".into(),
            TypeDefKind::List(ty) => format!("list[{}]", self.type_name(ty)),
            TypeDefKind::Option(ty) => format!("{} | None", self.type_name(ty)),
            TypeDefKind::Result(result) => result.ok.as_ref().map_or("None".into(), |ty| self.type_name(ty)),
            _ => {
                let name = class(definition.name.as_ref().unwrap());
                match definition.owner {
                    TypeOwner::Interface(other) if other != self.id => {
                        format!("{}.{name}", self.resolve.interfaces[other].name.as_ref().unwrap())
                    }
                    _ => name,
                }
            }
        }
    }

    /// The line of a function, but for its indent.
    fn line(&self, key: &str, function: &Function) -> String {
        let name = match key.rsplit(']').next().unwrap() {
            _ if key.starts_with("[constructor]") => "__init__".to_owned(),
            name => name.rsplit('.').next().unwrap().replace('-', "_"),
        };
        let is_dressed = key.starts_with("[method]tensor.") && self.package.contains(&format!("\"{name}\""));
        let argument = |named: &str, ty: &Type| {
            let argument = format!("{}: {}", named.replace('-', "_"), self.type_name(ty));
            let default = DEFAULTS.iter().find(|(argued, _)| is_dressed && *argued == argument);
            default.map_or(argument.clone(), |(_, value)| format!("{argument} = {value}"))
        };
        let own = if key.starts_with('[') { vec!["self".to_owned()] } else { Vec::new() };
        let given = function.params.iter().filter(|parameter| parameter.name != "self");
        let given = given.map(|parameter| argument(&parameter.name, &parameter.ty));
        let arguments: Vec<String> = own.into_iter().chain(given).collect();
        let result = function.result.as_ref().filter(|_| name != "__init__");
        let result = result.map_or("None".to_owned(), |ty| self.type_name(ty));
        format!("def {name}({}) -> {result}:", arguments.join(", "))
    }

    /// The classes of a type.
    fn classes(&self, id: TypeId) -> Vec<String> {
        let definition = &self.resolve.types[id];
        let name = class(definition.name.as_ref().unwrap());
        let constant = |name: &str| name.replace('-', "_").to_uppercase();
        match &definition.kind {
            TypeDefKind::Resource => vec![format!("class {name}:")],
            TypeDefKind::Record(record) => {
                let field = |field: &wit_parser::Field| format!("{}: {}", field.name, self.type_name(&field.ty));
                [format!("class {name}:")].into_iter().chain(record.fields.iter().map(field)).collect()
            }
            TypeDefKind::Enum(cases) => {
                let case =
                    |(index, case): (usize, &wit_parser::EnumCase)| format!("{} = {index}", constant(&case.name));
                [format!("class {name}(Enum):")].into_iter().chain(cases.cases.iter().enumerate().map(case)).collect()
            }
            TypeDefKind::Flags(flags) => {
                let flag =
                    |(index, flag): (usize, &wit_parser::Flag)| format!("{} = {}", constant(&flag.name), 1 << index);
                [format!("class {name}(Flag):")].into_iter().chain(flags.flags.iter().enumerate().map(flag)).collect()
            }
            TypeDefKind::Variant(variant) => {
                variant.cases.iter().map(|case| format!("class {name}_{}:", class(&case.name))).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[test]
fn what_editors_read_in_python_is_the_contract() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let world = &resolve.worlds[resolve.packages[package].worlds["method"]];
    let own = text("sdk/python/tunebox/tensor.py");
    let mut stubs = BTreeSet::from(["__init__.pyi".to_owned()]);
    for item in world.imports.values() {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        let name = interface.name.as_ref().unwrap();
        let path = format!("sdk/python/stubs/wit_world/imports/{name}.pyi");
        let (stub, module) = (text(&path), Module { resolve: &resolve, id: *id, package: &own });
        let lines: Vec<&str> = stub.lines().map(|line| line.trim().trim_end_matches(" ...")).collect();
        let said = words(&stub);
        let has = |line: &str, docs: &wit_parser::Docs| {
            assert!(lines.contains(&line), "`{path}` has no line `{line}`");
            let text = words(docs.contents.as_deref().unwrap_or_default());
            assert!(said.contains(&text), "`{path}` does not say of `{line}`: {text}");
        };
        let functions = interface.functions.iter().map(|(key, function)| (module.line(key, function), function));
        let functions: Vec<_> = functions.collect();
        for (line, function) in &functions {
            has(line, &function.docs);
        }
        let known = lines.iter().filter(|line| line.starts_with("def ") && !line.starts_with("def __")).count();
        let constructors = functions.iter().filter(|(line, _)| line.starts_with("def __")).count();
        assert_eq!(known, functions.len() - constructors, "`{path}` has a function that the contract has not");
        for id in interface.types.values() {
            for line in module.classes(*id) {
                has(&line, &resolve.types[*id].docs);
            }
        }
        stubs.insert(format!("{name}.pyi"));
    }
    let entries = std::fs::read_dir(root().join("sdk/python/stubs/wit_world/imports")).unwrap();
    let found: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, stubs);
}

#[test]
fn a_tensor_has_the_operators_of_the_package() {
    let (package, stub) = (text("sdk/python/tunebox/tensor.py"), text("sdk/python/stubs/wit_world/imports/tensor.pyi"));
    let (_, table) = package.split_once("_OPERATORS = {\n").unwrap();
    let (table, _) = table.split_once("\n}\n").unwrap();
    let names: Vec<&str> = table.lines().map(|line| line.split('"').nth(1).unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names.iter().filter(|name| !["__bool__", "__repr__"].contains(name)) {
        assert!(stub.contains(&format!("    def {name}(self")), "the stub of a tensor has no `{name}`");
    }
}
