//! What a component is allowed to be, checked on its bytes before anything compiles them.
//!
//! The bytes are validated against a small set of features, walked once for what the contract
//! leaves out (own resources, other string encodings, anything asynchronous), and the names of
//! imports, their functions and exports are compared with the grants and with the version of the contract that this host
//! keeps. Types are compared later, by the linker.

use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::Types;
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentExternalKind, ComponentType, Encoding, Parser, Payload, Validator,
    WasmFeatures,
};

use crate::costs::cost_of;
use crate::error::{Error, Sign};
use crate::grants::{Answer, CONTRACT, Grants, PACKAGE, TRAINING, named};
use crate::limits::Limits;
use crate::printable::printable;

/// Components and modules inside one another.
const NESTING: usize = 4;
/// Components and modules altogether.
const PARTS: usize = 64;
/// Instances of components and modules, altogether.
const INSTANCES: u32 = 256;
/// Functions of all modules together.
const FUNCTIONS: u32 = 50_000;
/// Bytes of one function.
const FUNCTION_BYTES: usize = 512 << 10;

/// What a walk over the bytes finds.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The full names of its imports.
    pub(crate) imports: Vec<String>,
    /// The full names of the interfaces that it exports.
    pub(crate) exports: Vec<String>,
    depth: usize,
    parts: usize,
    instances: u32,
    functions: u32,
}

/// Why a walk stops.
#[derive(Debug)]
enum Objection {
    Malformed(String),
    LeftOut(&'static str),
}

impl From<wasmparser::BinaryReaderError> for Objection {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(printable(&format!("{} (at byte {})", error.message(), error.offset()), 300))
    }
}

impl Objection {
    fn of(self, method: &str) -> Error {
        let method = method.to_owned();
        match self {
            Self::Malformed(problem) => Error::Malformed { method, problem },
            Self::LeftOut(what) => Error::LeftOut { method, what },
        }
    }
}

/// The full names of everything that a component imports, in its order; without compiling it.
///
/// # Errors
/// [`Error::Malformed`] or [`Error::LeftOut`] for bytes that are no component of this contract.
pub fn imports(bytes: &[u8]) -> Result<Vec<String>, Error> {
    Ok(survey(bytes).map_err(|objection| objection.of("this file"))?.imports)
}

/// Everything that is checked before compiling: size, form, grants. Returns the full names of the imports.
///
/// # Errors
/// Every refusal that needs no compiler.
pub fn admit(bytes: &[u8], method: &str, grants: &Grants, limits: &Limits) -> Result<Vec<String>, Error> {
    let survey = examine(bytes, method, limits.component_bytes)?;
    for import in &survey.imports {
        answer(grants.answer(import), method, import)?;
    }
    if let Some(missing) = unoffered(&survey, method, TRAINING)? {
        return Err(Error::NoTraining { method: method.into(), missing });
    }
    let types = validate(bytes, method)?;
    survey.imports.iter().try_for_each(|import| functions(&types, import, method))?;
    Ok(survey.imports)
}

/// The full name of an interface that a component must export, unless it does.
/// Errors: it exports that interface of a version of the contract that is not kept here.
pub(crate) fn unoffered(survey: &Survey, name: &str, interface: &str) -> Result<Option<String>, Error> {
    let offered = survey.exports.iter().filter_map(|export| {
        let (found, version) = named(export)?;
        (found == interface).then_some((export, version))
    });
    let mut other = None;
    for (export, version) in offered {
        if version.is_of_track(CONTRACT) {
            return Ok(None);
        }
        other = Some((Sign::Export(printable(export, 200)), version));
    }
    match other {
        Some((sign, wants)) => Err(Error::OtherVersion { method: name.to_owned(), wants, sign }),
        None => Ok(Some(format!("{PACKAGE}/{interface}@{CONTRACT}"))),
    }
}

/// Whether this host keeps every function that a component wants of an import that it is granted. Every one of them is a
/// row of the table of costs.
fn functions(types: &Types, import: &str, method: &str) -> Result<(), Error> {
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
        let (method, function) = (method.to_owned(), printable(&function, 200));
        return Err(match wants > CONTRACT {
            true => Error::OtherVersion { method, wants, sign: Sign::Function(printable(import, 200), function) },
            false => Error::Mismatch { method, difference: format!("`{PACKAGE}@{CONTRACT}` has no `{function}`") },
        });
    }
    Ok(())
}

/// How the table of costs calls a function: `[method]tensor.add` of `tensor` is `tensor.tensor.add`.
fn row(interface: &str, export: &str) -> String {
    match export.strip_prefix("[constructor]") {
        Some(resource) => format!("{interface}.{resource}.constructor"),
        None => format!("{interface}.{}", export.rsplit(']').next().unwrap_or(export)),
    }
}

