//! The requests that a native process can make: every function of every interface that `wit/` lets a method import.
//!
//! The build script writes the table and the codecs of its types from `wit/`: each entry reads the arguments, calls the
//! function of `imports` that a component would reach, and writes the answer.

use std::collections::BTreeSet;

use super::codec::{Decode, Encode, Malformed, Reader, cases, record};
use super::resource::{end, read, read_owned};
use crate::bindings::types;
use crate::refusal::Refusal;
use crate::state::HostContext;

/// Decodes the arguments of a function, calls it, and encodes its result.
type Call = fn(&mut HostContext<'_>, &mut Reader<'_>) -> wasmtime::Result<Vec<u8>>;

/// A function of the contract.
#[derive(Clone, Copy)]
pub(crate) struct Import {
    /// Interface and function as a request names them: `tensor/[method]tensor.exp`.
    pub(crate) name: &'static str,
    /// Calls the function of `imports` that a component reaches.
    pub(crate) call: Call,
}

impl Import {
    /// Finds a function by its name in requests, such as `tensor/[method]tensor.exp`; `None` if the contract has no
    /// such function.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let place = IMPORTS.binary_search_by(|import| import.name.cmp(name)).ok()?;
        IMPORTS.get(place).copied()
    }

    /// Returns the interface that the function belongs to, such as `tensor`.
    pub(crate) fn interface(self) -> &'static str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// Returns the interfaces whose functions a process can request, each once, in alphabetical order.
pub(crate) fn interfaces() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<&str> = IMPORTS.iter().map(|import| import.interface()).collect();
    names.into_iter()
}

/// Encodes the result of a function without a `result` in WIT, as the value alone. An error ends the method.
fn plain(answer: wasmtime::Result<impl Encode>) -> wasmtime::Result<Vec<u8>> {
    let mut output = Vec::new();
    answer?.encode(&mut output);
    Ok(output)
}

/// Encodes the result of a function with a `result` in WIT: an error that the method may act on is encoded as `Err` and
/// noted as the host's last refusal; a trap ends the method.
fn fallible(host: &mut HostContext<'_>, answer: Result<impl Encode, Refusal>) -> wasmtime::Result<Vec<u8>> {
    let answer = match answer {
        Ok(value) => Ok(value),
        Err(refusal) => Err(types::Host::convert_error(host, refusal)?),
    };
    plain(Ok(answer))
}

include!(concat!(env!("OUT_DIR"), "/requests.rs"));

#[cfg(test)]
mod tests {
    use tunebox_compute::budget::Budget;

    use crate::train_state::tests::shared;
    use wasmtime::component::types::ComponentItem;
    use wasmtime::component::{Component, Linker};
    use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
    use wit_parser::{ManglingAndAbi, Resolve};

    use super::*;
    use crate::bindings::Method;
    use crate::cause::Cause;
    use crate::compile::CodeOptions;
    use crate::engine::wasmtime_engine;
    use crate::grants::interface_of;
    use crate::limits::Limits;
    use crate::settings::SessionSettings;
    use crate::state::{HostContexts, State};

    fn state() -> State {
        let mut state = State::new(SessionSettings::default(), Budget::new(1 << 20), shared());
        state.meters.begin(f64::INFINITY);
        state
    }

    fn ask(state: &mut State, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> wasmtime::Result<Vec<u8>> {
        let mut arguments = Vec::new();
        write(&mut arguments);
        (Import::find(name).unwrap().call)(&mut HostContext::new(state), &mut Reader::new(&arguments))
    }

    /// A component that imports every function of every interface that a method may import.
    fn wanting_everything() -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap();
        let world = resolve.select_world(&[package], Some("method")).unwrap();
        let mut module = dummy_module(&resolve, world, ManglingAndAbi::Standard32);
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    /// The functions that such a component gets from the linker, as a request names them.
    fn linked() -> BTreeSet<String> {
        let engine = wasmtime_engine(CodeOptions::default()).unwrap();
        let component = Component::new(&engine, wanting_everything()).unwrap();
        let mut linker = Linker::<State>::new(&engine);
        Method::add_to_linker::<State, HostContexts>(&mut linker, |state| HostContext::new(state)).unwrap();
        // What the linker lacks, or has with another type, is an error.
        let linked = linker.substituted_component_type(&component).unwrap();
        let (mut names, mut resources) = (BTreeSet::new(), Vec::new());
        for (import, item) in linked.imports(&engine) {
            let interface = interface_of(import).unwrap();
            let ComponentItem::ComponentInstance(instance) = item.ty else { panic!("`{import}` is no interface") };
            for (name, item) in instance.exports(&engine) {
                match item.ty {
                    ComponentItem::ComponentFunc(_) => _ = names.insert(format!("{interface}/{name}")),
                    // Whoever uses a resource names it again.
                    ComponentItem::Resource(resource) if !resources.contains(&resource) => {
                        resources.push(resource);
                        names.insert(format!("{interface}/[resource-drop]{name}"));
                    }
                    _ => {}
                }
            }
        }
        names
    }

    #[test]
    fn the_table_has_what_the_linker_has_and_finds_it() {
        let table: BTreeSet<String> = IMPORTS.iter().map(|import| import.name.to_owned()).collect();
        assert_eq!(table, linked());
        assert!(table.iter().all(|name| Import::find(name).is_some_and(|import| import.name == name)));
        assert!(Import::find("tensor/add ").is_none() && Import::find("").is_none());
    }

    #[test]
    fn a_request_reaches_the_function_that_a_component_reaches() {
        let mut state = state();
        let made = ask(&mut state, "tensor/full", |to| {
            vec![2_u32, 2].encode(to);
            1.5_f32.encode(to);
        });
        let made = made.unwrap();
        assert_eq!(made.first(), Some(&0));
        let handle: u32 = Reader::new(&made[1..]).read().unwrap();

        let numbers = ask(&mut state, "tensor/[method]tensor.copy-to-list", |to| handle.encode(to)).unwrap();
        let numbers: Result<Vec<f32>, u8> = Reader::new(&numbers).read().unwrap();
        assert_eq!(numbers.unwrap(), [1.5; 4]);
        assert_eq!(state.meters.counts().host_calls, 2);

        ask(&mut state, "tensor/[resource-drop]tensor", |to| handle.encode(to)).unwrap();
        let gone = ask(&mut state, "tensor/[method]tensor.exp", |to| handle.encode(to)).unwrap_err();
        assert!(matches!(Cause::from_engine_error(&gone, &Limits::default(), 0), Cause::Protocol(_)));
    }

    #[test]
    fn a_handle_of_another_kind_or_a_byte_too_many_ends_the_method() {
        let mut state = state();
        let scope = ask(&mut state, "tensor/[constructor]scope", |_| {}).unwrap();
        let other = ask(&mut state, "tensor/[method]tensor.exp", |to| to.extend_from_slice(&scope)).unwrap_err();
        let longer = ask(&mut state, "run/position", |to| to.push(0)).unwrap_err();
        for error in [other, longer] {
            assert!(matches!(Cause::from_engine_error(&error, &Limits::default(), 0), Cause::Protocol(_)), "{error}");
        }
    }

    #[test]
    fn an_error_that_a_method_may_act_on_is_an_answer() {
        let mut state = state();
        let refused = ask(&mut state, "run/metric", |to| {
            "loss".encode(to);
            1.0_f32.encode(to);
        });
        let answer: Result<(), types::Error> = Reader::new(&refused.unwrap()).read().unwrap();
        assert!(answer.unwrap_err().message.contains("is not a metric"));
    }
}
