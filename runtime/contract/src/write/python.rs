//! The contract as data for the Python SDK: its functions and types as literals of one module, from which Python checks
//! the arguments of a call, and writes and reads values as [`codec`](super::native) does.

use std::fmt::Write;

use wit_parser::{Function, Handle, InterfaceId, Resolve, Type, TypeDefKind, TypeId, TypeOwner, WorldItem};

use crate::{Contract, Outcome, WORLD};

/// Generates the Python module with the tables `TYPES` and `FUNCTIONS`, by interface, of what a method imports, and the
/// list `EXPORTS` of what the host calls, in the order of their numbers.
///
/// A type is written as the tuple of its kind and what the kind needs, such as `("option", ("f32",))`; a type with a
/// name as `("named", interface, name)`, and a handle as `("handle", interface, resource)`.
///
/// # Errors
/// A world that exports other things than interfaces, and a type that the generator does not know.
pub fn python(contract: &Contract) -> Outcome<String> {
    let resolve = &contract.resolve;
    let (mut types, mut functions) = (String::new(), String::new());
    for interface in contract.interfaces() {
        writeln!(types, "    {:?}: {{", interface.name())?;
        writeln!(functions, "    {:?}: [", interface.name())?;
        for id in resolve.interfaces[interface.id].types.values() {
            types += &write_definition(resolve, *id)?;
        }
        for function in resolve.interfaces[interface.id].functions.values() {
            functions += &write_function(resolve, function)?;
        }
        types += "    },\n";
        functions += "    ],\n";
    }
    let exports = write_exports(contract)?;
    Ok(format!(
        "\"\"\"The functions and types of the contract, as data. Generated from `wit/` of tunebox.\"\"\"\n\n\
         #: By interface and name: the kind of the type, and its cases, flags or fields.\n\
         TYPES = {{\n{types}}}\n\n\
         #: By interface: the name of each function, its parameters by name and type, and its result.\n\
         FUNCTIONS = {{\n{functions}}}\n\n\
         #: What the host calls, by number.\nEXPORTS = [\n{exports}]\n"
    ))
}

/// Writes the functions of the interfaces that the world exports, in order, as elements of a Python list. Fails if the
/// world exports other things than interfaces.
fn write_exports(contract: &Contract) -> Outcome<String> {
    let resolve = &contract.resolve;
    let world = resolve.worlds.iter().find(|(_, world)| world.name == WORLD).ok_or("there is no such world")?.1;
    let mut text = String::new();
    for item in world.exports.values() {
        let WorldItem::Interface { id, .. } = item else { return Err("a world exports interfaces only".into()) };
        for function in resolve.interfaces[*id].functions.values() {
            text += &write_function(resolve, function)?;
        }
    }
    Ok(text)
}

/// Writes a function as `(name, [(parameter, type), …], result)`, an element of a Python list; the result is `None` if
/// there is none.
fn write_function(resolve: &Resolve, function: &Function) -> Outcome<String> {
    let mut parameters = String::new();
    for parameter in &function.params {
        write!(parameters, "({:?}, {}), ", parameter.name, write_type(resolve, &parameter.ty)?)?;
    }
    let result = write_optional_type(resolve, function.result.as_ref())?;
    Ok(format!("        ({:?}, [{}], {result}),\n", function.name, parameters.trim_end_matches(", ")))
}

/// Writes a resource, enum, record, variant or flags type as an entry of a Python dictionary: its name, and its kind
/// with its members. Empty for an alias and for other types, such as a named list, which are written where they are
/// used.
fn write_definition(resolve: &Resolve, id: TypeId) -> Outcome<String> {
    let defined = &resolve.types[id];
    let name = defined.name.as_deref().ok_or("a type without a name")?;
    let (kind, members) = match &defined.kind {
        TypeDefKind::Type(_) => return Ok(String::new()),
        TypeDefKind::Resource => ("resource", Vec::new()),
        TypeDefKind::Enum(set) => ("enum", set.cases.iter().map(|case| format!("{:?}", case.name)).collect()),
        TypeDefKind::Flags(set) => ("flags", set.flags.iter().map(|flag| format!("{:?}", flag.name)).collect()),
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|field| write_member(resolve, &field.name, Some(&field.ty)));
            ("record", fields.collect::<Outcome<_>>()?)
        }
        TypeDefKind::Variant(set) => {
            let cases = set.cases.iter().map(|case| write_member(resolve, &case.name, case.ty.as_ref()));
            ("variant", cases.collect::<Outcome<_>>()?)
        }
        // A name of a list or tuple, which is written where it is used.
        _ => return Ok(String::new()),
    };
    Ok(format!("        {name:?}: ({kind:?}, [{}]),\n", members.join(", ")))
}

