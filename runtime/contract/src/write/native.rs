//! What a method in a process of its own may ask for: every function of the contract, and the types that cross.

use std::fmt::Write;

use wit_parser::{Function, FunctionKind, Handle, LiveTypes, Resolve, Type, TypeDef, TypeDefKind, TypeId, TypeOwner};

use crate::{Contract, Interface, Outcome, camel, snake};

/// Generates the Rust code by which the host answers a native process: a sorted table `IMPORTS` of all functions with
/// the code that reads the arguments and calls each, and implementations of `Decode` and `Encode` for the types of the
/// contract.
///
/// # Errors
/// An asynchronous function, an error type other than the contract's own, an owned handle inside another type, and an
/// enum or variant with more than 256 cases.
pub fn requests(contract: &Contract) -> Outcome<String> {
    let (mut entries, mut types) = (Vec::new(), String::new());
    for interface in contract.interfaces() {
        add_interface(&contract.resolve, interface, &mut entries, &mut types)?;
    }
    // As bytes, which is how they are searched.
    entries.sort();
    let count = entries.len();
    let mut text = format!("/// Every function, by name.\nstatic IMPORTS: [Import; {count}] = [\n");
    entries.iter().for_each(|(_, entry)| text += entry);
    Ok(text + "];\n" + &types)
}

/// Adds the functions of an interface, and the drop functions of its resources, to `entries`, as (`interface/function`,
/// source). Adds the codecs of the enums, records and variants that the interface defines to `types`, as source.
fn add_interface(
    resolve: &Resolve,
    interface: Interface<'_>,
    entries: &mut Vec<(String, String)>,
    types: &mut String,
) -> Outcome<()> {
    let name = interface.name();
    for function in interface.functions() {
        entries.push(function_entry(resolve, name, function.signature)?);
    }
    for type_id in resolve.interfaces[interface.id].types.values() {
        let defined = &resolve.types[*type_id];
        if let TypeDefKind::Resource = defined.kind {
            entries.push(drop_entry(name, defined)?);
        } else if needs_codec(defined) {
            *types += &codec(name, defined)?;
        }
    }
    Ok(())
}

/// Generates the table entry of the function of the interface `name`, as (`interface/function`, source). The source
/// reads the arguments in order, expects the end of the input, calls the function on the host and encodes the answer.
/// Fails for an asynchronous function, for an owned handle inside an argument, and for an error type other than
/// `types.error`.
fn function_entry(resolve: &Resolve, name: &str, function: &Function) -> Outcome<(String, String)> {
    let full = format!("{name}/{}", function.name);
    let (bearer, called) = match function.kind {
        FunctionKind::Freestanding => ("Host".to_owned(), snake(&function.name)),
        FunctionKind::Constructor(of) => (host_trait(resolve, of)?, "new".to_owned()),
        FunctionKind::Method(of) | FunctionKind::Static(of) => (host_trait(resolve, of)?, snake(function.item_name())),
        _ => return Err(format!("`{full}` is asynchronous").into()),
    };
    let mut reads = String::new();
    for (number, parameter) in function.params.iter().enumerate() {
        let how = if is_given_away(resolve, &full, &parameter.ty)? { "read_owned" } else { "read" };
        writeln!(reads, "        let argument_{number} = {how}(input)?;")?;
    }
    let arguments: String = (0..function.params.len()).map(|number| format!(", argument_{number}")).collect();
    let path = format!("crate::bindings::{}::{bearer}::{called}", snake(name));
    let result = match &function.result {
        Some(result) if may_be_an_error(resolve, name, result)? => "fallible(host, answer)",
        _ => "plain(answer)",
    };
    let text = format!(
        "    Import {{ name: {full:?}, call: |host, input| {{\n{reads}        end(input)?;\n        let answer = \
         {path}(host{arguments});\n        {result}\n    }} }},\n"
    );
    Ok((full, text))
}

/// Generates the table entry that drops a handle of `resource` of the interface `name`, as
/// (`interface/[resource-drop]resource`, source).
fn drop_entry(name: &str, resource: &TypeDef) -> Outcome<(String, String)> {
    let kind = resource.name.as_deref().ok_or("a resource without a name")?;
    let full = format!("{name}/[resource-drop]{kind}");
    let path = format!("crate::bindings::{}::Host{}::drop", snake(name), camel(kind));
    let text = format!(
        "    Import {{ name: {full:?}, call: |host, input| {{\n        let argument_0 = read_owned(input)?;\n        \
         end(input)?;\n        plain({path}(host, argument_0))\n    }} }},\n"
    );
    Ok((full, text))
}

