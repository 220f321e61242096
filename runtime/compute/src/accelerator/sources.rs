//! The texts of kernels in CUDA C++: which files make a module.

use super::kernel::Module;

/// What stands before every text.
#[cfg(target_os = "linux")]
pub(super) const CUDA_SHARED: [&str; 2] =
    [include_str!("kernels/cuda/machine.cuh"), include_str!("kernels/cuda/prelude.cuh")];

/// The files of a text in CUDA C++.
pub(super) const fn cuda(text: Module) -> &'static [&'static str] {
    const PATHS: &str = include_str!("kernels/cuda/attention.cuh");
    match text {
        Module::Attention => {
            &[PATHS, include_str!("kernels/cuda/attention_plain.cu"), include_str!("kernels/cuda/attention_tensor.cu")]
        }
        Module::Cached => &[PATHS, include_str!("kernels/cuda/attention_cached.cu")],
        Module::Chance => &[include_str!("kernels/cuda/chance.cu")],
        Module::Step => &[
            include_str!("kernels/cuda/elementwise.cu"),
            include_str!("kernels/cuda/norm.cu"),
            include_str!("kernels/cuda/rope.cu"),
            include_str!("kernels/cuda/embedding.cu"),
            include_str!("kernels/cuda/optimizer.cu"),
            include_str!("kernels/cuda/head.cu"),
            include_str!("kernels/cuda/patches.cu"),
        ],
        Module::Unpack => &[include_str!("kernels/unpack_formats.h"), include_str!("kernels/cuda/unpack.cu")],
    }
}
