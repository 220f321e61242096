//! Writes down from `wit/` how a method in a process of its own reaches the functions of `imports`: a table of all that it
//! may ask for, and how the types in it are read and written. No function is named here.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use wit_parser::{
    Function, FunctionKind, Handle, Interface, InterfaceId, LiveTypes, Resolve, Type, TypeDef, TypeDefKind, TypeId,
    TypeOwner, WorldItem,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The world whose imports are offered.
const WORLD: &str = "method";

fn main() -> Outcome<()> {
    let wit = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("no folder")?).join("../../wit");
    println!("cargo::rerun-if-changed={}", wit.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(&wit)?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    let (mut entries, mut types) = (Vec::new(), String::new());
    for item in resolve.worlds[world].imports.values() {
        let WorldItem::Interface { id, .. } = item else { return Err("a world's imports are interfaces".into()) };
        interface(&resolve, *id, &mut entries, &mut types)?;
    }
    // As bytes, which is how they are searched.
    entries.sort();
    let count = entries.len();
    let mut text = format!("/// Every function, by name.\nstatic IMPORTS: [Import; {count}] = [\n");
    entries.iter().for_each(|(_, entry)| text += entry);
    text += "];\n";
    text += &types;
    fs::write(PathBuf::from(env::var_os("OUT_DIR").ok_or("no folder to write to")?).join("dispatch.rs"), text)?;
    Ok(())
}

/// The functions of an interface as entries of the table, and its types.
fn interface(
    resolve: &Resolve,
    id: InterfaceId,
    entries: &mut Vec<(String, String)>,
    types: &mut String,
) -> Outcome<()> {
    let interface = &resolve.interfaces[id];
    let name = interface.name.as_deref().ok_or("an interface without a name")?;
    for function in interface.functions.values() {
        entries.push(entry(resolve, interface, name, function)?);
    }
    for type_id in interface.types.values() {
        let defined = &resolve.types[*type_id];
        if let TypeDefKind::Resource = defined.kind {
            entries.push(dropping(name, defined)?);
        } else if is_new(defined) {
            *types += &codec(name, defined)?;
        }
    }
    Ok(())
}

/// An entry: the arguments are read in order, whatever they are; the signature of the function says what that is.
fn entry(resolve: &Resolve, interface: &Interface, name: &str, function: &Function) -> Outcome<(String, String)> {
    let full = format!("{name}/{}", function.name);
    let (bearer, called) = match function.kind {
        FunctionKind::Freestanding => ("Host".to_owned(), snake(&function.name)),
        FunctionKind::Constructor(of) => (host_of(resolve, of)?, "new".to_owned()),
        FunctionKind::Method(of) | FunctionKind::Static(of) => (host_of(resolve, of)?, snake(function.item_name())),
        _ => return Err(format!("`{full}` is asynchronous").into()),
    };
    let mut reads = String::new();
    for (number, parameter) in function.params.iter().enumerate() {
        let how = if is_given_away(resolve, &full, &parameter.ty)? { "own" } else { "take" };
        writeln!(reads, "        let argument_{number} = input.{how}()?;")?;
    }
    let arguments: String = (0..function.params.len()).map(|number| format!(", argument_{number}")).collect();
    let path = format!("crate::bindings::{}::{bearer}::{called}", snake(name));
    let result = match &function.result {
        Some(result) if may_be_an_error(resolve, interface, result)? => "fallible(host, answer)",
        _ => "plain(answer)",
    };
    let text = format!(
        "    Import {{ name: {full:?}, call: |host, input| {{\n{reads}        input.end()?;\n        let answer = \
         {path}(host{arguments});\n        {result}\n    }} }},\n"
    );
    Ok((full, text))
}

/// The entry that gives a handle back.
fn dropping(name: &str, resource: &TypeDef) -> Outcome<(String, String)> {
    let kind = resource.name.as_deref().ok_or("a resource without a name")?;
    let full = format!("{name}/[resource-drop]{kind}");
    let path = format!("crate::bindings::{}::Host{}::drop", snake(name), camel(kind));
    let text = format!(
        "    Import {{ name: {full:?}, call: |host, input| {{\n        let argument_0 = input.own()?;\n        \
         input.end()?;\n        plain({path}(host, argument_0))\n    }} }},\n"
    );
    Ok((full, text))
}

/// The trait of a resource's functions.
fn host_of(resolve: &Resolve, resource: TypeId) -> Outcome<String> {
    let name = resolve.types[resource].name.as_deref().ok_or("a resource without a name")?;
    Ok(format!("Host{}", camel(name)))
}

/// Whether an argument is a handle that changes hands. One inside another type would be read as if it were lent.
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

