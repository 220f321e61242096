//! From the text of kernels to machine code, by NVRTC: no toolkit, no headers, no compiler of C++ beside it.

use candle_core::cuda::cudarc::nvrtc::{self, CompileError};

/// The name under which errors of a text are told.
const NAME: &str = "tunebox.cu";

/// What NVRTC is told, for a capability of 80, 90, …: machine code and not PTX, which a driver older than NVRTC refuses.
/// Lambdas have no execution space of their own; in these texts all are the device's.
pub(super) fn options(capability: u32) -> [String; 3] {
    let architecture = format!("--gpu-architecture=sm_{capability}");
    [architecture, "--std=c++17".into(), "--device-as-default-execution-space".into()]
}

/// Machine code of a text.
///
/// # Errors
/// What NVRTC says, with its log.
pub(super) fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, CompileError> {
    nvrtc::compile(source, NAME, options)
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::accelerator::argument::Build;
    use crate::accelerator::cuda::probe;
    use crate::accelerator::kernel::Module;
    use crate::accelerator::sources::Language;

    /// What a module is compiled for: every type of activations, with head sizes and group sizes where it depends on them.
    fn builds(text: Module) -> Vec<(DType, u32, u32)> {
        let heads: &[u32] = match text {
            Module::Attention | Module::Cached => &[64, 80, 96, 128, 160, 256],
            _ => &[128],
        };
        let groups: &[u32] = if text == Module::Cached { &[1, 4, 14] } else { &[4] };
        let builds = [DType::F32, DType::BF16, DType::F16]
            .into_iter()
            .flat_map(|act| heads.iter().flat_map(move |head| groups.iter().map(move |group| (act, *head, *group))));
        builds.collect()
    }

    /// Needs NVRTC (`pip install nvidia-cuda-nvrtc`), and neither a driver nor a GPU.
    #[test]
    #[ignore = "needs nvrtc"]
    fn every_text_compiles_for_every_architecture_and_type() {
        assert!(probe::compiler(), "absent `nvrtc`: it is not found");
        for text in Module::ALL {
            for (act, head, group) in builds(text) {
                let source = Language::Cuda.text(text, Build { act, head, group }).unwrap();
                for capability in [80, 90] {
                    let code = compile(&source, &options(capability));
                    assert!(code.is_ok_and(|code| !code.is_empty()), "{text:?} {act:?} {head} {group} sm_{capability}");
                }
            }
        }
    }

    #[test]
    #[ignore = "needs nvrtc"]
    fn what_does_not_compile_comes_with_the_log() {
        assert!(probe::compiler(), "absent `nvrtc`: it is not found");
        let why = compile("__global__ void broken( {", &options(80)).unwrap_err().to_string();
        assert!(why.contains("tunebox.cu(1)"), "{why}");
    }
}
