//! Code that this program compiled before, made runnable again: the one unsafe step of the sandbox.
//!
//! Loading code is as powerful as running it, so it must be this program's own. `compile` sees to
//! that; bytes of a package never come here.
#![expect(unsafe_code, reason = "the engine cannot tell whether bytes are code that it made itself")]

use wasmtime::component::Component;

/// Code that an engine of this program compiled, and that no other program could change since.
///
/// Made in two places only: from an entry of the private cache whose digest holds, and from the pipe of a child
/// of this program that compiled it.
pub(crate) struct PrecompiledCode(Vec<u8>);

impl PrecompiledCode {
    /// Wraps bytes as trusted code. The caller guarantees that this program compiled them and they did not change
    /// since.
    pub(crate) fn from_own_code(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the serialized code.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Deserializes the code into a component that can be instantiated. Errors: code of another version of wasmtime, or
    /// for other settings or another processor than `engine`'s.
    pub(crate) fn load(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: by the promise of `PrecompiledCode` these bytes came out of `Engine::precompile_component` or
        // `Component::serialize` of this program, unchanged; the engine itself checks version and settings.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}
