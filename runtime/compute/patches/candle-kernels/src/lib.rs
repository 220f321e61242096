//! The names under which candle looks for kernels, with nothing behind them.
//!
//! candle's own operations on a CUDA device end in an error that names the function. Which of candle's names are here
//! was read off candle-core 0.11.1 (`grep 'kernels::\|ffi::'`).

/// PTX of a module without functions: it loads on any device, and no function is found in it.
const EMPTY: &str = ".version 7.0\n.target sm_80\n.address_size 64\n";

/// The numbers of all modules in candle's list of loaded ones: all names stand for one empty module.
pub const ALL_IDS: [usize; 1] = [0];

/// A module that candle would load.
#[derive(Debug)]
pub struct Module;

impl Module {
    /// Returns 0, the index of this module in candle's list of loaded modules: all modules share one entry.
    pub fn index(&self) -> usize {
        0
    }

    /// Returns the PTX text of the module, which contains no function.
    pub fn ptx(&self) -> &'static str {
        EMPTY
    }
}

macro_rules! modules {
    ($($name:ident)*) => {$(
        /// An empty module under a name of candle's.
        pub const $name: Module = Module;
    )*};
}

modules!(AFFINE BINARY CAST CONV FILL INDEXING QUANTIZED REDUCE SORT TERNARY UNARY);

/// Launchers of products with candle's own quantized tensors, which tunebox never puts on a device.
pub mod ffi {
    use std::ffi::c_void;

    macro_rules! absent {
        ($(($($argument:ty),*): $($name:ident)*;)*) => {$(
            absent!(@ ($($argument),*) $($name)*);
        )*};
        (@ $arguments:tt $($name:ident)*) => { $(absent!(@@ $name $arguments);)* };
        (@@ $name:ident ($($argument:ty),*)) => {
            /// Aborts the process: this launcher of candle's quantized products is not part of the build.
            ///
            /// # Safety
            /// It ends the process whatever it is given.
            #[allow(non_snake_case, reason = "candle's name")]
            pub unsafe extern "C" fn $name($(_: $argument),*) {
                std::process::abort()
            }
        };
    }

    absent! {
        (*const c_void, *const i32, *mut c_void, i32, i64, i64, i64, i64, i64, i64, i64, i64, *mut c_void):
            launch_mmq_quantize_q8_1_D4 launch_mmq_quantize_q8_1_DS4 launch_mmq_quantize_q8_1_D2S6;
        (*mut c_void, *const c_void, *const c_void, *mut c_void, i64, i64, i64, i64, i64, i32, i32, i64, i32, *mut c_void):
            launch_mmq_gguf_q4_0 launch_mmq_gguf_q4_1 launch_mmq_gguf_q5_0 launch_mmq_gguf_q5_1 launch_mmq_gguf_q8_0
            launch_mmq_gguf_q2_k launch_mmq_gguf_q3_k launch_mmq_gguf_q4_k launch_mmq_gguf_q5_k launch_mmq_gguf_q6_k;
        (*const c_void, *mut c_void, i32, i32, i32, *mut c_void):
            launch_mmvq_gguf_quantize_q8_1_bf16 launch_mmvq_gguf_quantize_q8_1_f16 launch_mmvq_gguf_quantize_q8_1_f32;
        (*const c_void, *const c_void, *mut c_void, i32, i32, i32, i32, i32, *mut c_void):
            launch_mmvq_gguf_q4_0_bf16_plain launch_mmvq_gguf_q4_1_bf16_plain launch_mmvq_gguf_q5_0_bf16_plain
            launch_mmvq_gguf_q5_1_bf16_plain launch_mmvq_gguf_q8_0_bf16_plain launch_mmvq_gguf_q2_k_bf16_plain
            launch_mmvq_gguf_q3_k_bf16_plain launch_mmvq_gguf_q4_k_bf16_plain launch_mmvq_gguf_q5_k_bf16_plain
            launch_mmvq_gguf_q6_k_bf16_plain
            launch_mmvq_gguf_q4_0_f16_plain launch_mmvq_gguf_q4_1_f16_plain launch_mmvq_gguf_q5_0_f16_plain
            launch_mmvq_gguf_q5_1_f16_plain launch_mmvq_gguf_q8_0_f16_plain launch_mmvq_gguf_q2_k_f16_plain
            launch_mmvq_gguf_q3_k_f16_plain launch_mmvq_gguf_q4_k_f16_plain launch_mmvq_gguf_q5_k_f16_plain
            launch_mmvq_gguf_q6_k_f16_plain
            launch_mmvq_gguf_q4_0_f32_plain launch_mmvq_gguf_q4_1_f32_plain launch_mmvq_gguf_q5_0_f32_plain
            launch_mmvq_gguf_q5_1_f32_plain launch_mmvq_gguf_q8_0_f32_plain launch_mmvq_gguf_q2_k_f32_plain
            launch_mmvq_gguf_q3_k_f32_plain launch_mmvq_gguf_q4_k_f32_plain launch_mmvq_gguf_q5_k_f32_plain
            launch_mmvq_gguf_q6_k_f32_plain;
    }
}