/// The size, and what a walk over the bytes finds.
pub(crate) fn examine(bytes: &[u8], name: &str, limit: usize) -> Result<Survey, Error> {
    let size = bytes.len() as u64;
    if bytes.len() > limit {
        return Err(Error::TooLarge { method: name.into(), size, limit: limit as u64 });
    }
    survey(bytes).map_err(|objection| objection.of(name))
}

/// Everything that only a validator can see.
pub(crate) fn validate(bytes: &[u8], name: &str) -> Result<Types, Error> {
    let validated = Validator::new_with_features(features()).validate_all(bytes);
    validated.map_err(|error| Objection::from(error).of(name))
}

fn answer(answer: Answer, method: &str, import: &str) -> Result<(), Error> {
    let (method, import) = (method.to_owned(), printable(import, 200));
    match answer {
        Answer::Granted => Ok(()),
        Answer::NotOffered => Err(Error::NotOffered { method, import }),
        Answer::Foreign | Answer::Unknown => Err(Error::NotGranted { method, import, by_name: false }),
        Answer::NotGranted => Err(Error::NotGranted { method, import, by_name: true }),
        Answer::OtherVersion(wants) => Err(Error::OtherVersion { method, wants, sign: Sign::Import(import) }),
    }
}

/// The only features that a method may use: what compilers for `wasm32-unknown-unknown` emit.
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

/// Walks the bytes once, without validating what only the validator can see.
fn survey(bytes: &[u8]) -> Result<Survey, Objection> {
    if !bytes.starts_with(b"\0asm") {
        return Err(Objection::Malformed("it does not begin like WebAssembly".into()));
    }
    let mut survey = Survey::default();
    let mut parser = Parser::new(0);
    parser.set_features(features());
    for payload in parser.parse_all(bytes) {
        survey.visit(payload?)?;
    }
    Ok(survey)
}

impl Survey {
    fn visit(&mut self, payload: Payload<'_>) -> Result<(), Objection> {
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } if self.parts == 0 => {
                return Err(Objection::Malformed("it is a core module, not a component".into()));
            }
            Payload::Version { .. } => self.enter()?,
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if self.depth == 1 => {
                for import in section {
                    self.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if self.depth == 1 => {
                for export in section {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Instance {
                        self.exports.push(export.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentTypeSection(section) => {
                for kind in section {
                    if let ComponentType::Resource { .. } = kind? {
                        return Err(Objection::LeftOut("a kind of handle of its own"));
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    canonical(&function?)?;
                }
            }
            Payload::ComponentStartSection { .. } => return Err(Objection::LeftOut("a start function")),
            Payload::InstanceSection(section) => self.instantiate(section.count())?,
            Payload::ComponentInstanceSection(section) => self.instantiate(section.count())?,
            Payload::CodeSectionStart { count, .. } => self.count(count)?,
            Payload::CodeSectionEntry(body) if body.range().len() > FUNCTION_BYTES => {
                return Err(Objection::LeftOut("a function of more than 512 KiB"));
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Objection> {
        self.depth += 1;
        self.parts += 1;
        if self.depth > NESTING {
            return Err(Objection::LeftOut("components nested more than four deep"));
        }
        if self.parts > PARTS {
            return Err(Objection::LeftOut("more than 64 parts"));
        }
        Ok(())
    }

    fn instantiate(&mut self, instances: u32) -> Result<(), Objection> {
        self.instances = self.instances.saturating_add(instances);
        if self.instances > INSTANCES {
            return Err(Objection::LeftOut("more than 256 instances of its parts"));
        }
        Ok(())
    }

    fn count(&mut self, functions: u32) -> Result<(), Objection> {
        self.functions = self.functions.saturating_add(functions);
        if self.functions > FUNCTIONS {
            return Err(Objection::LeftOut("more than 50,000 functions"));
        }
        Ok(())
    }
}

/// Only plain calls in UTF-8, and drops, cross the wall.
fn canonical(function: &CanonicalFunction) -> Result<(), Objection> {
    let options = match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => options,
        CanonicalFunction::ResourceDrop { .. } => return Ok(()),
        CanonicalFunction::ResourceNew { .. } | CanonicalFunction::ResourceRep { .. } => {
            return Err(Objection::LeftOut("a kind of handle of its own"));
        }
        _ => return Err(Objection::LeftOut("something asynchronous")),
    };
    for option in options {
        match option {
            CanonicalOption::UTF16 | CanonicalOption::CompactUTF16 => {
                return Err(Objection::LeftOut("text that is not UTF-8"));
            }
            CanonicalOption::Async | CanonicalOption::Callback(_) => {
                return Err(Objection::LeftOut("something asynchronous"));
            }
            CanonicalOption::CoreType(_) | CanonicalOption::Gc => {
                return Err(Objection::LeftOut("garbage-collected calls"));
            }
            _ => {}
        }
    }
    Ok(())
}
