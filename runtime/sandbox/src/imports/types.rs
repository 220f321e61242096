//! Implements `wit/types.wit`, kept: plain types, and how a refusal becomes an error or a trap.

use crate::bindings::types::{self, Host};
use crate::refusal::Refusal;
use crate::state::HostContext;

impl Host for HostContext<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        match refusal {
            Refusal::Error(error) => {
                self.deny(&error.message);
                Ok(error)
            }
            Refusal::Trap(error) => Err(error),
        }
    }
}
