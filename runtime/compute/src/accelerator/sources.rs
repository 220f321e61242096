//! The sources of kernels: which files make up a module, and which of its pointers a kernel only reads.
//!
//! Most kernels are written once for both languages; `kernels/dialect.h` says how. Each language has a prelude, and its
//! own files where its matrix instructions differ. Tests include the sources of both languages on every system, so they
//! compare the list of kernels with the sources without a GPU.

use candle_core::DType;

use super::argument::Build;
use super::kernel::Module;
use crate::error::{Error, Result};

/// A language that kernels are compiled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// CUDA C++.
    #[cfg(any(test, target_os = "linux"))]
    Cuda,
    /// Metal Shading Language.
    #[cfg(any(test, target_os = "macos"))]
    Metal,
}

/// The source that both attention modules (`Attention` and `Cached`) begin with, after the prelude.
const ATTENTION: &str = include_str!("kernels/attention.h");
/// The kernels `attention_plain…` of packed sequences. They come after the file `attention_tiles` of the language.
const ATTENTION_PLAIN: &str = include_str!("kernels/attention_plain.h");

impl Language {
    /// The sources that come before the files of every module.
    const fn prelude(self) -> &'static [&'static str] {
        match self {
            #[cfg(any(test, target_os = "linux"))]
            Self::Cuda => &[
                include_str!("kernels/cuda/machine.cuh"),
                include_str!("kernels/cuda/prelude.cuh"),
                include_str!("kernels/dialect.h"),
            ],
            #[cfg(any(test, target_os = "macos"))]
            Self::Metal => &[include_str!("kernels/metal/prelude.metal"), include_str!("kernels/dialect.h")],
        }
    }

    /// The sources of a module that follow the prelude, in the order in which they are compiled.
    const fn files(self, module: Module) -> &'static [&'static str] {
        match module {
            Module::Attention => match self {
                #[cfg(any(test, target_os = "linux"))]
                Self::Cuda => &[
                    ATTENTION,
                    include_str!("kernels/cuda/attention_tiles.cu"),
                    ATTENTION_PLAIN,
                    include_str!("kernels/cuda/attention_sizes.cuh"),
                    include_str!("kernels/cuda/warpgroup.cuh"),
                    include_str!("kernels/cuda/attention_mma.cu"),
                    include_str!("kernels/cuda/attention_wgmma.cu"),
                    include_str!("kernels/cuda/attention_common.cuh"),
                    include_str!("kernels/cuda/attention_tensor.cu"),
                    include_str!("kernels/cuda/attention_tensor_back.cu"),
                ],
                #[cfg(any(test, target_os = "macos"))]
                Self::Metal => &[ATTENTION, include_str!("kernels/metal/attention_tiles.metal"), ATTENTION_PLAIN],
            },
            Module::Cached => &[ATTENTION, include_str!("kernels/attention_cached.h")],
            Module::Random => &[include_str!("kernels/chance.h")],
            #[cfg(any(test, target_os = "macos"))]
            Module::Product => &[include_str!("kernels/metal/product.metal")],
            Module::Step => &[
                include_str!("kernels/elementwise.h"),
                include_str!("kernels/norm.h"),
                include_str!("kernels/rope.h"),
                include_str!("kernels/embedding.h"),
                include_str!("kernels/optimizer.h"),
                include_str!("kernels/head.h"),
                include_str!("kernels/patches.h"),
            ],
            Module::Unpack => &[include_str!("kernels/unpack_formats.h"), include_str!("kernels/unpack.h")],
        }
    }

    /// Returns the whole source of a module: a `#define` of `ACTIVATION` (0 for f32, 1 for bf16, 2 for f16), those of
    /// `HEAD_DIM` and `GROUP` where `build.head` and `build.group` are not 0, the prelude, then the files of the
    /// module.
    ///
    /// # Errors
    /// [`Error::Dtype`] for an activation type other than f32, bf16 and f16.
    pub(super) fn source(self, module: Module, build: Build) -> Result<String> {
        let activation = match build.act {
            DType::F32 => 0,
            DType::BF16 => 1,
            DType::F16 => 2,
            other => return Err(Error::dtype(format!("activations in `{}` have no kernels", other.as_str()))),
        };
        let mut text = format!("#define ACTIVATION {activation}\n");
        for (name, value) in [("HEAD_DIM", build.head), ("GROUP", build.group)] {
            if value > 0 {
                text += &format!("#define {name} {value}\n");
            }
        }
        for part in self.prelude().iter().chain(self.files(module)) {
            text.extend([*part, "\n"]);
        }
        Ok(text)
    }

    /// Returns a bit mask of a kernel's parameters, bit 0 for the first: a bit is set if the parameter is a pointer
    /// that the kernel only reads (`GLOBAL const`). `None` if the module has no such kernel.
    #[cfg(any(test, target_os = "macos"))]
    pub(super) fn reads(self, module: Module, kernel: &str) -> Option<u32> {
        let parameters = self.files(module).iter().find_map(|text| parameters_of(text, kernel))?;
        let read = parameters
            .split(',')
            .enumerate()
            .filter(|(_, parameter)| trim_declaration(parameter).starts_with("GLOBAL const "));
        Some(read.fold(0, |bits, (index, _)| bits | 1 << index))
    }
}

/// Trims white space and backslashes (line continuations of a macro) at both ends of a parameter's declaration.
#[cfg(any(test, target_os = "macos"))]
fn trim_declaration(parameter: &str) -> &str {
    parameter.trim_matches(|letter: char| letter.is_whitespace() || letter == '\\')
}

/// Finds the parameter list of a kernel, without its parentheses, in the source `text`. The kernel is declared
/// directly, or by a macro whose first argument is its name. `None` if the source does not declare it.
#[cfg(any(test, target_os = "macos"))]
fn parameters_of<'a>(text: &'a str, kernel: &str) -> Option<&'a str> {
    let by_macro = text.lines().find_map(|line| {
        let (name, arguments) = line.split_once('(')?;
        (arguments.split([',', ')']).next() == Some(kernel)).then_some(name)
    });
    let text = match by_macro.map(|name| format!("#define {name}(")) {
        Some(start) => &text[text.find(&start)?..],
        None => text,
    };
    let declared = if by_macro.is_some() { "name" } else { kernel };
    text.split("KERNEL(").skip(1).find_map(|part| {
        let (_, part) = part.split_once(") ")?;
        let (name, rest) = part.split_once('(')?;
        if name != declared {
            return None;
        }
        Some(rest.split_once(" WHERE)")?.0)
    })
}

#[cfg(test)]
mod tests;
