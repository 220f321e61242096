//! What a process may ask for: every function of every interface that `wit/` lets a method import.
//!
//! The table and the types in it are written by the build script, from `wit/` alone; each entry reads the arguments,
//! calls the function of `imports` that a component would reach, and writes what it answers.

use std::collections::BTreeSet;

use super::wire::{Encode, Input};
use crate::bindings::types;
use crate::refusal::Refusal;
use crate::state::Crossing;

/// Reads the arguments of a function, calls it, writes its result.
type Call = fn(&mut Crossing<'_>, &mut Input<'_>) -> wasmtime::Result<Vec<u8>>;

/// A function of the contract.
#[derive(Clone, Copy)]
pub(crate) struct Import {
    /// Interface and function as a request names them: `tensor/[method]tensor.exp`.
    pub(crate) name: &'static str,
    /// The same way to it that a component has.
    pub(crate) call: Call,
}

impl Import {
    /// The function of a name, if the contract has one.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let place = IMPORTS.binary_search_by(|import| import.name.cmp(name)).ok()?;
        IMPORTS.get(place).copied()
    }

    /// The interface that it belongs to.
    pub(crate) fn interface(self) -> &'static str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// The interfaces that functions can be asked of, each once.
pub(crate) fn interfaces() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<&str> = IMPORTS.iter().map(|import| import.interface()).collect();
    names.into_iter()
}

/// The bytes of a result that cannot be an error of the contract.
fn plain(answer: wasmtime::Result<impl Encode>) -> wasmtime::Result<Vec<u8>> {
    let mut output = Vec::new();
    answer?.encode(&mut output);
    Ok(output)
}

/// The bytes of a result that may be one.
fn fallible(host: &mut Crossing<'_>, answer: Result<impl Encode, Refusal>) -> wasmtime::Result<Vec<u8>> {
    let answer = match answer {
        Ok(value) => Ok(value),
        Err(refusal) => Err(types::Host::convert_error(host, refusal)?),
    };
    plain(Ok(answer))
}

include!(concat!(env!("OUT_DIR"), "/dispatch.rs"));

#[cfg(test)]
mod tests {
    use tunebox_compute::budget::Ledger;

    use super::*;
    use crate::cause::Cause;
    use crate::session::SessionSettings;
    use crate::state::State;

    fn ask(state: &mut State, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> wasmtime::Result<Vec<u8>> {
        let mut arguments = Vec::new();
        write(&mut arguments);
        (Import::named(name).unwrap().call)(&mut Crossing::new(state), &mut Input::new(&arguments))
    }

    #[test]
    fn the_table_is_in_order_and_has_what_the_linker_has() {
        assert!(IMPORTS.is_sorted_by_key(|import| import.name));
        assert!(IMPORTS.len() > 100, "{}", IMPORTS.len());
        for name in
            ["run/log", "tensor/[constructor]scope", "tensor/[resource-drop]tensor", "model/[method]scores.top-one"]
        {
            assert_eq!(Import::named(name).unwrap().name, name);
        }
        assert!(Import::named("tensor/add ").is_none() && Import::named("").is_none());
    }

    #[test]
    fn a_request_reaches_the_function_that_a_component_reaches() {
        let mut state = State::new(SessionSettings::default(), Ledger::new(1 << 20));
        state.meters.begin(f64::INFINITY);
        let made = ask(&mut state, "tensor/full", |to| {
            vec![2_u32, 2].encode(to);
            1.5_f32.encode(to);
        });
        let made = made.unwrap();
        assert_eq!(made.first(), Some(&0));
        let handle: u32 = Input::new(&made[1..]).take().unwrap();

        let numbers = ask(&mut state, "tensor/[method]tensor.copy-to-list", |to| handle.encode(to)).unwrap();
        let numbers: Result<Vec<f32>, u8> = Input::new(&numbers).take().unwrap();
        assert_eq!(numbers.unwrap(), [1.5; 4]);
        assert_eq!(state.meters.counts().host_calls, 2);

        ask(&mut state, "tensor/[resource-drop]tensor", |to| handle.encode(to)).unwrap();
        let gone = ask(&mut state, "tensor/[method]tensor.exp", |to| handle.encode(to)).unwrap_err();
        assert!(matches!(Cause::of(&gone, 0), Cause::Protocol(_)));
    }

    #[test]
    fn a_handle_of_another_kind_or_a_byte_too_many_ends_the_method() {
        let mut state = State::new(SessionSettings::default(), Ledger::new(1 << 20));
        state.meters.begin(f64::INFINITY);
        let scope = ask(&mut state, "tensor/[constructor]scope", |_| {}).unwrap();
        let other = ask(&mut state, "tensor/[method]tensor.exp", |to| to.extend_from_slice(&scope)).unwrap_err();
        let longer = ask(&mut state, "run/position", |to| to.push(0)).unwrap_err();
        for error in [other, longer] {
            assert!(matches!(Cause::of(&error, 0), Cause::Protocol(_)), "{error}");
        }
    }

    #[test]
    fn an_error_that_a_method_may_act_on_is_an_answer() {
        let mut state = State::new(SessionSettings::default(), Ledger::new(1 << 20));
        state.meters.begin(f64::INFINITY);
        let refused = ask(&mut state, "run/metric", |to| {
            "loss".encode(to);
            1.0_f32.encode(to);
        });
        let answer: Result<(), types::Error> = Input::new(&refused.unwrap()).take().unwrap();
        assert!(answer.unwrap_err().message.contains("is not a metric"));
    }
}