/// Writes a field of a record or a case of a variant as `(name, type)`, with `None` for a case without a value.
fn write_member(resolve: &Resolve, name: &str, ty: Option<&Type>) -> Outcome<String> {
    Ok(format!("({name:?}, {})", write_optional_type(resolve, ty)?))
}

/// Writes a type as [`write_type`] does, or `None` if there is no type.
fn write_optional_type(resolve: &Resolve, ty: Option<&Type>) -> Outcome<String> {
    ty.map_or(Ok("None".to_owned()), |ty| write_type(resolve, ty))
}

/// Writes a type as a Python tuple of its kind and what the kind needs, such as `("option", ("f32",))`; an alias as the
/// type that it stands for. Fails for `error-context`, and for a type that has neither one of these kinds nor a name.
fn write_type(resolve: &Resolve, ty: &Type) -> Outcome<String> {
    let id = match ty {
        Type::Id(id) => *id,
        Type::ErrorContext => return Err("the Python SDK does not know `error-context`".into()),
        // Such as `U32`.
        primitive => return Ok(format!("(\"{}\",)", format!("{primitive:?}").to_lowercase())),
    };
    let defined = &resolve.types[id];
    match &defined.kind {
        TypeDefKind::Type(ty) => write_type(resolve, ty),
        TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => {
            write_named_type(resolve, "handle", resolve_alias(resolve, *id))
        }
        TypeDefKind::List(Type::U8) => Ok("(\"bytes\",)".to_owned()),
        TypeDefKind::List(ty) => Ok(format!("(\"list\", {})", write_type(resolve, ty)?)),
        TypeDefKind::Option(ty) => Ok(format!("(\"option\", {})", write_type(resolve, ty)?)),
        TypeDefKind::Tuple(tuple) => {
            let items = tuple.types.iter().map(|ty| write_type(resolve, ty)).collect::<Outcome<Vec<_>>>()?;
            Ok(format!("(\"tuple\", {})", items.join(", ")))
        }
        TypeDefKind::Result(result) => {
            let (ok, error) =
                (write_optional_type(resolve, result.ok.as_ref())?, write_optional_type(resolve, result.err.as_ref())?);
            Ok(format!("(\"result\", {ok}, {error})"))
        }
        _ => write_named_type(resolve, "named", id),
    }
}

/// Follows aliases from `id` and returns the type that they stand for: an interface may use a resource under a name of
/// its own.
fn resolve_alias(resolve: &Resolve, mut id: TypeId) -> TypeId {
    while let TypeDefKind::Type(Type::Id(meant)) = resolve.types[id].kind {
        id = meant;
    }
    id
}

/// Writes a type as `(kind, interface, name)`, with the interface that defines it; `kind` is `handle` or `named`. Fails
/// for a type without a name or outside an interface.
fn write_named_type(resolve: &Resolve, kind: &str, id: TypeId) -> Outcome<String> {
    let defined = &resolve.types[id];
    let name = defined.name.as_deref().ok_or_else(|| format!("a {} without a name", defined.kind.as_str()))?;
    let TypeOwner::Interface(owner) = defined.owner else { return Err(format!("`{name}` is in no interface").into()) };
    Ok(format!("({kind:?}, {:?}, {name:?})", interface_name(resolve, owner)))
}

/// Returns the name of an interface; empty if it has none.
fn interface_name(resolve: &Resolve, id: InterfaceId) -> &str {
    resolve.interfaces[id].name.as_deref().unwrap_or_default()
}
