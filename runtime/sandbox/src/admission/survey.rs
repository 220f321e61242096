//! Parses the bytes of a component once, and rejects what the contract excludes: most WebAssembly features, sizes and
//! counts past a limit, own resources, string encodings other than UTF-8, and anything asynchronous.

use std::time::Duration;

use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;
use wasmparser::types::Types;
use wasmparser::{
    BinaryReaderError, CanonicalFunction, CanonicalOption, ComponentExternalKind, ComponentType, CustomSectionReader,
    Instance, KnownCustom, Name, Parser, Payload, Validator, WasmFeatures,
};

use crate::error::{BEFORE, Error};

/// The deepest nesting of components and modules.
const MAX_NESTING: u32 = 4;
/// The most components and modules in one component.
const MAX_PARTS: u32 = 64;
/// The most instances of components and modules in one component.
const MAX_INSTANCES: u32 = 256;
/// The most functions in all modules of a component together.
const MAX_FUNCTIONS: u32 = 50_000;
/// The most bytes that the host keeps in an instance for each function, global, import, table and segment of its
/// module.
const ITEM_BYTES: u64 = 48;
/// The longest name of a function, in bytes: the host copies the names in the call stack when a method is stopped.
const MAX_FUNCTION_NAME_BYTES: usize = 64 << 10;
/// How long validation may take. It checks a type with all its parts wherever the type is used, so a small component
/// can take hours.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest function body, in bytes.
const MAX_FUNCTION_BYTES: usize = 512 << 10;
/// How a message calls a resource type that a component declares.
const OWN_RESOURCES: &str = "a kind of handle of its own";

/// Imports, exports and counts that one parse of a component collects.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The full names of its imports.
    pub(crate) imports: Vec<String>,
    /// The full names of the interfaces that it exports.
    pub(crate) exports: Vec<String>,
    /// How many components and modules are around the part that is being parsed, itself included; 1 in the outermost.
    depth: u32,
    parts: u32,
    instances: u32,
    functions: u32,
    /// How many items (functions, globals, imports and so on) the module that is being parsed has.
    module_items: u64,
    /// How many items the module with the most items has.
    max_module_items: u64,
    /// How many instances of modules the outermost component has.
    module_instances: u64,
    /// Whether components inside the outermost one instantiate modules.
    has_nested_instances: bool,
}

/// Checks that a component has at most `limit` bytes, then collects its imports and exports as [`survey`] does. Errors:
/// [`Error::TooLarge`], and those of [`survey`].
pub(crate) fn examine(bytes: &[u8], name: &str, limit: usize) -> Result<Survey, Error> {
    if bytes.len() > limit {
        return Err(Error::TooLarge { method: name.into(), size: bytes.len() as u64, limit: limit as u64 });
    }
    survey(bytes, name)
}

/// Runs wasmparser's full validation of a component with the features of [`allowed_features`] and returns its types.
/// Errors: [`Error::Malformed`] for bytes that are not valid, or if validation takes longer than 5 s
/// ([`VALIDATION_TIMEOUT`]).
pub(crate) fn validate(bytes: &[u8], name: &str) -> Result<Types, Error> {
    validate_within(VALIDATION_TIMEOUT, bytes, name)
}

/// Runs wasmparser's full validation of a component with the features of [`allowed_features`], on a thread of its own,
/// and returns its types. Fails if that takes longer than `limit`; the thread then runs on.
pub(super) fn validate_within(limit: Duration, bytes: &[u8], name: &str) -> Result<Types, Error> {
    let bytes = bytes.to_vec();
    let validate = move || Validator::new_with_features(allowed_features()).validate_all(&bytes);
    match bounded::run_with_timeout(limit, validate) {
        Ok(types) => types.map_err(|error| malformed(name, &error)),
        Err(error) => Err(Error::malformed(name, format!("its types cannot be checked: {error}"))),
    }
}

/// Builds the error for bytes that the parser or validator rejected: its message with the byte offset.
fn malformed(name: &str, error: &BinaryReaderError) -> Error {
    Error::malformed(name, format!("{} (at byte {})", error.message(), error.offset()))
}

