//! What a component is allowed to be, checked on its bytes before anything compiles them.
//!
//! The bytes are validated against a small set of features, walked once for what the contract
//! leaves out (own resources, other string encodings, anything asynchronous), and the names of
//! imports, their functions and exports are compared with the grants and with the version of the contract that this host
//! keeps. Types are compared later, by the linker.

use tunebox_foundation::explain::Explanation;
use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::Types;
use wasmparser::{
    BinaryReaderError, CanonicalFunction, CanonicalOption, ComponentExternalKind, ComponentType, CustomSectionReader,
    Instance, KnownCustom, Name, Parser, Payload, Validator, WasmFeatures,
};

use crate::costs::cost_of;
use crate::error::{BEFORE, Error};
use crate::grants::{CONTRACT, Grants, KNOWN, PACKAGE, TRAINING, Version, named};
use crate::limits::Limits;
use crate::printable::printable;

/// The longest name of an import, export or function in an error, in bytes.
const NAME_BYTES: usize = 200;

/// The deepest nesting of components and modules.
const NESTING: u32 = 4;
/// The most components and modules in one component.
const PARTS: u32 = 64;
/// The most instances of components and modules in one component.
const INSTANCES: u32 = 256;
/// The most functions in all modules of a component together.
const FUNCTIONS: u32 = 50_000;
/// The bytes that the host keeps in an instance for each function, global, import, table and segment of its module, at most.
const ITEM_BYTES: u64 = 48;
/// The longest name of a function, in bytes: the host copies those of the call stack when a method is stopped.
const FUNCTION_NAME_BYTES: usize = 64 << 10;
/// The largest function body, in bytes.
const FUNCTION_BYTES: usize = 512 << 10;

/// Imports, exports and counts that one parse of a component collects.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The full names of its imports.
    pub(crate) imports: Vec<String>,
    /// The full names of the interfaces that it exports.
    pub(crate) exports: Vec<String>,
    depth: u32,
    parts: u32,
    instances: u32,
    functions: u32,
    /// Functions, globals, imports and so on of the module that is parsed, and of the largest one.
    items: (u64, u64),
    /// Instances of modules in the outermost component, and whether those inside it have some.
    modules: (u64, bool),
}

/// Returns the full names of everything that a component imports, in the component's order. Parses the bytes once;
/// neither validates nor compiles them.
///
/// # Errors
/// A refusal of bytes that are no component of this contract.
pub fn imports(bytes: &[u8]) -> Result<Vec<String>, Error> {
    Ok(survey(bytes, "this file")?.imports)
}

/// Checks a component's size, form, imports against `grants`, required export and types, in that order, without
/// compiling it. `method` names the component in errors. Returns the full names of its imports.
///
/// # Errors
/// Every refusal that needs no compiler.
pub fn admit(bytes: &[u8], method: &str, grants: &Grants, limits: &Limits) -> Result<Vec<String>, Error> {
    Ok(admit_method(bytes, method, grants, limits)?.imports)
}

/// Does what [`admit`] does, and returns all that was found.
pub(crate) fn admit_method(bytes: &[u8], method: &str, grants: &Grants, limits: &Limits) -> Result<Survey, Error> {
    let survey = examine(bytes, method, limits.component_bytes)?;
    survey.imports.iter().try_for_each(|import| check_import(grants, import, method))?;
    if let Some(missing) = missing_export(&survey, method, TRAINING)? {
        let refusal = Explanation::new("sandbox", format!("`{method}` does not offer what a method must"));
        return Err(refusal
            .with_location(format!("export `{missing}`, missed before anything ran"))
            .with_why("the host calls `init`, `step` and `finish`; without them there is nothing to run")
            .with_hint("`tunebox new NAME` writes a method that has all of it")
            .into());
    }
    let types = validate(bytes, method)?;
    survey.imports.iter().try_for_each(|import| check_functions(&types, import, method))?;
    Ok(survey)
}

/// Checks one import, by its full name, against the contract and the grants of the run. Fails for a name outside the
/// contract, for a version that this host does not provide, and for an interface that `grants` lacks.
fn check_import(grants: &Grants, import: &str, method: &str) -> Result<(), Error> {
    let shown = printable(import, NAME_BYTES);
    let refused = |by_name| Err(Error::NotGranted { method: method.to_owned(), import: shown.clone(), by_name });
    let Some((interface, version)) = named(import) else { return refused(false) };
    let is_known = KNOWN.contains(&interface);
    if !version.is_of_track(CONTRACT) || (!is_known && version > CONTRACT) {
        return Err(other_version(method, version, &format!("import `{shown}`"), interface));
    }
    if is_known && grants.interfaces.contains(interface) { Ok(()) } else { refused(is_known) }
}

