//! From the text of kernels to functions of a device: compiled once a machine, loaded once a process.
//!
//! Machine code is kept on disk (`kept`) under the digest of everything that went into it, so a second start compiles
//! nothing.

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

/// The largest text of machine code that is kept, in bytes.
const LARGEST: u64 = 64 << 20;
/// Bytes of all machine code that is kept.
const MOST: u64 = 256 << 20;

/// Shared memory of a block that every kernel may have without asking, in bytes.
const SHARED: u32 = 48 << 10;

/// The functions of one device.
pub(super) struct Loader {
    context: Arc<Context>,
    /// 80, 90, …
    capability: u32,
    /// The version of NVRTC.
    compiler: (i32, i32),
    /// The most shared memory that a block of this device may ask for, in bytes.
    most: u32,
    loaded: Mutex<Loaded>,
}

/// A text and what it is compiled for.
type Variant = (Module, Build);

#[derive(Default)]
struct Loaded {
    modules: HashMap<Variant, Handle>,
    /// Functions, each with the bytes of shared memory that its blocks may have.
    functions: HashMap<(Variant, &'static str), (Handle, u32)>,
}

impl Loader {
    /// Creates a loader that has loaded nothing. `most` is the most shared memory that a block of this device may have,
    /// in bytes.
    pub(super) fn new(context: Arc<Context>, capability: u32, compiler: (i32, i32), most: u32) -> Self {
        Self { context, capability, compiler, most, loaded: Mutex::default() }
    }

    /// Returns the handle of a kernel compiled for `build`, whose blocks may have `shared` bytes of dynamic shared
    /// memory. Compiles and loads its module at the first call; later calls return the cached handle.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the text does not compile, the driver does not take it, or the device has less shared memory.
    pub(super) fn function(&self, kernel: &Kernel, build: Build, shared: u32) -> Result<Handle> {
        if shared > self.most {
            return Err(self.stopped(too_narrow(kernel.name, shared, self.most)));
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
                let module = self.module(variant)?;
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

    /// Loads the module of a variant: the machine code comes from the code cache on disk or, if it is not there or the
    /// driver refuses it, from NVRTC, which also writes it to the cache.
    fn module(&self, variant: Variant) -> Result<Handle> {
        let source = Language::Cuda.text(variant.0, variant.1)?;
        let options = compile::options(self.capability);
        let (kept, name) = (kernels(), self.name(&source, &options));
        // What the driver does not take is compiled again: another driver may have been there when it was kept.
        let found = kept.as_ref().and_then(|kept| kept.get(&name)).and_then(|code| self.context.load(&code).ok());
        if let Some(module) = found {
            return Ok(module);
        }
        let code = compile::compile(&source, &options)
            .map_err(|error| self.stopped(format!("its kernels do not compile for sm_{}: {error}", self.capability)))?;
        // A folder that keeps nothing costs the next start a few seconds, no more.
        if let Some(kept) = &kept {
            kept.put(&name, &code);
        }
        self.context.load(&code).map_err(|error| self.stopped(format!("the driver refuses its kernels: {error}")))
    }

    /// Creates [`Error::Stopped`] with the name of this device and the reason `why`.
    fn stopped(&self, why: String) -> Error {
        Error::Stopped { device: format!("cuda:{}", self.context.ordinal), why }
    }

    /// The file name of a module's machine code in the cache: the SHA-256 of the options, the NVRTC version and the
    /// source text, in hexadecimal, with `.cubin`.
    fn name(&self, source: &str, options: &[String]) -> String {
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
fn too_narrow(kernel: &str, wanted: u32, most: u32) -> String {
    format!(
        "a block of the kernel `{kernel}` takes {wanted} bytes of shared memory and this GPU gives {most}; \
        `train.compute = \"bf16\"` takes less"
    )
}

/// Opens the code cache of CUDA kernels. `None` if caching is off, or its folder cannot be used or trusted.
fn kernels() -> Option<CodeCache> {
    CodeCache::open(&folder("kernels")?, "tunebox kernels", LARGEST, MOST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_a_gpu_is_too_narrow_for_is_refused_with_both_numbers_and_what_to_set() {
        let why = too_narrow("attention_plain_dq", 140_032, 101_376);
        assert!(why.contains("140032") && why.contains("101376") && why.contains("train.compute = \"bf16\""), "{why}");
    }
}