/// Returns the name of the trait that bindings generate for a resource: `HostTensor` for `tensor`. Fails for a resource
/// without a name.
fn host_trait(resolve: &Resolve, resource: TypeId) -> Outcome<String> {
    let name = resolve.types[resource].name.as_deref().ok_or("a resource without a name")?;
    Ok(format!("Host{}", camel(name)))
}

/// Whether an argument is an owned handle, which passes to the host. Fails for an owned handle inside another type,
/// which would be read as if it were borrowed.
fn is_given_away(resolve: &Resolve, function: &str, argument: &Type) -> Outcome<bool> {
    let is_own = |id: TypeId| matches!(resolve.types[id].kind, TypeDefKind::Handle(Handle::Own(_)));
    if matches!(argument, Type::Id(id) if is_own(*id)) {
        return Ok(true);
    }
    let mut within = LiveTypes::default();
    within.add_type(resolve, argument);
    match within.iter().find(|id| is_own(*id)) {
        Some(_) => Err(format!("`{function}` is given a handle inside another type").into()),
        None => Ok(false),
    }
}

/// Whether a function's result is a `result` with the contract's error type, `types.error`. Follows aliases. False for
/// any other type, and for a `result` whose error is missing or built in. Fails for an error type that another
/// interface or name defines.
fn may_be_an_error(resolve: &Resolve, interface: &str, result: &Type) -> Outcome<bool> {
    let Type::Id(id) = result else { return Ok(false) };
    let TypeDefKind::Result(result) = &resolve.types[*id].kind else { return Ok(false) };
    let Some(Type::Id(mut error)) = result.err else { return Ok(false) };
    while let TypeDefKind::Type(Type::Id(meant)) = resolve.types[error].kind {
        error = meant;
    }
    let error = &resolve.types[error];
    let TypeOwner::Interface(owner) = error.owner else { return Ok(false) };
    let owner = resolve.interfaces[owner].name.as_deref();
    if (owner, error.name.as_deref()) == (Some("types"), Some("error")) {
        return Ok(true);
    }
    Err(format!("`{interface}` has an error of its own").into())
}

/// Whether the generator writes a codec for a type that an interface defines: for an enum, record or variant. False for
/// aliases, resources, flags and all other types.
fn needs_codec(defined: &TypeDef) -> bool {
    use TypeDefKind::{Enum, Record, Variant};
    matches!(defined.kind, Enum(_) | Record(_) | Variant(_))
}

/// Generates the implementations of `Decode` and `Encode` for an enum, record or variant of `interface`, as a call of
/// the macro `cases!` or `record!`, which stand beside the two traits. Fails for a type of another kind or without a
/// name, and for more than 256 cases.
fn codec(interface: &str, defined: &TypeDef) -> Outcome<String> {
    let name = defined.name.as_deref().ok_or("a type without a name")?;
    let path = format!("crate::bindings::{}::{}", snake(interface), camel(name));
    match &defined.kind {
        TypeDefKind::Record(record) => {
            let fields: String = record.fields.iter().map(|field| format!(" {}", snake(&field.name))).collect();
            Ok(format!("\nrecord!({path} {{{fields} }});\n"))
        }
        TypeDefKind::Enum(set) => cases(&path, set.cases.iter().map(|case| (case.name.as_str(), false))),
        TypeDefKind::Variant(set) => cases(&path, set.cases.iter().map(|case| (case.name.as_str(), case.ty.is_some()))),
        other => Err(format!("`{name}` is a {}", other.as_str()).into()),
    }
}

/// Generates the call of `cases!` for the enum or variant with the Rust path `path`. `cases` are (WIT name, whether it
/// carries a value); their numbers count from 0. Fails for more than 256 cases.
fn cases<'a>(path: &str, cases: impl Iterator<Item = (&'a str, bool)>) -> Outcome<String> {
    let mut written = String::new();
    for (number, (case, has_value)) in cases.enumerate() {
        let value = if has_value { "(value)" } else { "" };
        write!(written, " {}_u8 {}{value}", u8::try_from(number)?, camel(case))?;
    }
    Ok(format!("\ncases!({path} {{{written} }});\n"))
}
