//! The contract and its page.

use std::fmt::Write as _;

use tunebox_contract::wit_parser::{self, Docs, Interface, InterfaceId, Resolve, Type, TypeDefKind, TypeId, WorldItem};

use super::contract;
use crate::support::golden::{assert_file, root};

fn docs(docs: &Docs, owner: &str) -> String {
    docs.contents.clone().unwrap_or_else(|| panic!("`{owner}` has no documentation")).trim().to_owned()
}

fn type_name(resolve: &Resolve, ty: &Type) -> String {
    match ty {
        Type::Id(id) => definition(resolve, *id),
        Type::String => "string".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn definition(resolve: &Resolve, id: TypeId) -> String {
    let def = &resolve.types[id];
    let optional = |ty: &Option<Type>| ty.as_ref().map_or("_".into(), |ty| type_name(resolve, ty));
    match (&def.name, &def.kind) {
        (Some(name), _) => name.clone(),
        (_, TypeDefKind::Result(r)) => format!("result<{}, {}>", optional(&r.ok), optional(&r.err)),
        (_, TypeDefKind::Option(ty)) => format!("option<{}>", type_name(resolve, ty)),
        (_, TypeDefKind::List(ty)) => format!("list<{}>", type_name(resolve, ty)),
        (_, TypeDefKind::Tuple(t)) => {
            format!("tuple<{}>", t.types.iter().map(|ty| type_name(resolve, ty)).collect::<Vec<_>>().join(", "))
        }
        (_, TypeDefKind::Handle(wit_parser::Handle::Borrow(id))) => format!("borrow<{}>", definition(resolve, *id)),
        (_, TypeDefKind::Handle(wit_parser::Handle::Own(id))) => definition(resolve, *id),
        (_, kind) => kind.as_str().to_owned(),
    }
}

/// The text of a flag: what a method of the same name gives is said there.
fn flag(resolve: &Resolve, interface: &Interface, name: &str) -> Option<String> {
    interface.types.values().find_map(|id| match &resolve.types[*id].kind {
        TypeDefKind::Flags(flags) => flags.flags.iter().find(|flag| flag.name == name)?.docs.contents.clone(),
        _ => None,
    })
}

/// One interface as a section: its text, then every function with its signature and text.
fn section(resolve: &Resolve, id: InterfaceId) -> String {
    let interface = &resolve.interfaces[id];
    let name = interface.name.clone().unwrap();
    let mut text = format!("## {name}\n\n{}\n", docs(&interface.docs, &name));
    for (kind, id) in &interface.types {
        let def = &resolve.types[*id];
        if !matches!(def.kind, TypeDefKind::Type(_)) {
            let _ = write!(text, "\n**`{}` {kind}** {}\n", def.kind.as_str(), docs(&def.docs, kind));
        }
    }
    for (key, function) in &interface.functions {
        let parameters = function.params.iter().filter(|p| p.name != "self");
        let parameters: Vec<String> =
            parameters.map(|p| format!("{}: {}", p.name, type_name(resolve, &p.ty))).collect();
        let result = function.result.as_ref().map_or(String::new(), |ty| format!(" -> {}", type_name(resolve, ty)));
        let title = key.rsplit(']').next().unwrap_or(key);
        let what = if key.starts_with("[constructor]") { "constructor " } else { "" };
        let method = title.rsplit('.').next().unwrap_or(title);
        let about = function.docs.contents.clone().or_else(|| flag(resolve, interface, method)).unwrap_or_default();
        assert!(!about.trim().is_empty() || !what.is_empty(), "`{name}.{key}` has no documentation");
        let _ = write!(
            text,
            "\n`{what}{title}({}){result}`  \n{}\n",
            parameters.join(", "),
            about.trim().replace('\n', " ")
        );
    }
    text
}

#[test]
fn the_page_of_the_contract_is_the_contract() {
    let resolve = contract().resolve;
    let (package, _) = resolve.packages.iter().next().unwrap();
    let mut page = String::from("# The contract `tunebox:method@0.2.0`\n\n");
    let _ = write!(page, "Generated from the files beside it; `BLESS=1 cargo test` rewrites it.\n\n");
    let released = std::fs::read_dir(root().join("wit/released")).unwrap().map(|entry| entry.unwrap().path());
    let released = released.filter(|path| path.is_dir());
    let mut released: Vec<String> =
        released.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    released.sort();
    let released = if released.is_empty() { "none yet".to_owned() } else { released.join(", ") };
    let _ = write!(page, "Released, and frozen in [`released/`](released/README.md): {released}.\n\n");
    for (name, world) in &resolve.packages[package].worlds {
        let world = &resolve.worlds[*world];
        let named = |(key, _): (&wit_parser::WorldKey, &WorldItem)| resolve.name_world_key(key);
        let imports: Vec<String> = world.imports.iter().map(named).collect();
        let exports: Vec<String> = world.exports.iter().map(named).collect();
        let _ = write!(page, "**World `{name}`.** {}", docs(&world.docs, name));
        let _ = write!(
            page,
            " Imports: {}. Exports: {}.\n\n",
            if imports.is_empty() { "nothing".into() } else { imports.join(", ") },
            exports.join(", ")
        );
    }
    let sections: Vec<String> =
        resolve.packages[package].interfaces.values().map(|id| section(&resolve, *id)).collect();
    page += &sections.join("\n");
    assert_file("wit/README.md", &page);
}