/// Builds the error for a component that needs version `wants` of the contract, which this host does not provide.
/// `place` names the import or export that shows the version; `item` is the interface or function that is missing here.
fn other_version(component: &str, wants: Version, place: &str, item: &str) -> Error {
    let why = if wants.is_of_track(CONTRACT) {
        format!("`{item}` is newer than {CONTRACT}")
    } else {
        let (major, minor) = (CONTRACT.major, CONTRACT.minor);
        format!("a version that is not {major}.{minor}.x is another contract, with functions of its own")
    };
    let hint = if wants > CONTRACT {
        format!(
            "a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for {CONTRACT}"
        )
    } else {
        "its author can build it again with the SDK of this version".to_owned()
    };
    let what = format!("`{component}` needs `{PACKAGE}@{wants}`, this program keeps {CONTRACT}");
    Explanation::new("sandbox", what).with_location(format!("{place}, {BEFORE}")).with_why(why).with_hint(hint).into()
}

/// Returns `None` if the component exports `interface` in the contract's track (same major and minor version), else the
/// full name that it should export.
///
/// Errors: the component exports `interface` only in another track.
pub(crate) fn missing_export(survey: &Survey, name: &str, interface: &str) -> Result<Option<String>, Error> {
    let offered = survey.exports.iter().filter_map(|export| {
        let (found, version) = named(export)?;
        (found == interface).then_some((export, version))
    });
    let mut other = None;
    for (export, version) in offered {
        if version.is_of_track(CONTRACT) {
            return Ok(None);
        }
        other = Some((export, version));
    }
    match other {
        Some((export, wants)) => {
            Err(other_version(name, wants, &format!("export `{}`", printable(export, NAME_BYTES)), interface))
        }
        None => Ok(Some(format!("{PACKAGE}/{interface}@{CONTRACT}"))),
    }
}

/// Checks that this host provides every function that the component uses of one import. A function is provided if it
/// has a row in the table of costs. Does nothing for an import that is not an interface of the contract.
fn check_functions(types: &Types, import: &str, method: &str) -> Result<(), Error> {
    let Some((interface, wants)) = named(import) else { return Ok(()) };
    let Some(ComponentEntityType::Instance(instance)) = types.component_item_for_import(import).map(|item| item.ty)
    else {
        return Ok(());
    };
    for (export, item) in &types[instance].exports {
        let function = row(interface, export);
        if !matches!(item.ty, ComponentEntityType::Func(_)) || cost_of(&function).is_some() {
            continue;
        }
        let function = printable(&function, NAME_BYTES);
        return Err(if wants > CONTRACT {
            other_version(method, wants, &format!("import `{}`", printable(import, NAME_BYTES)), &function)
        } else {
            let difference = format!("`{PACKAGE}@{CONTRACT}` has no `{function}`");
            Error::Mismatch { method: method.to_owned(), difference }
        });
    }
    Ok(())
}

/// Converts a function's WIT name to its name in the table of costs: `[method]tensor.add` of interface `tensor` becomes
/// `tensor.tensor.add`, `[constructor]scope` becomes `tensor.scope.constructor`.
fn row(interface: &str, export: &str) -> String {
    match export.strip_prefix("[constructor]") {
        Some(resource) => format!("{interface}.{resource}.constructor"),
        None => format!("{interface}.{}", export.rsplit(']').next().unwrap_or(export)),
    }
}

/// Checks that a component has at most `limit` bytes, then collects its imports and exports as [`survey`] does.
pub(crate) fn examine(bytes: &[u8], name: &str, limit: usize) -> Result<Survey, Error> {
    if bytes.len() > limit {
        return Err(Error::TooLarge { method: name.into(), size: bytes.len() as u64, limit: limit as u64 });
    }
    survey(bytes, name)
}

/// Runs wasmparser's full validation of a component with the features of [`features`] and returns its types.
pub(crate) fn validate(bytes: &[u8], name: &str) -> Result<Types, Error> {
    Validator::new_with_features(features()).validate_all(bytes).map_err(|error| malformed(name, &error))
}

/// Builds the error for bytes that the parser or validator rejected: its message with the byte offset.
fn malformed(name: &str, error: &BinaryReaderError) -> Error {
    Error::malformed(name, format!("{} (at byte {})", error.message(), error.offset()))
}

