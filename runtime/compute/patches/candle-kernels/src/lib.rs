//! The names under which candle looks for kernels, with nothing behind them.
//!
//! candle's own operations on a CUDA device end in an error that names the function. Which of candle's names are here
//! was read off candle-core 0.11.1 (`grep 'kernels::\|ffi::'`).

/// A module without functions: loads on any device, finds nothing.
const NOTHING: &str = ".version 7.0\n.target sm_80\n.address_size 64\n";

/// A place in candle's list of loaded modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(usize);

/// What candle would load.
#[derive(Debug)]
pub struct Module(usize);

impl Module {
    /// Its place in candle's list.
    pub fn index(&self) -> usize {
        self.0
    }

    /// Its text.
    pub fn ptx(&self) -> &'static str {
        NOTHING
    }
}

macro_rules! modules {
    ($($name:ident)*) => {
        /// One for each module; candle asks for their number alone.
        pub const ALL_IDS: [Id; [$(stringify!($name)),*].len()] = {
            let mut ids = [Id(0); [$(stringify!($name)),*].len()];
            let mut at = 0;
            while at < ids.len() {
                ids[at] = Id(at);
                at += 1;
            }
            ids
        };
        modules!(@ 0; $($name)*);
    };
    (@ $place:expr; $name:ident $($rest:ident)*) => {
        /// A module that candle would load.
        pub const $name: Module = Module($place);
        modules!(@ $place + 1; $($rest)*);
    };
    (@ $place:expr;) => {};
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
            /// Not part of this build.
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