/// Returns the only WebAssembly features that a method may use: those that compilers for `wasm32-unknown-unknown` emit.
fn allowed_features() -> WasmFeatures {
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

/// Collects a component's imports, exports and sizes in one parse, without full validation. `method` names the
/// component in errors. Errors: [`Error::Malformed`] for bytes that are no component or cannot be parsed;
/// [`Error::NotAdmitted`] for the first thing that the contract excludes: more than 4 levels of nesting, 64 parts, 256
/// instances, 50,000 functions, 512 KiB in a function or 64 KiB in a function's name; own resources, a start function,
/// text other than UTF-8, asynchronous or garbage-collected calls.
pub(super) fn survey(bytes: &[u8], method: &str) -> Result<Survey, Error> {
    if !bytes.starts_with(b"\0asm") {
        return Err(Error::malformed(method, "it does not begin like WebAssembly"));
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Error::malformed(method, "it is a core module, not a component"));
    }
    let mut survey = Survey::default();
    let mut parser = Parser::new(0);
    parser.set_features(allowed_features());
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
    /// Records one part of the component: nesting depth, counts, the names of its outermost imports, and of the
    /// interfaces that it exports. Returns a description of the first thing in this part that the contract excludes or
    /// that passes a size limit, else `None`.
    fn visit(&mut self, payload: Payload<'_>) -> wasmparser::Result<Option<&'static str>> {
        Ok(match payload {
            Payload::Version { .. } => {
                self.module_items = 0;
                let deep = add_within_limit(&mut self.depth, 1, MAX_NESTING, "components nested more than four deep");
                deep.or_else(|| add_within_limit(&mut self.parts, 1, MAX_PARTS, "more than 64 parts"))
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
                        return Ok(Some(OWN_RESOURCES));
                    }
                }
                None
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    if let Some(what) = find_excluded_feature(&function?) {
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
                    self.module_instances += u64::from(is_module);
                    self.has_nested_instances |= is_module && self.depth > 1;
                }
                self.count_instances(count)
            }
            Payload::ComponentInstanceSection(section) => self.count_instances(section.count()),
            other => self.visit_module(&other),
        })
    }

    /// Records one section of a module, or one function body: adds its items and functions to the counts, and checks
    /// the sizes of bodies and names. Returns a description of what exceeds its limit, else `None`.
    fn visit_module(&mut self, payload: &Payload<'_>) -> Option<&'static str> {
        match payload {
            Payload::ImportSection(section) => self.count_items(section.count()),
            Payload::FunctionSection(section) => self.count_items(section.count()),
            Payload::TableSection(section) => self.count_items(section.count()),
            Payload::MemorySection(section) => self.count_items(section.count()),
            Payload::GlobalSection(section) => self.count_items(section.count()),
            Payload::ElementSection(section) => self.count_items(section.count()),
            Payload::DataSection(section) => self.count_items(section.count()),
            Payload::CustomSection(section) => has_long_name(section).then_some("a name of more than 64 KiB"),
            Payload::CodeSectionStart { count, .. } => {
                add_within_limit(&mut self.functions, *count, MAX_FUNCTIONS, "more than 50,000 functions")
            }
            Payload::CodeSectionEntry(body) => {
                (body.range().len() > MAX_FUNCTION_BYTES).then_some("a function of more than 512 KiB")
            }
            _ => None,
        }
    }

    /// Adds to the number of items of the module that is being parsed, and raises that of the largest module. Items
    /// have no limit of their own, so it always returns `None`, "no limit exceeded", as the other counts do within
    /// their limits.
    fn count_items(&mut self, items: u32) -> Option<&'static str> {
        self.module_items += u64::from(items);
        self.max_module_items = self.max_module_items.max(self.module_items);
        None
    }

    /// Returns the most bytes that the host keeps for all instances of the component's modules, beside their memories
    /// and tables: each counted as the module with the most items. Counts `MAX_INSTANCES` instances if components
    /// inside the outermost one instantiate modules.
    pub(crate) fn instance_bytes(&self) -> u64 {
        let instances = if self.has_nested_instances { u64::from(MAX_INSTANCES) } else { self.module_instances };
        instances * self.max_module_items * ITEM_BYTES
    }

    /// Adds to the number of instances of the component's parts. Returns a description if it passes `MAX_INSTANCES`.
    fn count_instances(&mut self, instances: u32) -> Option<&'static str> {
        add_within_limit(&mut self.instances, instances, MAX_INSTANCES, "more than 256 instances of its parts")
    }
}

/// Whether a custom section is a name section with a function name longer than `MAX_FUNCTION_NAME_BYTES`. False for
/// every other custom section.
fn has_long_name(section: &CustomSectionReader<'_>) -> bool {
    let KnownCustom::Name(names) = section.as_known() else { return false };
    let functions = names.into_iter().filter_map(|subsection| match subsection {
        Ok(Name::Function(functions)) => Some(functions),
        _ => None,
    });
    functions.flatten().any(|naming| naming.is_ok_and(|naming| naming.name.len() > MAX_FUNCTION_NAME_BYTES))
}

/// Adds `more` to a count, saturating. Returns `Some(what)` if the count then exceeds `limit`.
fn add_within_limit(count: &mut u32, more: u32, limit: u32, what: &'static str) -> Option<&'static str> {
    *count = count.saturating_add(more);
    (*count > limit).then_some(what)
}

/// Returns a description of what a canonical function uses that the contract excludes, or `None` if it is allowed.
/// Allowed are synchronous lifts and lowers with UTF-8 text, and resource drops.
fn find_excluded_feature(function: &CanonicalFunction) -> Option<&'static str> {
    let options = match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => options,
        CanonicalFunction::ResourceDrop { .. } => return None,
        CanonicalFunction::ResourceNew { .. } | CanonicalFunction::ResourceRep { .. } => return Some(OWN_RESOURCES),
        _ => return Some("something asynchronous"),
    };
    options.iter().find_map(|option| match option {
        CanonicalOption::UTF16 | CanonicalOption::CompactUTF16 => Some("text that is not UTF-8"),
        CanonicalOption::Async | CanonicalOption::Callback(_) => Some("something asynchronous"),
        CanonicalOption::CoreType(_) | CanonicalOption::Gc => Some("garbage-collected calls"),
        _ => None,
    })
}