/// Returns the only WebAssembly features that a method may use: those that compilers for `wasm32-unknown-unknown` emit.
fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::GC_TYPES
        | WasmFeatures::COMPONENT_MODEL
}

/// Collects a component's imports, exports and sizes in one parse, without full validation. Stops at the first feature
/// or size that the contract excludes and returns it as an error.
fn survey(bytes: &[u8], method: &str) -> Result<Survey, Error> {
    if !bytes.starts_with(b"\0asm") {
        return Err(Error::malformed(method, "it does not begin like WebAssembly"));
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Error::malformed(method, "it is a core module, not a component"));
    }
    let mut survey = Survey::default();
    let mut parser = Parser::new(0);
    parser.set_features(features());
    for payload in parser.parse_all(bytes) {
        let excluded = payload.and_then(|payload| survey.visit(payload)).map_err(|error| malformed(method, &error))?;
        if let Some(what) = excluded {
            let what = format!("`{method}` uses {what}, which the contract leaves out");
            let hint = format!("`{method}` must be built without it; `tunebox build` does that");
            return Err(Explanation::new("sandbox", what).with_location(BEFORE).with_hint(hint).into());
        }
    }
    Ok(survey)
}

impl Survey {
    /// Records one part of the component: nesting depth, counts, and the names of its outermost imports and exports.
    /// Returns a description of the first thing in this part that the contract excludes or that passes a size limit,
    /// else `None`.
    fn visit(&mut self, payload: Payload<'_>) -> wasmparser::Result<Option<&'static str>> {
        Ok(match payload {
            Payload::Version { .. } => {
                self.items.0 = 0;
                let deep = add(&mut self.depth, 1, NESTING, "components nested more than four deep");
                deep.or_else(|| add(&mut self.parts, 1, PARTS, "more than 64 parts"))
            }
            Payload::End(_) => {
                self.depth = self.depth.saturating_sub(1);
                None
            }
            Payload::ComponentImportSection(section) if self.depth == 1 => {
                for import in section {
                    self.imports.push(import?.name.name.to_owned());
                }
                None
            }
            Payload::ComponentExportSection(section) if self.depth == 1 => {
                for export in section {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Instance {
                        self.exports.push(export.name.name.to_owned());
                    }
                }
                None
            }
            Payload::ComponentTypeSection(section) => {
                for kind in section {
                    if let ComponentType::Resource { .. } = kind? {
                        return Ok(Some(OWN_HANDLES));
                    }
                }
                None
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    if let Some(what) = excluded_from_calls(&function?) {
                        return Ok(Some(what));
                    }
                }
                None
            }
            Payload::ComponentStartSection { .. } => Some("a start function"),
            Payload::InstanceSection(section) => {
                let count = section.count();
                for instance in section {
                    let is_module = matches!(instance?, Instance::Instantiate { .. });
                    self.modules.0 += u64::from(is_module);
                    self.modules.1 |= is_module && self.depth > 1;
                }
                self.instantiate(count)
            }
            Payload::ComponentInstanceSection(section) => self.instantiate(section.count()),
            other => self.visit_module(&other),
        })
    }

    /// Records one part of a module: counts, sizes and names. Returns a description of a size that passes its limit, else
    /// `None`.
    fn visit_module(&mut self, payload: &Payload<'_>) -> Option<&'static str> {
        match payload {
            Payload::ImportSection(section) => self.hold(section.count()),
            Payload::FunctionSection(section) => self.hold(section.count()),
            Payload::TableSection(section) => self.hold(section.count()),
            Payload::MemorySection(section) => self.hold(section.count()),
            Payload::GlobalSection(section) => self.hold(section.count()),
            Payload::ElementSection(section) => self.hold(section.count()),
            Payload::DataSection(section) => self.hold(section.count()),
            Payload::CustomSection(section) => has_long_name(section).then_some("a name of more than 64 KiB"),
            Payload::CodeSectionStart { count, .. } => {
                add(&mut self.functions, *count, FUNCTIONS, "more than 50,000 functions")
            }
            Payload::CodeSectionEntry(body) => {
                (body.range().len() > FUNCTION_BYTES).then_some("a function of more than 512 KiB")
            }
            _ => None,
        }
    }

    /// Adds to the items of the module that is parsed.
    fn hold(&mut self, items: u32) -> Option<&'static str> {
        self.items.0 += u64::from(items);
        self.items.1 = self.items.1.max(self.items.0);
        None
    }

