//! What a component is allowed to be, checked on its bytes before anything compiles them.
//!
//! The bytes are validated against a small set of features, walked once for what the contract
//! leaves out (own resources, other string encodings, anything asynchronous), and the names of
//! imports and exports are compared with the grants. Types are compared later, by the linker.

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentExternalKind, ComponentType, Encoding, Parser, Payload, Validator,
    WasmFeatures,
};

use crate::error::Error;
use crate::grants::{Answer, Grants, PACKAGE, TRACK, TRAINING, interface_of};
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
    if !survey.exports.iter().any(|export| interface_of(export) == Some(TRAINING)) {
        let missing = format!("{PACKAGE}/{TRAINING}@{TRACK}.0");
        return Err(Error::NoTraining { method: method.into(), missing });
    }
    validate(bytes, method)?;
    Ok(survey.imports)
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
pub(crate) fn validate(bytes: &[u8], name: &str) -> Result<(), Error> {
    let validated = Validator::new_with_features(features()).validate_all(bytes);
    validated.map(|_| ()).map_err(|error| Objection::from(error).of(name))
}

fn answer(answer: Answer, method: &str, import: &str) -> Result<(), Error> {
    let (method, import) = (method.to_owned(), printable(import, 200));
    match answer {
        Answer::Granted => Ok(()),
        Answer::NotOffered => Err(Error::NotOffered { method, import }),
        Answer::Foreign | Answer::Unknown => Err(Error::NotGranted { method, import, by_name: false }),
        Answer::NotGranted => Err(Error::NotGranted { method, import, by_name: true }),
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
