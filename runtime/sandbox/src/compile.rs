//! Turns the bytes of a component into code: from the cache, compiled here, or compiled in a child process under
//! limits.
//!
//! A component can be small and take very long to compile, which wasmtime does not count as a fault of its own. So
//! components that are not built into this program are compiled by a short-lived child process with limits on its time
//! and memory, which returns the code. Built-in components are compiled here.

mod process;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tunebox_compute::code_cache::CodeCache;
use tunebox_foundation::hexadecimal::hexadecimal;
use wasmtime::component::Component;

pub use process::compile_for_parent;

use crate::child::Program;
use crate::error::Error;
use crate::limits::Limits;
use crate::precompiled::PrecompiledCode;

/// Part of the key of cached code: changes whenever the engine's settings change in a way that their own hash does not
/// show.
const SETTINGS_VERSION: u32 = 1;

/// The largest entry of the cache, and all entries together, in bytes.
const MAX_CACHE_BYTES: u64 = 256 << 20;

/// Options of compiled code that the component itself does not set.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CodeOptions {
    /// Whether errors and profiles show files and lines, from the debug sections of the component. Parsing those takes
    /// time and memory that no limit bounds, so only for a component whose author asks for it. If false, they are not
    /// read at all.
    pub source_lines: bool,
    /// Whether the code counts the instructions that it executes, for [`Limits::step_instructions`] and
    /// [`Limits::verifier_instructions`](crate::Limits::verifier_instructions). Such code is slower.
    pub count_instructions: bool,
}

/// How components become code. The default caches nothing and compiles in this process.
#[derive(Clone, Debug, Default)]
pub struct Compiling {
    /// The folder of the code cache, if there is one.
    pub cache: Option<PathBuf>,
    /// The program that compiles components that are not built in, by calling [`compile_for_parent`].
    pub program: Option<Program>,
    /// Limits, of which `compile-seconds` and `compile-memory` bound that program.
    pub limits: Limits,
    /// Options of the compiled code.
    pub code: CodeOptions,
}

/// Turns admitted components into code.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    settings: Compiling,
    /// The code cache, or why its folder cannot be used; `None` if the settings name no folder.
    pub(crate) cache: Option<Result<CodeCache, String>>,
}

impl Compiler {
    /// Creates a compiler and opens the cache, if the settings name a folder. If the folder cannot be used, the
    /// compiler works without a cache, and `cache` holds the reason.
    pub(crate) fn new(settings: Compiling) -> Self {
        let cache = settings.cache.as_deref().map(|folder| {
            let failed = |why| format!("compiled methods are not kept: `{}` cannot be used, {why}", folder.display());
            CodeCache::open(folder, "tunebox compiled method", MAX_CACHE_BYTES, MAX_CACHE_BYTES).map_err(failed)
        });
        Self { settings, cache }
    }

    /// Loads the code of a component from the cache. Returns `None` without a cache or an entry, and for an entry that
    /// `engine` does not load (code of other settings, another version or another processor), which is removed from the
    /// cache.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, component: &[u8]) -> Option<Component> {
        let cache = self.cache.as_ref()?.as_ref().ok()?;
        let key = cache_key(engine, component);
        let code = cache.get(&key).map(PrecompiledCode::from_own_code)?;
        code.load(engine).map_err(|_| cache.remove(&key)).ok()
    }

    /// Compiles a component whose types have been checked, and puts the code into the cache, if there is one; a failure
    /// to write it is ignored. Compiles in a child process if `untrusted` is true and a program for it is configured,
    /// else in this process, without limits. `name` names the component in errors.
    ///
    /// Errors: [`Error::Malformed`] for a component that the compiler rejects; [`Error::NotAdmitted`] if the child
    /// takes too much time or memory, ends without an answer, or does not start.
    pub(crate) fn compile(
        &self,
        engine: &wasmtime::Engine,
        component: &[u8],
        name: &str,
        untrusted: bool,
    ) -> Result<Component, Error> {
        let malformed = |error: wasmtime::Error| Error::malformed(name, format!("{error:#}"));
        let cache = self.cache.as_ref().and_then(|cache| cache.as_ref().ok());
        let key = cache.map(|cache| (cache, cache_key(engine, component)));
        let Compiling { program, limits, code: options, .. } = &self.settings;
        let (code, component) = match program.as_ref().filter(|_| untrusted) {
            Some(program) => {
                let code = process::compile(program, component, name, limits, *options)?;
                let component = code.load(engine).map_err(malformed)?;
                (Some(code), component)
            }
            None => {
                let component = Component::from_binary(engine, component).map_err(malformed)?;
                let code = key.as_ref().and_then(|_| component.serialize().ok()).map(PrecompiledCode::from_own_code);
                (code, component)
            }
        };
        if let (Some((cache, key)), Some(code)) = (&key, &code) {
            cache.put(key, code.bytes());
        }
        Ok(component)
    }
}

/// Returns the cache key of a component's code: its SHA-256 digest and a hash of the engine's settings, as
/// `DIGEST-HASH` in hexadecimal digits. The hash includes wasmtime's version and the processor's features, and
/// [`SETTINGS_VERSION`].
fn cache_key(engine: &wasmtime::Engine, component: &[u8]) -> String {
    // A new hasher of this kind has the same keys in every process.
    let mut settings = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut settings);
    SETTINGS_VERSION.hash(&mut settings);
    format!("{}-{:016x}", hexadecimal(&Sha256::digest(component)), settings.finish())
}

#[cfg(test)]
mod tests;
