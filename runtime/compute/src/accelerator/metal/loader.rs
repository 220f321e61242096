//! Compiles the sources of kernels and looks up their functions, once per process. Metal itself caches compiled code
//! from one process to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_metal_kernels::metal::{ComputePipeline, Device, Library};
use objc2_metal::{MTLCompileOptions, MTLComputePipelineState as _};

use crate::accelerator::argument::Build;
use crate::accelerator::kernel::Module;
use crate::accelerator::sources::Language;
use crate::error::{Error, Result};

/// The number of threads of a SIMD group that the kernels are written for.
const WARP: usize = 32;

/// A kernel that can be launched.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) pipeline: ComputePipeline,
    /// The most threads that a threadgroup of this kernel can have.
    pub(super) threads: usize,
    /// A bit mask of the arguments, bit 0 for the first: a bit is set for a pointer that the kernel only reads.
    pub(super) reads: u32,
}

/// Compiles the kernels of one device and caches them.
#[derive(Debug)]
pub(super) struct Loader {
    device: Device,
    ordinal: usize,
    loaded: Mutex<Loaded>,
}

/// The modules that are compiled, and the kernels that were looked up in them. Names of kernels are unique among
/// modules.
#[derive(Debug, Default)]
struct Loaded {
    libraries: HashMap<(Module, Build), Library>,
    functions: HashMap<(&'static str, Build), Arc<Function>>,
}

impl Loader {
    /// Creates a loader with an empty cache, for the device `metal:ordinal`.
    pub(super) fn new(device: Device, ordinal: usize) -> Self {
        Self { device, ordinal, loaded: Mutex::default() }
    }

    /// Returns the kernel `name` of a module, compiled with the constants `build`. Compiles at the first call; later
    /// calls return the cached function.
    ///
    /// # Errors
    /// When there is no such kernel, its source does not compile, or the device's SIMD groups do not have 32 threads.
    pub(super) fn function(&self, module: Module, name: &'static str, build: Build) -> Result<Arc<Function>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded.functions.get(&(name, build)) {
            return Ok(Arc::clone(found));
        }
        let reads = Language::Metal
            .reads(module, name)
            .ok_or_else(|| self.stopped(format!("kernel `{name}` has no text for Metal")))?;
        let library = match loaded.libraries.get(&(module, build)) {
            Some(found) => found.clone(),
            None => {
                let made = self.compile(module, build)?;
                loaded.libraries.insert((module, build), made.clone());
                made
            }
        };
        let function = library.get_function(name, None).map_err(|error| self.stopped(error))?;
        let pipeline = self.device.new_compute_pipeline_state_with_function(&function);
        let pipeline = pipeline.map_err(|error| self.stopped(format!("kernel `{name}`: {error:?}")))?;
        let width = pipeline.as_ref().threadExecutionWidth();
        if width != WARP {
            return Err(self.stopped(format!("its SIMD groups have {width} threads, the kernels are for {WARP}")));
        }
        let threads = pipeline.max_total_threads_per_threadgroup();
        let function = Arc::new(Function { pipeline, threads, reads });
        loaded.functions.insert((name, build), Arc::clone(&function));
        Ok(function)
    }

    /// Compiles the source of a module with the constants `build`, without fast math, which would reorder sums.
    fn compile(&self, module: Module, build: Build) -> Result<Library> {
        let options = MTLCompileOptions::new();
        // The newer call is macOS 15 and later; both keep infinities and the order in which sums are written.
        #[expect(deprecated, reason = "the call that replaces it is not there before macOS 15")]
        options.setFastMathEnabled(false);
        let library = self.device.new_library_with_source(&Language::Metal.source(module, build)?, Some(&options));
        library.map_err(|error| self.stopped(format!("its kernels do not compile: {error}")))
    }

    /// Creates [`Error::Stopped`] with the name of this device and the reason `why`.
    fn stopped(&self, why: impl std::fmt::Display) -> Error {
        Error::Stopped { device: format!("metal:{}", self.ordinal), why: why.to_string() }
    }
}