/// Whether a result is one whose error is the contract's own, which the host makes of its refusals.
fn may_be_an_error(resolve: &Resolve, interface: &Interface, result: &Type) -> Outcome<bool> {
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
    Err(format!("`{}` has an error of its own", interface.name.as_deref().unwrap_or_default()).into())
}

/// Whether a type is made here and not another name for one.
fn is_new(defined: &TypeDef) -> bool {
    use TypeDefKind::{Enum, Flags, Record, Variant};
    matches!(defined.kind, Enum(_) | Flags(_) | Record(_) | Variant(_))
}

/// How a type is read and written.
fn codec(interface: &str, defined: &TypeDef) -> Outcome<String> {
    let name = defined.name.as_deref().ok_or("a type without a name")?;
    let path = format!("crate::bindings::{}::{}", snake(interface), camel(name));
    let (least, decode, encode) = match &defined.kind {
        TypeDefKind::Record(record) => {
            fields(&record.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>())
        }
        TypeDefKind::Enum(cases) => {
            variant(name, &cases.cases.iter().map(|case| (case.name.as_str(), false)).collect::<Vec<_>>())?
        }
        TypeDefKind::Variant(cases) => {
            let cases: Vec<_> = cases.cases.iter().map(|case| (case.name.as_str(), case.ty.is_some())).collect();
            variant(name, &cases)?
        }
        TypeDefKind::Flags(flags) => {
            bits(name, &flags.flags.iter().map(|flag| flag.name.as_str()).collect::<Vec<_>>())?
        }
        other => return Err(format!("`{name}` is a {}", other.as_str()).into()),
    };
    Ok(format!(
        "\nimpl super::wire::Decode for {path} {{\n    const LEAST: usize = {least};\n\n    fn decode(input: &mut \
         Input<'_>) -> Result<Self, crate::cause::Cause> {{\n{decode}    }}\n}}\n\nimpl Encode for {path} {{\n    fn \
         encode(&self, output: &mut Vec<u8>) {{\n{encode}    }}\n}}\n"
    ))
}

/// The bytes at least, the reading and the writing of a type.
type Halves = (usize, String, String);

fn fields(names: &[&str]) -> Halves {
    let names: Vec<String> = names.iter().map(|name| snake(name)).collect();
    let reads: String = names.iter().map(|name| format!("{name}: input.take()?, ")).collect();
    let writes = names.iter().map(|name| format!("        self.{name}.encode(output);\n")).collect();
    (names.len(), format!("        Ok(Self {{ {reads}}})\n"), writes)
}

fn variant(name: &str, cases: &[(&str, bool)]) -> Outcome<Halves> {
    if cases.len() > 256 {
        return Err(format!("`{name}` has more cases than a byte has values").into());
    }
    let (mut reads, mut writes) = (String::new(), String::new());
    for (number, (case, has_value)) in cases.iter().enumerate() {
        let case = camel(case);
        if *has_value {
            writeln!(reads, "            {number} => Ok(Self::{case}(input.take()?)),")?;
            writeln!(writes, "            Self::{case}(value) => {{")?;
            writeln!(writes, "                {number}_u8.encode(output);\n                value.encode(output);")?;
            writeln!(writes, "            }}")?;
        } else {
            writeln!(reads, "            {number} => Ok(Self::{case}),")?;
            writeln!(writes, "            Self::{case} => {number}_u8.encode(output),")?;
        }
    }
    let reads = format!(
        "        match input.take::<u8>()? {{\n{reads}            other => Err(super::wire::no_case({name:?}, other)),\n        }}\n"
    );
    Ok((1, reads, format!("        match self {{\n{writes}        }}\n")))
}

fn bits(name: &str, flags: &[&str]) -> Outcome<Halves> {
    if flags.len() >= 32 {
        return Err(format!("`{name}` has more flags than are written").into());
    }
    let known = (1_u32 << flags.len()) - 1;
    let mut reads = format!(
        "        let bits = input.take::<u32>()?;\n        if bits & !{known} != 0 {{\n            return \
         Err(super::wire::malformed(format!(\"`{name}` has no flags {{bits:#x}}\")));\n        }}\n        let mut flags \
         = Self::empty();\n"
    );
    let mut writes = String::from("        let mut bits = 0_u32;\n");
    for (number, flag) in flags.iter().enumerate() {
        let (flag, bit) = (snake(flag).to_uppercase(), 1_u32 << number);
        writeln!(reads, "        if bits & {bit} != 0 {{\n            flags |= Self::{flag};\n        }}")?;
        writeln!(writes, "        if self.contains(Self::{flag}) {{\n            bits |= {bit};\n        }}")?;
    }
    reads += "        Ok(flags)\n";
    writes += "        bits.encode(output);\n";
    Ok((4, reads, writes))
}

/// A name of WIT as one of a Rust function, as the bindings have it.
fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// A name of WIT as one of a Rust type.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    };
    name.split('-').map(word).collect()
}
