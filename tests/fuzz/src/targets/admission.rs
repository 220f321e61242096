//! Components: what is admitted, what is refused, and that nothing but admitted bytes is compiled.
//!
//! The first byte of an input says how the rest becomes a component: as it is, grown by wasm-smith,
//! grown into a spare module of an ordinary method, or as edits of a built-in one.

use std::sync::LazyLock;

use arbitrary::Unstructured;
use tunebox_package::{builtin, component, read_manifest};
use tunebox_sandbox::{Engine, Error, Grants, Limits, admit, imports};
use wasm_smith::{Component, Config, Module};

use crate::Target;

pub(super) const TARGET: Target = Target { name: "admission", run, longest: 16 << 10, quick: 600 };

/// Bytes of the largest component that is compiled here: compiling takes a thousand times as long as refusing.
const COMPILED: usize = 8 << 10;
/// Edits of one built-in component.
const EDITS: usize = 16;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap_or_else(|error| panic!("{error}")));
/// The smallest method of the contract, behind the byte that says "as it is".
static CPU_DEFAULT: &[u8] = include_bytes!("../../corpus/admission/ordinary");

fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let made = match kind % 16 {
        0..4 => Some(rest.to_vec()),
        4 | 5 => Component::new(Config::default(), &mut Unstructured::new(rest)).ok().map(|made| made.to_bytes()),
        6 | 7 => spare_module(rest),
        8..12 => Some(edited(&CPU_DEFAULT[1..], rest)),
        place => Some(edited(bases()[usize::from(place) % bases().len()], rest)),
    };
    if let Some(bytes) = made {
        judge(&bytes);
    }
}

/// Components of the program that are small enough to be walked in no time.
fn bases() -> &'static [&'static [u8]] {
    static BASES: LazyLock<Vec<&'static [u8]>> = LazyLock::new(|| {
        let all = builtin::list().iter().chain(builtin::verifiers()).map(|found| found.bytes);
        all.filter(|bytes| bytes.len() < 60_000).collect()
    });
    &BASES
}

/// An ordinary method with one unused module more.
fn spare_module(rest: &[u8]) -> Option<Vec<u8>> {
    let module = Module::new(Config::default(), &mut Unstructured::new(rest)).ok()?.to_bytes();
    let mut bytes = CPU_DEFAULT[1..].to_vec();
    bytes.push(1);
    let mut length = module.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(module);
    Some(bytes)
}

/// A component with edits, eight bytes each: what, where, how far, with what.
fn edited(base: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for edit in edits.as_chunks::<8>().0.iter().take(EDITS) {
        let [what, a, b, c, length, x, y, z] = *edit;
        // Half of the edits go to the beginning, where types and imports are.
        let reach = if what & 0x80 == 0 { bytes.len().min(2_048) } else { bytes.len() };
        let at = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let at = if reach == 0 { 0 } else { at % reach };
        let end = (at + usize::from(length)).min(bytes.len());
        match what % 7 {
            0 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (x % 8)),
            1 => bytes[at..].iter_mut().zip([x, y, z]).for_each(|(byte, new)| *byte = new),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => drop(bytes.splice(at..at, [x, y, z])),
            5 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(end..end, piece);
            }
            _ => bytes[at..].iter_mut().zip([0xff, 0xff, 0xff, 0xff, 0x0f]).for_each(|(byte, new)| *byte = new),
        }
    }
    bytes
}

fn judge(bytes: &[u8]) {
    let _ = (read_manifest(bytes), imports(bytes));
    let (grants, limits) = (Grants::default(), Limits::default());
    let first = admit(bytes, "fuzzed", &grants, &limits);
    match &first {
        Ok(names) => {
            assert!(names.iter().all(|name| granted(name, &grants)), "{names:?}");
            let read = component::interfaces(bytes).map(|found| found.imports);
            assert!(read.as_ref().is_ok_and(|found| found == names), "{read:?} {names:?}");
            reference(bytes);
        }
        // Refused without the compiler, and with it in the same words.
        Err(refusal) => {
            let second = ENGINE.admit(bytes, "fuzzed", &grants, &limits).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(second, Err(refusal.to_string()));
        }
    }
    let verifier = Limits { verifier_component_bytes: COMPILED, ..Limits::default() };
    let _ = ENGINE.admit_verifier(bytes, "fuzzed", &verifier);
    let environment = Limits { environment_component_bytes: COMPILED, ..Limits::default() };
    let _ = ENGINE.admit_environment(bytes, "fuzzed", &environment);
    if let Ok(names) = first
        && bytes.len() <= COMPILED
    {
        match ENGINE.admit(bytes, "fuzzed", &grants, &limits) {
            Ok(method) => assert_eq!(method.imports(), names),
            Err(error) => assert!(matches!(error, Error::Mismatch { .. } | Error::Malformed { .. }), "{error:?}"),
        }
    }
}

/// Whether a name is `tunebox:method/INTERFACE@0.2.…` with an interface that is granted.
fn granted(name: &str, grants: &Grants) -> bool {
    let interface = name.strip_prefix("tunebox:method/").and_then(|rest| rest.split_once("@0.2."));
    interface.is_some_and(|(interface, _)| grants.interfaces.contains(interface))
}

/// What every admitted component is, told by another walk over its bytes.
fn reference(bytes: &[u8]) {
    use wasmparser::{Parser, Payload, Validator, WasmFeatures};
    assert!(Validator::new_with_features(WasmFeatures::all()).validate_all(bytes).is_ok(), "it is not valid");
    let mut memories = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::MemorySection(section)) => memories.extend(section.into_iter().flatten()),
            Ok(Payload::TagSection(_)) => panic!("it declares exceptions"),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(memories.iter().all(|memory| !memory.memory64 && !memory.shared), "{memories:?}");
}
