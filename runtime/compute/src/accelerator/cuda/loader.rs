//! Gets kernels as functions of a device: compiled once per machine, loaded once per process.
//!
//! Machine code is cached on disk under the digest of everything that it depends on (compiler options, the version of
//! NVRTC, the source), so a second start compiles nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::compile;
use super::context::Context;
use super::library::CallError;
use super::sys::Handle;
use crate::accelerator::argument::Build;
use crate::accelerator::kernel::{Kernel, Module};
use crate::accelerator::sources::Language;
use crate::code_cache::{CodeCache, folder};
use crate::error::{Error, Result};
use tunebox_foundation::hexadecimal::hexadecimal;

/// The most bytes of one entry of the code cache: the machine code of one module.
const LARGEST: u64 = 64 << 20;
/// The most bytes of all entries of the code cache together.
const MOST: u64 = 256 << 20;

/// Dynamic shared memory in bytes that a block of every kernel may have without raising the kernel's limit.
const SHARED: u32 = 48 << 10;

/// Compiles and loads the kernels of one device, and caches them.
pub(super) struct Loader {
    context: Arc<Context>,
    /// The compute capability of the device: 80, 90, …
    capability: u32,
    /// The version of NVRTC as (major, minor).
    compiler: (i32, i32),
    /// The most shared memory that a block of this device may ask for, in bytes.
    most: u32,
    loaded: Mutex<Loaded>,
}

/// A module and the constants that it is compiled with.
type Variant = (Module, Build);

/// The modules that are loaded, and the kernels that were looked up in them.
#[derive(Default)]
struct Loaded {
    modules: HashMap<Variant, Handle>,
    /// Handles of kernels, each with the most bytes of dynamic shared memory that its blocks may have.
    functions: HashMap<(Variant, &'static str), (Handle, u32)>,
}

impl Loader {
    /// Creates a loader with an empty cache. `capability` is the device's compute capability (80, 90, …), `compiler`
    /// the version of NVRTC as (major, minor), and `most` the most shared memory in bytes that a block of this device
    /// may have.
    pub(super) fn new(context: Arc<Context>, capability: u32, compiler: (i32, i32), most: u32) -> Self {
        Self { context, capability, compiler, most, loaded: Mutex::default() }
    }

    /// Returns the handle of a kernel that is compiled with the constants `build` (activation type, head size, query
    /// heads per key-value head) and whose blocks may have `shared` bytes of dynamic shared memory each. Compiles and
    /// loads the kernel's module at the first call; later calls return the cached handle.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the source does not compile, the driver refuses the machine code, or a block of this
    /// device can have less than `shared` bytes; [`Error::Dtype`] for an activation type other than f32, bf16 and f16.
    pub(super) fn function(&self, kernel: &Kernel, build: Build, shared: u32) -> Result<Handle> {
        if shared > self.most {
            return Err(self.stopped(shared_memory_message(kernel.name, shared, self.most)));
        }
        let variant = (kernel.module, build);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (variant, kernel.name);
        if let Some((function, _)) = loaded.functions.get(&key).filter(|(_, allowed)| *allowed >= shared) {
            return Ok(*function);
        }
        let module = match loaded.modules.get(&variant) {
            Some(module) => *module,
            None => {
                let module = self.load_module(variant)?;
                loaded.modules.insert(variant, module);
                module
            }
        };
        let refused = |error: CallError| self.stopped(format!("kernel `{}`: {error}", kernel.name));
        let more = (shared > SHARED).then_some(shared);
        let function = self.context.function(module, kernel.name, more).map_err(refused)?;
        loaded.functions.insert(key, (function, shared.max(SHARED)));
        Ok(function)
    }

    /// Loads the module of a variant and returns its handle. Takes the machine code from the code cache on disk. If the
    /// code is not there or the driver refuses it, compiles the source with NVRTC and writes the code to the cache.
    /// Fails if the source does not compile or the driver refuses the new code; a missing cache is no error.
    fn load_module(&self, variant: Variant) -> Result<Handle> {
        let source = Language::Cuda.source(variant.0, variant.1)?;
        let options = compile::options(self.capability);
        let (kept, name) = (open_kernel_cache(), self.cache_file_name(&source, &options));
        // Code that the driver refuses is compiled again: another version of the driver may have been installed then.
        let found = kept.as_ref().and_then(|kept| kept.get(&name)).and_then(|code| self.context.load(&code).ok());
        if let Some(module) = found {
            return Ok(module);
        }
        let code = compile::compile(&source, &options)
            .map_err(|error| self.stopped(format!("its kernels do not compile for sm_{}: {error}", self.capability)))?;
        // Errors of the cache are ignored: without an entry the next start compiles again, which takes a few seconds.
        if let Some(kept) = &kept {
            kept.put(&name, &code);
        }
        self.context.load(&code).map_err(|error| self.stopped(format!("the driver refuses its kernels: {error}")))
    }

    /// Creates [`Error::Stopped`] with the name of this device and the reason `why`.
    fn stopped(&self, why: String) -> Error {
        Error::Stopped { device: format!("cuda:{}", self.context.ordinal), why }
    }

    /// The file name of a module's machine code in the cache: the SHA-256, in hexadecimal, of the options, the version
    /// of NVRTC and the source, each after its length (u64, little-endian), then `.cubin`.
    fn cache_file_name(&self, source: &str, options: &[String]) -> String {
        let compiler = format!("{}.{}", self.compiler.0, self.compiler.1);
        let mut digest = Sha256::new();
        for part in options.iter().map(String::as_str).chain([compiler.as_str(), source]) {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        format!("{}.cubin", hexadecimal(&digest.finalize()))
    }
}

/// The message that a block of `kernel` takes `wanted` bytes of shared memory where the GPU gives `most`, with a
/// setting that takes less.
fn shared_memory_message(kernel: &str, wanted: u32, most: u32) -> String {
    format!(
        "a block of the kernel `{kernel}` takes {wanted} bytes of shared memory and this GPU gives {most}; \
        `train.compute = \"bf16\"` takes less"
    )
}

/// Opens the code cache of CUDA kernels, in the folder `kernels` of the caches. `None` if caching is off, or
/// [`CodeCache::open`] refuses the folder.
fn open_kernel_cache() -> Option<CodeCache> {
    CodeCache::open(&folder("kernels")?, "tunebox kernels", LARGEST, MOST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_a_gpu_is_too_narrow_for_is_refused_with_both_numbers_and_what_to_set() {
        let why = shared_memory_message("attention_plain_dq", 140_032, 101_376);
        assert!(why.contains("140032") && why.contains("101376") && why.contains("train.compute = \"bf16\""), "{why}");
    }
}
