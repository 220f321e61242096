//! From the text of kernels to functions of a device: compiled once a machine, loaded once a process.
//!
//! Machine code is kept on disk under the digest of everything that went into it, so a second start compiles nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda::cudarc::driver::{CudaContext, CudaFunction, CudaModule, DriverError};
use candle_core::cuda::cudarc::nvrtc::Ptx;
use sha2::{Digest, Sha256};

use super::compile;
use crate::accelerator::Build;
use crate::accelerator::kernel::{Kernel, Text};
use crate::error::{Error, Result};

/// Shared memory of a block that every kernel may have without asking, in bytes.
const SHARED: u32 = 48 << 10;
/// Bytes of a digest, which a kept file begins with.
const DIGEST: usize = 32;
/// The variable that names the folder of what is compiled; empty, nothing is kept.
const CACHE: &str = "TUNEBOX_CACHE";

/// The functions of one device.
pub(super) struct Loader {
    context: Arc<CudaContext>,
    /// 80, 90, …
    capability: u32,
    /// The version of NVRTC.
    compiler: (i32, i32),
    loaded: Mutex<Loaded>,
}

/// A text and what it is compiled for.
type Variant = (Text, Build);

#[derive(Default)]
struct Loaded {
    modules: HashMap<Variant, Arc<CudaModule>>,
    functions: HashMap<(Variant, &'static str), Found>,
}

/// A function, and the shared memory that its blocks may have.
#[derive(Clone)]
struct Found {
    function: CudaFunction,
    shared: u32,
}

impl Loader {
    pub(super) fn new(context: Arc<CudaContext>, capability: u32, compiler: (i32, i32)) -> Self {
        Self { context, capability, compiler, loaded: Mutex::default() }
    }

    /// A kernel, with leave for so many bytes of shared memory a block.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the text does not compile or the driver does not take it.
    pub(super) fn function(&self, kernel: &Kernel, build: Build, shared: u32) -> Result<CudaFunction> {
        let variant = (kernel.text, build);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (variant, kernel.name);
        if let Some(found) = loaded.functions.get(&key).filter(|found| found.shared >= shared) {
            return Ok(found.function.clone());
        }
        let module = match loaded.modules.get(&variant) {
            Some(module) => Arc::clone(module),
            None => {
                let module = self.module(variant)?;
                loaded.modules.insert(variant, Arc::clone(&module));
                module
            }
        };
        let refused = |error: DriverError| self.stopped(format!("kernel `{}`: {}", kernel.name, error.words()));
        let function = module.load_function(kernel.name).map_err(refused)?;
        if shared > SHARED {
            function.allow_shared(shared).map_err(refused)?;
        }
        loaded.functions.insert(key, Found { function: function.clone(), shared: shared.max(SHARED) });
        Ok(function)
    }

    /// The machine code of a variant on the device, from disk or from the compiler.
    fn module(&self, variant: Variant) -> Result<Arc<CudaModule>> {
        let source = compile::source(variant.0, variant.1)?;
        let options = compile::options(self.capability);
        let kept = folder().map(|folder| folder.join(self.name(&source, &options)));
        // What the driver does not take is compiled again: another driver may have been there when it was kept.
        let found = kept.as_deref().and_then(kept_code).and_then(|code| self.load(code).ok());
        if let Some(module) = found {
            return Ok(module);
        }
        let code = compile::compile(&source, &options)
            .map_err(|error| self.stopped(format!("its kernels do not compile for sm_{}: {error}", self.capability)))?;
        // A folder that cannot be written costs the next start a few seconds, no more.
        if let Some(path) = &kept {
            let _ = keep(path, &code);
        }
        self.load(code).map_err(|error| self.stopped(format!("the driver refuses its kernels: {}", error.words())))
    }

    fn load(&self, code: Vec<u8>) -> std::result::Result<Arc<CudaModule>, DriverError> {
        self.context.load_module(Ptx::from_binary(code))
    }

    fn stopped(&self, why: String) -> Error {
        Error::Stopped { device: format!("cuda:{}", self.context.ordinal()), why }
    }

    /// The name of a file of machine code: the digest of all that went into it.
    fn name(&self, source: &str, options: &[String]) -> String {
        let compiler = format!("{}.{}", self.compiler.0, self.compiler.1);
        let mut digest = Sha256::new();
        for part in options.iter().map(String::as_str).chain([compiler.as_str(), source]) {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let digits: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}.cubin")
    }
}

/// The folder of machine code: `kernels` in the folder of what is compiled, by default in that of the person's caches.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(CACHE) {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty()).map(|path| path.join("kernels"));
    }
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = of("XDG_CACHE_HOME").or_else(|| of("LOCALAPPDATA"));
    let caches = caches.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(caches.join("tunebox").join("kernels"))
}

/// Machine code that was kept, if it is whole.
fn kept_code(path: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).ok()?;
    let (digest, code) = bytes.split_at_checked(DIGEST)?;
    (Sha256::digest(code)[..] == *digest).then(|| code.to_vec())
}

/// Writes machine code beside its place, behind its digest, and renames it, so that nobody reads half of it.
fn keep(path: &Path, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    std::fs::write(&draft, [&Sha256::digest(code)[..], code].concat())?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_comes_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("x.cubin");
        assert_eq!(kept_code(&path), None);
        keep(&path, b"machine code").unwrap();
        assert_eq!(kept_code(&path).as_deref(), Some(&b"machine code"[..]));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a draft is left");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.pop();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(kept_code(&path), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(kept_code(&path), None);
    }
}