    /// Returns the most bytes that the host keeps for all instances of the component's modules, beside their memories and
    /// tables: each counted as the largest module.
    pub(crate) fn instance_bytes(&self) -> u64 {
        let (outermost, nested) = self.modules;
        let instances = if nested { u64::from(INSTANCES) } else { outermost };
        instances * self.items.1 * ITEM_BYTES
    }

    /// Adds to the number of instances of the component's parts. Returns a description if it passes `INSTANCES`.
    fn instantiate(&mut self, instances: u32) -> Option<&'static str> {
        add(&mut self.instances, instances, INSTANCES, "more than 256 instances of its parts")
    }
}

/// Whether a custom section names a function at more than `FUNCTION_NAME_BYTES`. False for a section that is not of names.
fn has_long_name(section: &CustomSectionReader<'_>) -> bool {
    let KnownCustom::Name(names) = section.as_known() else { return false };
    let functions = names.into_iter().filter_map(|subsection| match subsection {
        Ok(Name::Function(functions)) => Some(functions),
        _ => None,
    });
    functions.flatten().any(|naming| naming.is_ok_and(|naming| naming.name.len() > FUNCTION_NAME_BYTES))
}

/// Adds `more` to a count, saturating. Returns `Some(what)` if the count then exceeds `limit`.
fn add(count: &mut u32, more: u32, limit: u32, what: &'static str) -> Option<&'static str> {
    *count = count.saturating_add(more);
    (*count > limit).then_some(what)
}

/// How a message calls a resource type that a component declares.
const OWN_HANDLES: &str = "a kind of handle of its own";

/// Returns a description of what a canonical function uses that the contract excludes, or `None` if it is allowed.
/// Allowed are synchronous lifts and lowers with UTF-8 text, and resource drops.
fn excluded_from_calls(function: &CanonicalFunction) -> Option<&'static str> {
    let options = match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => options,
        CanonicalFunction::ResourceDrop { .. } => return None,
        CanonicalFunction::ResourceNew { .. } | CanonicalFunction::ResourceRep { .. } => return Some(OWN_HANDLES),
        _ => return Some("something asynchronous"),
    };
    options.iter().find_map(|option| match option {
        CanonicalOption::UTF16 | CanonicalOption::CompactUTF16 => Some("text that is not UTF-8"),
        CanonicalOption::Async | CanonicalOption::Callback(_) => Some("something asynchronous"),
        CanonicalOption::CoreType(_) | CanonicalOption::Gc => Some("garbage-collected calls"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run with the default grants says to an import.
    fn answer(import: &str) -> Result<(), Error> {
        check_import(&Grants::default(), import, "calm")
    }

    #[test]
    fn weights_and_text_are_granted_by_name_only() {
        let import = "tunebox:method/weights@0.1.0";
        assert!(matches!(answer(import), Err(Error::NotGranted { by_name: true, .. })));
        assert!(check_import(&Grants::default().with("weights"), import, "calm").is_ok());
    }

    #[test]
    fn a_later_patch_of_the_contract_is_the_same_contract() {
        assert!(answer("tunebox:method/tensor@0.1.7").is_ok());
    }

    #[test]
    fn what_another_version_has_is_told_apart_from_what_is_none_of_the_contract() {
        for (name, version) in [
            ("tunebox:method/tensor@0.2.0", "0.2.0"),
            ("tunebox:method/tensor@0.10.0", "0.10.0"),
            ("tunebox:method/tensor@1.1.0", "1.1.0"),
            ("tunebox:method/tensor@0.0.9", "0.0.9"),
            ("tunebox:method/telepathy@0.1.3", "0.1.3"),
        ] {
            let wanted = format!("`calm` needs `tunebox:method@{version}`, this program keeps 0.1.0");
            assert_eq!(answer(name).unwrap_err().to_string(), wanted, "{name}");
        }
        assert!(matches!(answer("tunebox:method/telepathy@0.1.0"), Err(Error::NotGranted { by_name: false, .. })));
    }

    #[test]
    fn look_alike_names_are_foreign() {
        for name in [
            "tunebox:method/tensor@0.1",
            "tunebox:method/tensor@0.1.",
            "tunebox:method/tensor@0.1.0-rc",
            "tunebox:method/tensor@0.01.0",
            "tunebox:method/tensor@0.1.0.0",
            "tunebox:method/tensor@0.1.99999999999999999999",
            "tunebox:methods/tensor@0.1.0",
            "tensor",
            "wasi:filesystem/preopens@0.2.6",
        ] {
            assert!(matches!(answer(name), Err(Error::NotGranted { by_name: false, .. })), "{name}");
        }
    }
}
